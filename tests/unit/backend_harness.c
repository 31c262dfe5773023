/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of the harness (services, groups, the thread that aborts) and their parent (fork,
 * results). The rendezvous is in harness_store.c, the parent's wait for processes in
 * harness_watch.c. One anonymous shared mapping, created before the ranks, holds what they share;
 * the next harness_run replaces it, so that runs are independent.
 */
#include "backend_harness.h"
#include "core/error.h"
#include "harness_services.h"
#include "harness_store.h"
#include "harness_watch.h"
#include "progress/p2p.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define SCRATCH_BYTES 65536u

/* Commands for a service thread. */
enum command { COMMAND_NONE, COMMAND_ABORT, COMMAND_LEAVE };

struct harness_shared {
    _Atomic uint32_t commands[HARNESS_MAX_RANKS]; /* enum command; futexes of the service threads */
    _Atomic uint64_t abort_ns;
    _Atomic uint32_t arrived, turn; /* harness_sync */
    _Atomic pid_t pids[HARNESS_MAX_RANKS];
    _Atomic uint64_t entered_ns[HARNESS_MAX_RANKS]; /* when harness_exec was called; 0: outside */
    char reports[HARNESS_MAX_RANKS][1024];
    int results[HARNESS_MAX_RANKS];
    _Alignas(64) char scratch[SCRATCH_BYTES];
    struct harness_store store;
};

/* The private part of a rank. */
struct harness_inside {
    struct harness_shared *shared;
    struct collrun_services services;
    pthread_t service;
    pthread_mutex_t lock; /* guards groups: only open ones are aborted */
    struct harness_group *groups;
    pthread_t later;
    unsigned later_ms;
    bool later_runs;
};

/* A process of the run: one rank, or all ranks as threads. */
struct harness_team {
    const struct harness_options *options;
    int (*fn)(struct harness_rank *r);
    struct harness_shared *shared;
    struct collrun_backend table;
    void *state;
};

static struct harness_shared *last_run;

/* ---- results ---- */

int harness_fail(struct harness_rank *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->inside->shared->reports[r->rank], sizeof(r->inside->shared->reports[0]), format,
              ap);
    va_end(ap);
    return 1;
}

/* ---- waiting, killing, aborting ---- */

static void futex_wait_ms(_Atomic uint32_t *word, uint32_t value, long ms)
{
    const struct timespec limit = {ms / 1000, ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void harness_sync(struct harness_rank *r)
{
    struct harness_shared *s = r->inside->shared;
    const uint32_t turn = atomic_load(&s->turn);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == r->nranks) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->turn, 1);
        futex_wake_all(&s->turn);
    }
    while (atomic_load(&s->turn) == turn)
        futex_wait_ms(&s->turn, turn, 1000);
}

uint64_t harness_inside_ms(const struct harness_rank *r, uint32_t rank)
{
    const uint64_t entered = atomic_load(&r->inside->shared->entered_ns[rank]);
    return entered ? (harness_now_ns() - entered) / 1000000 : 0;
}

bool harness_is_gone(const struct harness_rank *r, uint32_t rank)
{
    const pid_t pid = atomic_load(&r->inside->shared->pids[rank]);
    return pid > 0 && kill(pid, 0) != 0;
}

void harness_kill(struct harness_rank *r, uint32_t rank)
{
    const pid_t pid = atomic_load(&r->inside->shared->pids[rank]);
    if (pid > 0 && !r->options->threads)
        kill(pid, SIGKILL);
}

/* Only the first command counts. */
static void give_command(_Atomic uint32_t *command, uint32_t value)
{
    uint32_t none = COMMAND_NONE;
    if (atomic_compare_exchange_strong(command, &none, value))
        futex_wake_all(command);
}

static void abort_everywhere(struct harness_shared *s)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong(&s->abort_ns, &none, harness_now_ns());
    for (uint32_t i = 0; i < HARNESS_MAX_RANKS; i++)
        give_command(&s->commands[i], COMMAND_ABORT);
    harness_store_fail(&s->store);
}

void harness_abort_everywhere(struct harness_rank *r)
{
    abort_everywhere(r->inside->shared);
}

uint64_t harness_abort_ns(const struct harness_rank *r)
{
    return atomic_load(&r->inside->shared->abort_ns);
}

static void abort_groups(struct harness_rank *r)
{
    pthread_mutex_lock(&r->inside->lock);
    for (struct harness_group *g = r->inside->groups; g; g = g->next)
        if (r->backend->group_abort)
            r->backend->group_abort(g->handle);
    pthread_mutex_unlock(&r->inside->lock);
}

static void *service_main(void *arg)
{
    struct harness_rank *r = arg;
    _Atomic uint32_t *command = &r->inside->shared->commands[r->rank];
    while (atomic_load(command) == COMMAND_NONE)
        futex_wait_ms(command, COMMAND_NONE, 1000);
    if (atomic_load(command) == COMMAND_ABORT)
        abort_groups(r);
    return NULL;
}

static void *later_main(void *arg)
{
    struct harness_rank *r = arg;
    const long ms = (long)r->inside->later_ms;
    const struct timespec delay = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
    abort_groups(r);
    return NULL;
}

void harness_abort_after(struct harness_rank *r, unsigned delay_ms)
{
    r->inside->later_ms = delay_ms;
    r->inside->later_runs = pthread_create(&r->inside->later, NULL, later_main, r) == 0;
}

/* ---- groups ---- */

static uint32_t cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static void describe_hosts(const struct harness_options *o, const uint32_t *members,
                           uint32_t nmembers, struct collrun_group_desc *desc, uint32_t *host_of)
{
    for (uint32_t i = 0; i < nmembers; i++)
        host_of[i] = o->host_of ? o->host_of[members[i]] : 0;
    for (uint32_t i = 0; i < nmembers; i++) {
        if (host_of[i] != host_of[desc->rank])
            continue;
        desc->nlocal++;
        if (i < desc->rank)
            desc->local_rank++;
    }
}

static struct harness_group *group_new(struct harness_rank *r, uint32_t nmembers)
{
    struct harness_group *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->backend = r->backend;
    g->owner = r;
    g->nranks = nmembers;
    g->segment = -1;
    g->timeout_ns = r->options->timeout_ns ? r->options->timeout_ns : 60 * SECOND;
    return g;
}

static void group_free(struct harness_group *g)
{
    p2p_free(g->p2p);
    if (g->segment >= 0)
        close(g->segment);
    free(g);
}

static void group_publish(struct harness_rank *r, struct harness_group *g)
{
    pthread_mutex_lock(&r->inside->lock);
    g->next = r->inside->groups;
    r->inside->groups = g;
    pthread_mutex_unlock(&r->inside->lock);
    if (atomic_load(&r->inside->shared->commands[r->rank]) == COMMAND_ABORT &&
        r->backend->group_abort)
        r->backend->group_abort(g->handle);
}

static int open_group(struct harness_rank *r, const char *name, const uint32_t *members,
                      uint32_t nmembers, void *sibling, struct harness_group **out)
{
    const struct harness_options *o = r->options;
    struct harness_group *g = group_new(r, nmembers);
    if (!g)
        return COLLRUN_ERR_NO_MEMORY;
    uint32_t host_of[HARNESS_MAX_RANKS];
    while (g->rank < nmembers && members[g->rank] != r->rank)
        g->rank++;
    if (g->rank == nmembers) {
        group_free(g);
        return r->inside->services.fail(r, COLLRUN_ERR_NOT_MEMBER, "%s: rank %u is not a member",
                                        name, r->rank);
    }
    struct collrun_group_desc desc = {
        .size = sizeof(desc),
        .rank = g->rank,
        .nranks = nmembers,
        .name = name,
        .world_rank = members,
        .host_of = host_of,
        .address = o->address ? o->address : "127.0.0.1",
        .interface = o->interface ? o->interface : "lo",
        .timeout_ns = g->timeout_ns,
        .services = &r->inside->services,
        .ncpus = o->ncpus ? o->ncpus : cores(),
        .collectives_handle = sibling,
    };
    describe_hosts(o, members, nmembers, &desc, host_of);
    struct harness_rendezvous rendezvous;
    harness_rendezvous_open(&rendezvous, &r->inside->shared->store, &desc,
                            o->rendezvous_ns ? o->rendezvous_ns : 10 * SECOND);
    desc.rendezvous = &rendezvous.table;
    if (r->backend->transport)
        g->p2p = p2p_new(r->backend->transport, desc.services, g->rank, nmembers);
    desc.p2p = g->p2p ? &g->p2p->table : NULL;
    if (o->desc_size) {
        desc.size = o->desc_size;
        memset((char *)&desc + o->desc_size, 0xa5, sizeof desc - o->desc_size);
    }
    const int status = r->backend->group_open(r->state, &desc, &g->handle);
    harness_rendezvous_close(&rendezvous);
    if (g->p2p)
        g->p2p->handle = g->handle;
    g->segment = rendezvous.segment;
    if (status != COLLRUN_OK) {
        group_free(g);
        return status;
    }
    group_publish(r, g);
    *out = g;
    return COLLRUN_OK;
}

int harness_group_open(struct harness_rank *r, const char *name, const uint32_t *members,
                       uint32_t nmembers, struct harness_group **out)
{
    return open_group(r, name, members, nmembers, NULL, out);
}

int harness_group_open_beside(struct harness_group *first, const char *name,
                              const uint32_t *members, struct harness_group **out)
{
    return open_group(first->owner, name, members, first->nranks, first->handle, out);
}

void harness_group_close(struct harness_group *group)
{
    struct harness_inside *inside = group->owner->inside;
    pthread_mutex_lock(&inside->lock);
    struct harness_group **link = &inside->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_mutex_unlock(&inside->lock);
    group->backend->group_close(group->handle);
    group_free(group);
}

int harness_wait(struct harness_group *group, void *request)
{
    int status;
    while ((status = group->backend->test(group->handle, request)) == COLLRUN_AGAIN)
        sched_yield();
    return status;
}

static int start_and_wait(struct harness_group *g, const struct collrun_call *calls,
                          uint32_t ncalls)
{
    void *request = NULL;
    const int status = g->backend->start(g->handle, calls, ncalls, &request);
    return status == COLLRUN_OK ? harness_wait(g, request) : status;
}

int harness_exec(struct harness_group *group, const struct collrun_call *calls, uint32_t ncalls)
{
    if (ncalls == 0)
        return COLLRUN_OK;
    struct collrun_call few[4];
    struct collrun_call *copy = ncalls <= 4 ? few : calloc(ncalls, sizeof(*copy));
    if (!copy)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < ncalls; i++) {
        copy[i] = calls[i];
        copy[i].size = (uint32_t)sizeof(copy[i]);
        if (copy[i].timeout_ns == 0)
            copy[i].timeout_ns = group->timeout_ns;
    }
    _Atomic uint64_t *entered = &group->owner->inside->shared->entered_ns[group->owner->rank];
    atomic_store(entered, harness_now_ns());
    struct p2p_batch batch;
    int status;
    if (group->p2p && collrun_kind_is_message(copy[0].kind))
        status = p2p_exec(group->p2p, copy, ncalls, &batch, NULL);
    else if (group->backend->exec)
        status = group->backend->exec(group->handle, copy, ncalls);
    else
        status = start_and_wait(group, copy, ncalls);
    atomic_store(entered, 0);
    if (copy != few)
        free(copy);
    return status;
}

/* ---- one rank ---- */

static int run_in_group(struct harness_rank *r, int (*fn)(struct harness_rank *r))
{
    if (r->options->no_group)
        return fn(r);
    uint32_t all[HARNESS_MAX_RANKS];
    for (uint32_t i = 0; i < r->nranks; i++)
        all[i] = i;
    const int status = harness_group_open(r, "world", all, r->nranks, &r->group);
    if (status != COLLRUN_OK)
        return harness_fail(r, "group_open: %d: %s", status, harness_error());
    const int result = fn(r);
    if (r->inside->later_runs) {
        pthread_join(r->inside->later, NULL);
        r->inside->later_runs = false;
    }
    harness_group_close(r->group);
    return result;
}

static int rank_main(struct harness_team *team, uint32_t rank)
{
    struct harness_inside inside = {
        .shared = team->shared,
    };
    struct harness_rank r = {
        .rank = rank,
        .nranks = team->options->nranks,
        .backend = &team->table,
        .state = team->state,
        .options = team->options,
        .arg = team->options->arg,
        .scratch = team->shared->scratch,
        .inside = &inside,
    };
    inside.services = harness_services(&r);
    pthread_mutex_init(&inside.lock, NULL);
    if (pthread_create(&inside.service, NULL, service_main, &r) != 0)
        return harness_fail(&r, "no thread: %s", strerror(errno));
    const int result = run_in_group(&r, team->fn);
    give_command(&team->shared->commands[rank], COMMAND_LEAVE);
    pthread_join(inside.service, NULL);
    if (inside.later_runs)
        pthread_join(inside.later, NULL);
    pthread_mutex_destroy(&inside.lock);
    return result;
}

/* ---- a process ---- */

static int team_problem(struct harness_team *team, uint32_t rank, const char *what,
                        const char *text)
{
    snprintf(team->shared->reports[rank], sizeof(team->shared->reports[0]), "%s: %.900s", what,
             text);
    return 1;
}

/* Loads the .so as the registry does: copies its table into a complete, zeroed one. */
static int team_load(struct harness_team *team, uint32_t rank)
{
    void *lib = dlopen(team->options->path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return team_problem(team, rank, "dlopen", dlerror());
    const struct collrun_backend *b = dlsym(lib, "collrun_backend_v1");
    if (!b)
        return team_problem(team, rank, "dlsym", dlerror());
    if (b->abi != COLLRUN_BACKEND_ABI)
        return team_problem(team, rank, team->options->path, "not the backend ABI of this build");
    memcpy(&team->table, b, b->size < sizeof(*b) ? b->size : sizeof(*b));
    return 0;
}

static int team_open(struct harness_team *team, uint32_t rank)
{
    static struct harness_rank owner; /* for probe and open, which belong to no group */
    static struct collrun_services services;
    static struct harness_inside inside;
    owner = (struct harness_rank){.rank = rank, .options = team->options, .inside = &inside};
    services = harness_services(&owner);
    char why[256] = "";
    if (team_load(team, rank) != 0)
        return 1;
    if (team->table.probe && team->table.probe(&services, why, sizeof(why)) != COLLRUN_OK)
        return team_problem(team, rank, "unavailable", why);
    if (team->table.open && team->table.open(&services, &team->state) != COLLRUN_OK)
        return team_problem(team, rank, "open", harness_error());
    return 0;
}

struct rank_thread {
    pthread_t thread;
    struct harness_team *team;
    uint32_t rank;
};

static void *rank_thread_main(void *arg)
{
    const struct rank_thread *t = arg;
    t->team->shared->results[t->rank] = rank_main(t->team, t->rank);
    return NULL;
}

static int run_threads(struct harness_team *team)
{
    static struct rank_thread threads[HARNESS_MAX_RANKS];
    int failed = 0;
    for (uint32_t i = 0; i < team->options->nranks; i++) {
        threads[i] = (struct rank_thread){.team = team, .rank = i};
        if (pthread_create(&threads[i].thread, NULL, rank_thread_main, &threads[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < team->options->nranks; i++) {
        pthread_join(threads[i].thread, NULL);
        failed |= team->shared->results[i];
    }
    return failed;
}

static _Noreturn void child_main(struct harness_team *team, uint32_t rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* cmocka's handlers would jump back into the parent's test cases, and run them here. */
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    atomic_store(&team->shared->pids[rank], getpid());
    int result = team_open(team, rank);
    if (result == 0) {
        if (team->options->threads)
            result = run_threads(team);
        else
            result = team->shared->results[rank] = rank_main(team, rank);
        if (team->table.close)
            team->table.close(team->state);
    }
    if (result != 0) {
        fflush(NULL);
        _exit(1); /* a check has failed: what is still allocated is no leak */
    }
    exit(0);
}

/* ---- the parent ---- */

static int shared_new(struct harness_shared **out)
{
    if (last_run)
        munmap(last_run, sizeof(*last_run));
    last_run = NULL;
    struct harness_shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED)
        return -1;
    harness_store_init(&s->store);
    *out = last_run = s;
    return 0;
}

static void on_death(void *shared)
{
    abort_everywhere(shared);
}

static void start_ranks(struct harness_watch *w, struct harness_team *team)
{
    const uint32_t nprocs = team->options->threads ? 1 : team->options->nranks;
    fflush(NULL);
    for (uint32_t i = 0; i < nprocs; i++) {
        const pid_t pid = fork();
        if (pid == 0)
            child_main(team, i);
        harness_watch_add(w, pid);
    }
}

int harness_run(const struct harness_options *options, int (*fn)(struct harness_rank *r))
{
    struct harness_team team = {.options = options, .fn = fn};
    if (options->nranks == 0 || options->nranks > HARNESS_MAX_RANKS ||
        shared_new(&team.shared) != 0)
        return 1;
    struct harness_watch w = {.options = options, .died = on_death, .ctx = team.shared};
    start_ranks(&w, &team);
    harness_watch_until_end(&w);
    for (uint32_t i = 0; i < options->nranks; i++)
        if (team.shared->reports[i][0])
            fprintf(stderr, "# harness: rank %u of %u: %s\n", i, options->nranks,
                    team.shared->reports[i]);
    return w.failed;
}

const void *harness_scratch(void)
{
    return last_run ? last_run->scratch : NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank of the rig does (services, groups, the thread that aborts) and what the parent does
 * (fork, collect). The rendezvous is rig_store.c, the watch over the processes rig_watch.c. One
 * anonymous shared mapping, made before the ranks, holds all that they share; it is replaced at the
 * next rig_run, so runs never see each other.
 */
#include "backend_rig.h"
#include "base/names.h"
#include "reduce.h"
#include "rig_store.h"
#include "rig_watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
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

/* What a service thread is told. */
enum order { ORDER_NONE, ORDER_ABORT, ORDER_LEAVE };

struct rig_shared {
    _Atomic uint32_t orders[RIG_MAX_RANKS]; /* futexes of the service threads */
    _Atomic uint64_t abort_ns;
    _Atomic uint32_t arrived, turn; /* rig_sync */
    _Atomic pid_t pids[RIG_MAX_RANKS];
    _Atomic uint64_t entered_ns[RIG_MAX_RANKS]; /* rig_exec; 0: in none */
    char reports[RIG_MAX_RANKS][1024];
    int results[RIG_MAX_RANKS];
    _Alignas(64) char scratch[SCRATCH_BYTES];
    struct rig_store store;
};

/* What a rank keeps to itself. */
struct rig_inside {
    struct rig_shared *shared;
    struct collrun_services services;
    pthread_t service;
    pthread_mutex_t lock; /* of groups: only what is open is aborted */
    struct rig_group *groups;
    pthread_t later;
    unsigned later_ms;
    bool later_runs;
};

/* A process of the run: one rank, or all of them as threads. */
struct rig_team {
    const struct rig_options *options;
    int (*fn)(struct rig_rank *r);
    struct rig_shared *shared;
    struct collrun_backend table;
    void *state;
};

static struct rig_shared *last_run;
static _Thread_local char last_error[1024];

/* ---- services ---- */

static void log_line(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    const struct rig_rank *r = ctx;
    if (level > COLLRUN_LOG_WARN && !getenv("RIG_VERBOSE"))
        return;
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "# rank %u: %s\n", r->rank, text);
}

static int store_error(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    va_list ap;
    va_start(ap, format);
    vsnprintf(last_error, sizeof(last_error), format, ap);
    va_end(ap);
    return status;
}

static const char *option(void *ctx, const char *key)
{
    const struct rig_rank *r = ctx;
    for (const char *const *s = r->options->settings; s && s[0]; s += 2)
        if (strcmp(s[0], key) == 0)
            return s[1];
    return NULL;
}

static int memory_kind(void *ctx, const void *ptr)
{
    (void)ctx;
    (void)ptr;
    return COLLRUN_MEMORY_HOST;
}

const char *rig_error(void)
{
    return last_error;
}

int rig_fail(struct rig_rank *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->inside->shared->reports[r->rank], sizeof(r->inside->shared->reports[0]), format,
              ap);
    va_end(ap);
    return 1;
}

static struct collrun_services services_for(struct rig_rank *speaker)
{
    return (struct collrun_services){.size = sizeof(struct collrun_services),
                                     .ctx = speaker,
                                     .log = log_line,
                                     .fail = store_error,
                                     .option = option,
                                     .memory_kind = memory_kind,
                                     .dtype_size = dtype_size,
                                     .dtype_name = dtype_name,
                                     .reduce = reduce_vectors};
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

void rig_sync(struct rig_rank *r)
{
    struct rig_shared *s = r->inside->shared;
    const uint32_t turn = atomic_load(&s->turn);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == r->nranks) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->turn, 1);
        futex_wake_all(&s->turn);
    }
    while (atomic_load(&s->turn) == turn)
        futex_wait_ms(&s->turn, turn, 1000);
}

uint64_t rig_inside_ms(const struct rig_rank *r, uint32_t rank)
{
    const uint64_t entered = atomic_load(&r->inside->shared->entered_ns[rank]);
    return entered ? (rig_now_ns() - entered) / 1000000 : 0;
}

bool rig_is_gone(const struct rig_rank *r, uint32_t rank)
{
    const pid_t pid = atomic_load(&r->inside->shared->pids[rank]);
    return pid > 0 && kill(pid, 0) != 0;
}

void rig_kill(struct rig_rank *r, uint32_t rank)
{
    const pid_t pid = atomic_load(&r->inside->shared->pids[rank]);
    if (pid > 0 && !r->options->threads)
        kill(pid, SIGKILL);
}

/* The first order stands. */
static void give_order(_Atomic uint32_t *order, uint32_t value)
{
    uint32_t none = ORDER_NONE;
    if (atomic_compare_exchange_strong(order, &none, value))
        futex_wake_all(order);
}

static void abort_everywhere(struct rig_shared *s)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong(&s->abort_ns, &none, rig_now_ns());
    for (uint32_t i = 0; i < RIG_MAX_RANKS; i++)
        give_order(&s->orders[i], ORDER_ABORT);
    rig_store_fail(&s->store);
}

void rig_abort_everywhere(struct rig_rank *r)
{
    abort_everywhere(r->inside->shared);
}

uint64_t rig_abort_ns(const struct rig_rank *r)
{
    return atomic_load(&r->inside->shared->abort_ns);
}

static void abort_groups(struct rig_rank *r)
{
    pthread_mutex_lock(&r->inside->lock);
    for (struct rig_group *g = r->inside->groups; g; g = g->next)
        if (r->backend->group_abort)
            r->backend->group_abort(g->handle);
    pthread_mutex_unlock(&r->inside->lock);
}

static void *service_main(void *arg)
{
    struct rig_rank *r = arg;
    _Atomic uint32_t *order = &r->inside->shared->orders[r->rank];
    while (atomic_load(order) == ORDER_NONE)
        futex_wait_ms(order, ORDER_NONE, 1000);
    if (atomic_load(order) == ORDER_ABORT)
        abort_groups(r);
    return NULL;
}

static void *later_main(void *arg)
{
    struct rig_rank *r = arg;
    const long ms = (long)r->inside->later_ms;
    const struct timespec delay = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
    abort_groups(r);
    return NULL;
}

void rig_abort_after(struct rig_rank *r, unsigned delay_ms)
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

static void describe_hosts(const struct rig_options *o, const uint32_t *members, uint32_t nmembers,
                           struct collrun_group_desc *desc, uint32_t *host_of)
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

static struct rig_group *group_new(struct rig_rank *r, uint32_t nmembers)
{
    struct rig_group *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->backend = r->backend;
    g->owner = r;
    g->nranks = nmembers;
    g->timeout_ns = r->options->timeout_ns ? r->options->timeout_ns : 10 * SECOND;
    return g;
}

static void group_publish(struct rig_rank *r, struct rig_group *g)
{
    pthread_mutex_lock(&r->inside->lock);
    g->next = r->inside->groups;
    r->inside->groups = g;
    pthread_mutex_unlock(&r->inside->lock);
    if (atomic_load(&r->inside->shared->orders[r->rank]) == ORDER_ABORT && r->backend->group_abort)
        r->backend->group_abort(g->handle);
}

static int open_group(struct rig_rank *r, const char *name, const uint32_t *members,
                      uint32_t nmembers, void *sibling, struct rig_group **out)
{
    const struct rig_options *o = r->options;
    struct rig_group *g = group_new(r, nmembers);
    if (!g)
        return COLLRUN_ERR_NO_MEMORY;
    uint32_t host_of[RIG_MAX_RANKS];
    while (g->rank < nmembers && members[g->rank] != r->rank)
        g->rank++;
    if (g->rank == nmembers) {
        free(g);
        return store_error(r, COLLRUN_ERR_NOT_MEMBER, "%s: rank %u is not a member", name, r->rank);
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
        .sibling = sibling,
    };
    describe_hosts(o, members, nmembers, &desc, host_of);
    struct rig_meeting meeting;
    rig_meeting_open(&meeting, &r->inside->shared->store, &desc,
                     o->rendezvous_ns ? o->rendezvous_ns : 10 * SECOND);
    desc.rendezvous = &meeting.rendezvous;
    const int status = r->backend->group_open(r->state, &desc, &g->handle);
    rig_meeting_close(&meeting);
    if (status != COLLRUN_OK) {
        free(g);
        return status;
    }
    group_publish(r, g);
    *out = g;
    return COLLRUN_OK;
}

int rig_group_open(struct rig_rank *r, const char *name, const uint32_t *members, uint32_t nmembers,
                   struct rig_group **out)
{
    return open_group(r, name, members, nmembers, NULL, out);
}

int rig_group_open_beside(struct rig_group *first, const char *name, const uint32_t *members,
                          struct rig_group **out)
{
    return open_group(first->owner, name, members, first->nranks, first->handle, out);
}

void rig_group_close(struct rig_group *group)
{
    struct rig_inside *inside = group->owner->inside;
    pthread_mutex_lock(&inside->lock);
    struct rig_group **link = &inside->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_mutex_unlock(&inside->lock);
    group->backend->group_close(group->handle);
    free(group);
}

int rig_wait(struct rig_group *group, void *request)
{
    int status;
    while ((status = group->backend->test(group->handle, request)) == COLLRUN_AGAIN)
        sched_yield();
    return status;
}

static int start_and_wait(struct rig_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    void *request = NULL;
    const int status = g->backend->start(g->handle, calls, ncalls, &request);
    return status == COLLRUN_OK ? rig_wait(g, request) : status;
}

int rig_exec(struct rig_group *group, const struct collrun_call *calls, uint32_t ncalls)
{
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
    atomic_store(entered, rig_now_ns());
    const int status = group->backend->exec ? group->backend->exec(group->handle, copy, ncalls)
                                            : start_and_wait(group, copy, ncalls);
    atomic_store(entered, 0);
    if (copy != few)
        free(copy);
    return status;
}

/* ---- one rank ---- */

static int run_in_group(struct rig_rank *r, int (*fn)(struct rig_rank *r))
{
    if (r->options->no_group)
        return fn(r);
    uint32_t all[RIG_MAX_RANKS];
    for (uint32_t i = 0; i < r->nranks; i++)
        all[i] = i;
    const int status = rig_group_open(r, "world", all, r->nranks, &r->group);
    if (status != COLLRUN_OK)
        return rig_fail(r, "group_open: %d: %s", status, rig_error());
    const int result = fn(r);
    if (r->inside->later_runs) {
        pthread_join(r->inside->later, NULL);
        r->inside->later_runs = false;
    }
    rig_group_close(r->group);
    return result;
}

static int rank_main(struct rig_team *team, uint32_t rank)
{
    struct rig_inside inside = {
        .shared = team->shared,
        .services = services_for(NULL),
    };
    struct rig_rank r = {
        .rank = rank,
        .nranks = team->options->nranks,
        .backend = &team->table,
        .state = team->state,
        .options = team->options,
        .arg = team->options->arg,
        .scratch = team->shared->scratch,
        .inside = &inside,
    };
    inside.services.ctx = &r;
    pthread_mutex_init(&inside.lock, NULL);
    if (pthread_create(&inside.service, NULL, service_main, &r) != 0)
        return rig_fail(&r, "no thread: %s", strerror(errno));
    const int result = run_in_group(&r, team->fn);
    give_order(&team->shared->orders[rank], ORDER_LEAVE);
    pthread_join(inside.service, NULL);
    if (inside.later_runs)
        pthread_join(inside.later, NULL);
    pthread_mutex_destroy(&inside.lock);
    return result;
}

/* ---- a process ---- */

static int team_problem(struct rig_team *team, uint32_t rank, const char *what, const char *text)
{
    snprintf(team->shared->reports[rank], sizeof(team->shared->reports[0]), "%s: %.900s", what,
             text);
    return 1;
}

/* Loads the .so as the registry does: copies what it knows into a complete, zeroed table. */
static int team_load(struct rig_team *team, uint32_t rank)
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

static int team_open(struct rig_team *team, uint32_t rank)
{
    static struct rig_rank speaker; /* of probe and open, which speak for no group */
    static struct collrun_services services;
    speaker = (struct rig_rank){.rank = rank, .options = team->options};
    services = services_for(&speaker);
    char why[256] = "";
    if (team_load(team, rank) != 0)
        return 1;
    if (team->table.probe && team->table.probe(&services, why, sizeof(why)) != COLLRUN_OK)
        return team_problem(team, rank, "unavailable", why);
    if (team->table.open && team->table.open(&services, &team->state) != COLLRUN_OK)
        return team_problem(team, rank, "open", rig_error());
    return 0;
}

struct rank_thread {
    pthread_t thread;
    struct rig_team *team;
    uint32_t rank;
};

static void *rank_thread_main(void *arg)
{
    const struct rank_thread *t = arg;
    t->team->shared->results[t->rank] = rank_main(t->team, t->rank);
    return NULL;
}

static int run_threads(struct rig_team *team)
{
    static struct rank_thread threads[RIG_MAX_RANKS];
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

static _Noreturn void child_main(struct rig_team *team, uint32_t rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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
    exit(result != 0);
}

/* ---- the parent ---- */

static int shared_new(struct rig_shared **out)
{
    if (last_run)
        munmap(last_run, sizeof(*last_run));
    last_run = NULL;
    struct rig_shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED)
        return -1;
    rig_store_init(&s->store);
    *out = last_run = s;
    return 0;
}

static void on_death(void *shared)
{
    abort_everywhere(shared);
}

static void start_ranks(struct rig_watch *w, struct rig_team *team)
{
    const uint32_t nprocs = team->options->threads ? 1 : team->options->nranks;
    fflush(NULL);
    for (uint32_t i = 0; i < nprocs; i++) {
        const pid_t pid = fork();
        if (pid == 0)
            child_main(team, i);
        rig_watch_add(w, pid);
    }
}

int rig_run(const struct rig_options *options, int (*fn)(struct rig_rank *r))
{
    struct rig_team team = {.options = options, .fn = fn};
    if (options->nranks == 0 || options->nranks > RIG_MAX_RANKS || shared_new(&team.shared) != 0)
        return 1;
    struct rig_watch w = {.options = options, .died = on_death, .ctx = team.shared};
    start_ranks(&w, &team);
    rig_watch_until_end(&w);
    for (uint32_t i = 0; i < options->nranks; i++)
        if (team.shared->reports[i][0])
            fprintf(stderr, "# rig: rank %u of %u: %s\n", i, options->nranks,
                    team.shared->reports[i]);
    return w.failed;
}

const void *rig_scratch(void)
{
    return last_run ? last_run->scratch : NULL;
}

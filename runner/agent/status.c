/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/status.h"

#include "agent/agent.h"
#include "agent/engine_query.h"
#include "agent/process.h"
#include "agent/ranks.h"
#include "base/exit_codes.h"
#include "base/mpi_names.h"
#include "base/network.h"
#include "base/reap.h"
#include "base/record_view.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    SEARCH_MAX = 1 << 16, /* the latest operations, in which pending ones are searched */
    PENDING_MAX = 4096,   /* of them */
    SLOT_MAX = 16         /* of them in one slot */
};

/* The operations that have not ended, oldest first. */
struct status_pending {
    struct record_view_op *ops; /* owned */
    uint32_t n;
    uint64_t called_ns[RECORD_THREADS]; /* the last call of each thread */
};

static void status_find_pending(struct status_pending *p, const struct record_view *v)
{
    uint64_t end = record_view_end(v), i = record_view_first(v);
    *p = (struct status_pending){.ops = calloc(PENDING_MAX, sizeof *p->ops)};
    for (i = end - i > SEARCH_MAX ? end - SEARCH_MAX : i; p->ops && i < end; i++) {
        struct record_view_op op;
        if (!record_view_op(v, i, &op))
            continue;
        if (op.thread < RECORD_THREADS && op.called_ns > p->called_ns[op.thread])
            p->called_ns[op.thread] = op.called_ns;
        bool pending = op.state == RECORD_POSTED || op.state == RECORD_STARTED;
        if (pending && op.is_current && p->n < PENDING_MAX)
            p->ops[p->n++] = op;
    }
}

static uint64_t status_age(uint64_t at_ns, uint64_t now)
{
    return at_ns && at_ns < now ? now - at_ns : 0;
}

static void status_put_pending(struct buf *b, const struct status_pending *p, uint32_t slot,
                               uint64_t now)
{
    struct buf ops;
    uint32_t n = 0;
    buf_init(&ops);
    for (uint32_t i = 0; i < p->n && n < SLOT_MAX; i++) {
        const struct record_view_op *op = &p->ops[i];
        if (op->slot != slot)
            continue;
        n++;
        uint64_t last = op->thread < RECORD_THREADS ? p->called_ns[op->thread] : op->called_ns;
        buf_put_u64(&ops, op->number);
        buf_put_u64(&ops, status_age(op->called_ns, now));
        buf_put_u64(&ops, status_age(last, now));
        buf_put_u64(&ops, op->count);
        buf_put_u32(&ops, (uint32_t)op->root_or_peer);
        buf_put_u32(&ops, op->tag);
        buf_put_u8(&ops, mpi_kind_pack(op->function, op->kind));
        buf_put_u8(&ops, (uint8_t)op->dtype);
        buf_put_u8(&ops, (uint8_t)op->op);
        buf_put_u64(&ops, op->site);
    }
    buf_put_u32(b, n);
    buf_put_buf(b, &ops);
    buf_fini(&ops);
}

/* A group that a failed call has ended keeps that call as its last one. It is over once the rank
 * has gone on since, unless another thread is still in the group. */
static void status_end_failed(struct record_view_group *g, const struct status_pending *p)
{
    bool pends = false;
    for (uint32_t i = 0; i < p->n; i++)
        pends = pends || p->ops[i].slot == g->slot;
    if (g->status && !pends)
        g->done = g->started;
}

static void status_put_group(struct buf *b, const struct record_view_group *g, uint64_t now)
{
    buf_put_str(b, g->name);
    buf_put_u64(b, g->started);
    buf_put_u64(b, g->done);
    buf_put_u64(b, g->bytes);
    buf_put_u64(b, status_age(g->since_ns, now));
    buf_put_u64(b, g->count);
    buf_put_u32(b, (uint32_t)g->root_or_peer);
    buf_put_u8(b, mpi_kind_pack(g->function, g->kind));
    buf_put_u8(b, (uint8_t)g->dtype);
    buf_put_u8(b, (uint8_t)g->op);
    buf_put_str(b, g->scope);
    buf_put_u32(b, g->members);
    buf_put_u32(b, g->rank);
    buf_put_u8(b, g->messages);
}

/* The open groups; returns how many. */
static uint32_t status_put_groups(struct buf *b, const struct rank_proc *p)
{
    struct record_view v;
    struct record_view_group g;
    struct status_pending pending;
    struct record_view_failure why;
    uint32_t n = 0;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK)
        return n;
    status_find_pending(&pending, &v);
    record_view_failure(&v, p->agent->aborted ? UINT64_MAX : RECORD_VIEW_RECENT_NS, &why);
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < record_view_ngroups(&v); i++) {
        if (!record_view_group(&v, i, &g) || !g.open)
            continue;
        n++;
        if (!why.status)
            status_end_failed(&g, &pending);
        status_put_group(b, &g, now);
        status_put_pending(b, &pending, i, now);
    }
    free(pending.ops);
    return n;
}

/* The workload that has ended the rank, those in their fini, and for how long. */
static void status_put_workloads(struct buf *b, const struct rank_proc *p)
{
    const struct record_head *r = p->record;
    const uint64_t in_fini = r ? atomic_load(&r->in_fini) : 0;
    buf_put_u32(b, r ? atomic_load_explicit(&r->ended_by, memory_order_relaxed) : 0);
    buf_put_u64(b, in_fini);
    buf_put_u64(b, in_fini ? status_age(atomic_load(&r->fini_since_ns), now_ns()) : 0);
}

void status_send(struct agent *a, const struct rank_proc *p)
{
    struct buf groups;
    buf_init(&groups);
    uint32_t n = p->record ? status_put_groups(&groups, p) : 0;
    pid_t parent;
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, p->exited ? 0 : (uint8_t)reap_state(p->pid, &parent));
    status_put_workloads(&b, p);
    buf_put_u32(&b, n);
    buf_put_buf(&b, &groups);
    conn_send_buf(&a->runner, WIRE_STATUS, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
    buf_fini(&groups);
}

/* ---- usage ---- */

#define USAGE_NS 1000000000ull       /* operations that ended within this time count */
enum { USAGE_SEARCH_MAX = 1 << 13 }; /* of the latest operations */

struct usage_group { /* of one slot */
    uint32_t operations;
    uint64_t sum_ns, longest_ns;
};

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
static void usage_put_process(struct buf *b, pid_t pid)
{
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    if (!after || sscanf(after + 1,
                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d "
                         "%*d %*d %*u %*u %ld",
                         &user, &system, &pages) != 3)
        user = system = 0, pages = 0;
    unsigned long long ticks = (unsigned long long)sysconf(_SC_CLK_TCK);
    buf_put_u64(b, (user + system) * 1000000 / ticks);
    buf_put_u64(b, (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* From the latest operation backwards, until one ended too long ago. */
static void usage_count(const struct record_view *v, struct usage_group *groups, uint32_t n)
{
    uint64_t first = record_view_first(v), end = record_view_end(v), now = now_ns();
    for (uint64_t i = end; i > first && end - i < USAGE_SEARCH_MAX; i--) {
        struct record_view_op op;
        if (!record_view_op(v, i - 1, &op) || !op.is_current || !op.ended_ns || op.slot >= n)
            continue;
        if (op.ended_ns + USAGE_NS < now)
            return;
        struct usage_group *g = &groups[op.slot];
        uint64_t ns = op.ended_ns > op.called_ns ? op.ended_ns - op.called_ns : 0;
        g->operations++;
        g->sum_ns += ns;
        g->longest_ns = ns > g->longest_ns ? ns : g->longest_ns;
    }
}

/* Returns how many groups were written. */
static uint32_t usage_put_groups(struct buf *b, const struct rank_proc *p)
{
    struct record_view v;
    struct record_view_group g;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK)
        return 0;
    uint32_t slots = record_view_ngroups(&v), n = 0;
    struct usage_group *groups = calloc(slots + 1, sizeof *groups);
    if (groups)
        usage_count(&v, groups, slots);
    for (uint32_t i = 0; groups && i < slots; i++) {
        if (!groups[i].operations || !record_view_group(&v, i, &g) || !g.open)
            continue;
        n++;
        buf_put_str(b, g.name);
        buf_put_u32(b, groups[i].operations);
        buf_put_u64(b, groups[i].sum_ns);
        buf_put_u64(b, groups[i].longest_ns);
    }
    free(groups);
    return n;
}

void usage_send(struct agent *a, const struct rank_proc *p)
{
    struct buf b, groups;
    buf_init(&b);
    buf_init(&groups);
    uint32_t n = p->record ? usage_put_groups(&groups, p) : 0;
    usage_put_process(&b, p->pid);
    buf_put_u32(&b, n);
    buf_put_buf(&b, &groups);
    conn_send_buf(&a->runner, WIRE_USAGE, p->rank, a->desc.attempt, &b);
    buf_fini(&groups);
    buf_fini(&b);
}

/* ---- stacks ---- */

#define SAMPLE_NS 250000000ull /* between the two samples; NETWORK is sent before the second */
enum { STACKS_MAX = 64 << 10 /* bytes of text */, STACKS_LIMIT_S = 8, STACKS_SITES = 16 };

/* One request for one rank. It frees itself after the answer. */
struct stacks {
    struct rank_proc *rank;
    struct process_sample before;
    struct process_sample after; /* the threads of the answer */
    struct buf text;             /* of collrun-stack, stdout and stderr */
    struct loop_timer timer;
    struct loop_fd watch;
    int fd; /* -1: collrun-stack does not run */
    bool threads;
    uint32_t nsites;
    char sites[STACKS_SITES][20]; /* addresses in hexadecimal */
};

static void stacks_free(struct stacks *s)
{
    struct loop *loop = s->rank->agent->loop;
    loop_timer_clear(loop, &s->timer);
    if (s->fd >= 0) {
        loop_unwatch(loop, &s->watch);
        close(s->fd);
    }
    s->rank->stacks = NULL;
    process_sample_fini(&s->before);
    process_sample_fini(&s->after);
    buf_fini(&s->text);
    free(s);
}

static void stacks_answer(struct stacks *s, const char *why)
{
    struct agent *a = s->rank->agent;
    const uint32_t n = s->after.n;
    struct wire_item_thread *threads = calloc(n + 1, sizeof *threads);
    struct buf b;
    for (uint32_t i = 0; threads && i < n; i++) {
        const struct process_thread *t = &s->after.threads[i];
        threads[i] = (struct wire_item_thread){.tid = (uint32_t)t->tid,
                                               .name = t->name,
                                               .state = (uint8_t)t->state,
                                               .use = process_sample_use(&s->before, &s->after, i),
                                               .call = t->call};
    }
    buf_init(&b);
    wire_put_stacks(&b, &(struct wire_stacks){.threads = {threads, threads ? n : 0},
                                              .stacks = {s->text.data, buf_pending(&s->text)},
                                              .why = why});
    if (!s->rank->exited && threads)
        conn_send_buf(&a->runner, WIRE_STACKS, s->rank->rank, a->desc.attempt, &b);
    buf_fini(&b);
    free(threads);
    stacks_free(s);
}

/* The output is stacks, or else a message. */
static void stacks_on_end(struct stacks *s)
{
    char why[256];
    size_t len = buf_pending(&s->text);
    const char *text = (const char *)s->text.data;
    bool stacks = len > 7 && (memcmp(text, "thread ", 7) == 0 || memcmp(text, "site ", 5) == 0);
    snprintf(why, sizeof why, "%.*s", (int)(len < 200 ? len : 200), len ? text : "");
    why[strcspn(why, "\n")] = '\0';
    if (stacks) {
        stacks_answer(s, "");
        return;
    }
    buf_clear(&s->text);
    stacks_answer(s, len ? why : "collrun-stack ended without an answer");
}

static void stacks_on_text(struct loop_fd *w, uint32_t events)
{
    struct stacks *s = w->owner;
    (void)events;
    char *room = buf_reserve(&s->text, 4096);
    ssize_t n = room ? read(s->fd, room, 4096) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_commit(&s->text, (size_t)n);
    if (n <= 0 || buf_pending(&s->text) > STACKS_MAX)
        stacks_on_end(s);
}

/* ---- collrun-stack ---- */

_Noreturn static void stacks_child_main(const struct stacks *s, const char *program, int out)
{
    char pid[16];
    const char *argv[STACKS_SITES + 4] = {"collrun-stack", s->threads ? "--pid" : "--sites", pid};
    sigset_t none;
    for (uint32_t i = 0; i < s->nsites; i++)
        argv[3 + i] = s->sites[i];
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(pid, sizeof pid, "%d", (int)s->rank->pid);
    engine_path_set_libraries(program);
    int null = open("/dev/null", O_RDONLY);
    alarm(STACKS_LIMIT_S); /* remains set after exec */
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2)
        execv(program, (char **)(uintptr_t)argv);
    _exit(EXIT_EXEC);
}

static void stacks_start(struct stacks *s)
{
    struct agent *a = s->rank->agent;
    char program[4096];
    int ends[2];
    if (!engine_path_beside(a->engine, "collrun-stack", program, sizeof program)) {
        stacks_answer(s, "collrun-stack is not installed");
        return;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        stacks_answer(s, "no descriptors are left");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        stacks_child_main(s, program, ends[1]);
    close(ends[1]);
    s->fd = ends[0];
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    s->watch = (struct loop_fd){.fd = -1, .ready = stacks_on_text, .owner = s};
    loop_watch(a->loop, &s->watch, s->fd, EPOLLIN); /* a failed fork is an end of file */
}

/* ---- samples ---- */

static void stacks_on_second_sample(struct loop_timer *t)
{
    struct stacks *s = t->owner;
    char proc[32];
    snprintf(proc, sizeof proc, "/proc/%d", (int)s->rank->pid);
    if (!s->rank->exited && process_sample_take(&s->after, proc))
        stacks_start(s);
    else
        stacks_free(s);
}

/* A line as collrun-stack writes it, of a call in Python. */
static void stacks_put_python_site(struct stacks *s, uint64_t site)
{
    char place[RECORD_VIEW_PATH], line[RECORD_VIEW_PATH + 32];
    const struct rank_proc *p = s->rank;
    struct record_view v;
    if (!p->record || record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK ||
        !record_view_python_site(&v, site, place))
        return;
    const int n = snprintf(line, sizeof line, "site %llx %s\n", (unsigned long long)site, place);
    buf_put(&s->text, line, (size_t)n);
}

/* Without threads there are no samples; and sites of Python alone need no collrun-stack. */
static void stacks_begin(struct stacks *s)
{
    char proc[32];
    struct agent *a = s->rank->agent;
    const struct rank_proc *p = s->rank;
    if (!s->threads && !s->nsites) {
        stacks_answer(s, "");
        return;
    }
    if (!s->threads) {
        stacks_start(s);
        return;
    }
    snprintf(proc, sizeof proc, "/proc/%d", (int)p->pid);
    process_sample_take(&s->before, proc);
    s->timer = (struct loop_timer){.fired = stacks_on_second_sample, .owner = s};
    loop_timer_set(a->loop, &s->timer, SAMPLE_NS);
}

/* NULL: the rank does not run, or an answer is on its way. */
static struct stacks *stacks_new(struct rank_proc *p)
{
    bool possible = p && p->pid && !p->exited && !p->stacks;
    struct stacks *s = possible ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    *s = (struct stacks){.rank = p, .fd = -1};
    p->stacks = s;
    buf_init(&s->text);
    return s;
}

static void stacks_read_rank(struct agent *a, const struct wire_item_look *look)
{
    struct stacks *s = stacks_new(ranks_find(a, look->rank));
    if (!s)
        return;
    for (uint32_t i = 0; i < look->sites.n; i++) {
        const uint64_t site = look->sites.items[i].address;
        if (site >= RECORD_PYTHON_SITE)
            stacks_put_python_site(s, site);
        else if (s->nsites < STACKS_SITES)
            snprintf(s->sites[s->nsites++], sizeof s->sites[0], "%llx", (unsigned long long)site);
    }
    s->threads = look->threads || !look->sites.n;
    stacks_begin(s);
}

/* ---- connections ---- */

static void stacks_answer_network(struct agent *a)
{
    struct network_fault worst = {.found = false};
    uint32_t rank = 0;
    char text[NETWORK_TEXT] = "";
    struct buf b;
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (network_end(&a->network.surveys[i], a->address, &worst))
            rank = i;
    }
    free(a->network.surveys);
    a->network.surveys = NULL;
    if (worst.found)
        network_fault_text(&worst, text);
    buf_init(&b);
    wire_put_network(&b, &(struct wire_network){a->address, text});
    conn_send_buf(&a->runner, WIRE_NETWORK, a->ranks[rank].rank, a->desc.attempt, &b);
    buf_fini(&b);
}

static void stacks_on_network(struct loop_timer *t)
{
    struct agent *a = t->owner;
    bool done = true;
    for (uint32_t i = 0; i < a->nranks; i++)
        done = network_poll(&a->network.surveys[i]) && done;
    if (done)
        stacks_answer_network(a);
    else
        loop_timer_set(a->loop, t, NETWORK_TICK_MS * 1000000ull);
}

static void stacks_begin_network(struct agent *a)
{
    struct stacks_network *n = &a->network;
    if (a->desc.nhosts < 2 || !a->nranks || n->surveys)
        return;
    n->surveys = calloc(a->nranks, sizeof *n->surveys);
    for (uint32_t i = 0; n->surveys && i < a->nranks; i++) {
        const struct rank_proc *p = &a->ranks[i];
        if (p->pid && !p->exited)
            network_begin(&n->surveys[i], p->member_pid ? p->member_pid : p->pid);
    }
    n->timer = (struct loop_timer){.fired = stacks_on_network, .owner = a};
    if (n->surveys)
        loop_timer_set(a->loop, &n->timer, NETWORK_TICK_MS * 1000000ull);
}

void stacks_on_read(struct agent *a, const struct wire_frame *f)
{
    struct wire_read_stacks ask;
    struct arena arena;
    arena_init(&arena);
    stacks_begin_network(a);
    if (wire_read_read_stacks(f, &arena, &ask))
        for (uint32_t i = 0; i < ask.ranks.n; i++)
            stacks_read_rank(a, &ask.ranks.items[i]);
    arena_fini(&arena);
}

void stacks_close(struct agent *a)
{
    if (a->network.surveys) {
        loop_timer_clear(a->loop, &a->network.timer);
        stacks_answer_network(a);
    }
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (a->ranks[i].stacks)
            stacks_free(a->ranks[i].stacks);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/stacks.h"

#include "agent/agent.h"
#include "agent/engine_query.h"
#include "agent/process.h"
#include "agent/ranks.h"
#include "base/exit_codes.h"
#include "base/network.h"
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

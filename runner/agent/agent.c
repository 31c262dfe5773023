/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's life: HELLO; a JOB; ranks; frames in both directions; exits; BYE; the end of the
 * stream. When a rank dies before it was told to, its neighbours hear of it from here at once, not
 * after a round trip to the runner.
 *
 * Stopping, whatever the reason (QUIT, the runner is gone, SIGTERM): ABORT to every rank, then
 * `grace`, then SIGKILL to every process, then every descendant is reaped. QUIT skips the grace:
 * the runner has already waited.
 */
#include "agent/agent.h"

#include "base/prompt.h"
#include "base/reap.h"

#include "build_id.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define FIRST_WORD_NS (60 * SECOND_NS) /* that the runner may take for its first ALIVE */

/* ---- to the runner ---- */

static void trouble(struct agent *a, const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    wire_put_diag(&b, d);
    conn_send(&a->runner, WIRE_TROUBLE, WIRE_HOST, a->desc.attempt, b.data, b.len);
    buf_fini(&b);
}

/* The boot and the network namespace: processes with both in common reach each other by loopback.
 */
static void put_machine(struct buf *out)
{
    char boot[64] = "", text[160];
    struct stat net;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(boot, sizeof boot, f))
        boot[0] = '\0';
    if (f)
        fclose(f);
    boot[strcspn(boot, "\n")] = '\0';
    if (!boot[0] || stat("/proc/self/ns/net", &net) < 0)
        text[0] = '\0';
    else
        snprintf(text, sizeof text, "%s/%llu", boot, (unsigned long long)net.st_ino);
    buf_put_str(out, text);
}

static void say_hello(struct agent *a)
{
    struct buf b;
    char host[65] = "";
    cpu_set_t cpus;
    struct timespec now;
    gethostname(host, sizeof host - 1);
    buf_init(&b);
    buf_put_str(&b, WIRE_MAGIC);
    buf_put_u32(&b, WIRE_VERSION);
    buf_put_str(&b, COLLRUN_BUILD_ID);
    buf_put_str(&b, host);
    buf_put_u32(&b, (uint32_t)getpid());
    buf_put_u32(&b, sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1);
    put_machine(&b);
    clock_gettime(CLOCK_REALTIME, &now);
    buf_put_u64(&b, (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec);
    conn_send(&a->runner, WIRE_HELLO, WIRE_HOST, 0, b.data, b.len);
    buf_fini(&b);
}

static void on_heartbeat(struct loop_timer *t)
{
    struct agent *a = t->owner;
    conn_send(&a->runner, WIRE_HEARTBEAT, WIRE_HOST, a->desc.attempt, NULL, 0);
    loop_timer_set(a->loop, t, SECOND_NS);
}

void agent_rank_output(struct rank_pipe *p, const void *bytes, size_t len)
{
    struct agent *a = p->proc->agent;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    a->credit -= len < a->credit ? len : a->credit;
    if (!conn_is_open(&a->runner))
        return;
    struct buf *out = conn_out(&a->runner);
    size_t mark = wire_begin(out, WIRE_OUTPUT, p->proc->rank, a->desc.attempt);
    buf_put_u8(out, p->stream);
    buf_put_u64(out, (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec);
    buf_put(out, bytes, len);
    wire_end(out, mark);
    conn_flush(&a->runner);
}

static void on_runner_closed(struct conn *c, const struct diag *why);

/* ---- to the ranks ---- */

static struct rank_proc *rank_find(struct agent *a, uint32_t rank)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (a->ranks[i].rank == rank)
            return &a->ranks[i];
    }
    return NULL;
}

static void send_to(struct agent *a, uint32_t rank, uint16_t type, const void *payload, size_t len)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if ((rank == WIRE_HOST || p->rank == rank) && p->spawned && !p->exited)
            conn_send(&p->control, type, p->rank, a->desc.attempt, payload, len);
    }
}

static void abort_ranks(struct agent *a, int status, uint32_t culprit, const char *sentence)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u32(&b, culprit);
    buf_put_str(&b, sentence);
    send_to(a, WIRE_HOST, WIRE_ABORT, b.data, b.len);
    buf_fini(&b);
    a->aborted = true;
}

static void signal_ranks(struct agent *a, uint32_t rank, int sig)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if ((rank == WIRE_HOST || p->rank == rank) && p->pid && !p->exited) {
            kill(-p->pid, sig); /* its session's group; not there yet right after the fork */
            kill(p->pid, sig);
        }
    }
}

/* ---- the end ---- */

/* When no rank runs any more: whatever they left behind goes, what they printed is sent, and the
 * runner hears BYE. */
static void finish_if_done(struct agent *a)
{
    if (!a->have_job || a->nrunning || a->bye_sent)
        return;
    if (!conn_is_open(&a->runner)) {
        loop_stop(a->loop);
        return;
    }
    reap_descendants(now_ns() + 5 * SECOND_NS);
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        bool out = p->spawned && rank_pipe_pump(&p->out),
             err = p->spawned && rank_pipe_pump(&p->err);
        if (out || err)
            return; /* CREDIT brings us back */
    }
    a->bye_sent = true;
    conn_send(&a->runner, WIRE_BYE, WIRE_HOST, a->desc.attempt, NULL, 0);
}

static void on_kill_timer(struct loop_timer *t)
{
    struct agent *a = t->owner;
    signal_ranks(a, WIRE_HOST, SIGKILL);
    finish_if_done(a);
    if (a->nrunning)
        loop_timer_set(a->loop, t, SECOND_NS);
}

static void stop(struct agent *a, const char *why, uint64_t grace_ns)
{
    if (!a->have_job) {
        loop_stop(a->loop);
        return;
    }
    if (!a->stopping && grace_ns) {
        abort_ranks(a, COLLRUN_ERR_ABORTED, WIRE_HOST, why);
        loop_timer_set(a->loop, &a->kill_timer, grace_ns);
    }
    a->stopping = true;
    if (!grace_ns)
        on_kill_timer(&a->kill_timer);
    finish_if_done(a);
}

/* ---- exits ---- */

static void describe_exit(const struct rank_proc *p, int status, const char *memory, char *text,
                          size_t size)
{
    const struct desc *desc = &p->agent->desc;
    const char *host = desc->hosts[p->agent->host].name;
    if (memory[0])
        snprintf(text, size,
                 "rank %u (%s, pid %d) was killed by the kernel for lack of memory (%s)", p->rank,
                 host, (int)p->pid, memory);
    else if (WIFSIGNALED(status))
        snprintf(text, size, "rank %u (%s, pid %d) was killed by signal %d (SIG%s)", p->rank, host,
                 (int)p->pid, WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(text, size, "rank %u (%s, pid %d) exited with code %d before it was done", p->rank,
                 host, (int)p->pid, WEXITSTATUS(status));
}

static void on_rank_exit(struct rank_proc *p, int status, const struct rusage *use)
{
    struct agent *a = p->agent;
    p->exited = true;
    a->nrunning--;
    /* What it still had to say (a FAILED, above all) goes before the news of its exit. */
    if (conn_is_open(&p->control))
        p->control.reader.ready(&p->control.reader, EPOLLIN);
    bool early = WIFSIGNALED(status) || WEXITSTATUS(status) || !p->idle;
    char memory[96] = "";
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !a->stopping)
        memory_was_short(&a->memory, memory, sizeof memory);
    if (early && !a->aborted && !p->failed && !a->desc.keep_going) {
        char text[256];
        describe_exit(p, status, memory, text, sizeof text);
        abort_ranks(a, COLLRUN_ERR_PEER_FAILED, p->rank, text);
    }
    rank_pipe_pump(&p->out);
    rank_pipe_pump(&p->err);
    conn_close(&p->control);
    segment_leave(&a->segments, p->rank, NULL);
    if (early)
        agent_tell_seen(a, p);
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u64(&b, (uint64_t)use->ru_utime.tv_sec * 1000000u + (uint64_t)use->ru_utime.tv_usec);
    buf_put_u64(&b, (uint64_t)use->ru_stime.tv_sec * 1000000u + (uint64_t)use->ru_stime.tv_usec);
    buf_put_u64(&b, (uint64_t)use->ru_maxrss * 1024u);
    buf_put_str(&b, memory);
    conn_send(&a->runner, WIRE_EXITED, p->rank, a->desc.attempt, b.data, b.len);
    buf_fini(&b);
}

static void reap_children(struct agent *a)
{
    struct rusage use;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &use)) > 0) {
        for (uint32_t i = 0; i < a->nranks; i++) {
            if (a->ranks[i].pid == pid && !a->ranks[i].exited)
                on_rank_exit(&a->ranks[i], status, &use);
        }
    }
    finish_if_done(a);
}

static void on_signal(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct agent *a = w->owner;
    struct signalfd_siginfo info;
    bool child = false, end = false;
    while (read(w->fd, &info, sizeof info) == sizeof info) {
        child = child || info.ssi_signo == SIGCHLD;
        end = end || info.ssi_signo != SIGCHLD;
    }
    if (child)
        reap_children(a);
    if (end)
        stop(a, "the host's collrun-agent was asked to end by a signal",
             a->desc.grace_ns ? a->desc.grace_ns : SECOND_NS);
}

/* ---- from the ranks ---- */

static void give_segment(struct rank_proc *p, const struct wire_frame *f)
{
    struct agent *a = p->agent;
    struct arena arena;
    struct reader r;
    struct diag d;
    int fd = -1;
    diag_init(&d);
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    const char *scope = read_str(&r, &arena), *key = read_str(&r, &arena);
    uint64_t len = read_u64(&r);
    int rc = reader_done(&r) ? segment_get(&a->segments, p->rank, scope, key, len, &fd, &d)
                             : diag_set(&d, COLLRUN_ERR_INVALID, "a SEGMENT that cannot be read");
    struct buf *out = conn_out(&p->control);
    if (rc == COLLRUN_OK)
        conn_attach_fd(&p->control, fd);
    size_t mark = wire_begin(out, WIRE_SEGMENT_FD, p->rank, a->desc.attempt);
    buf_put_str(out, scope);
    buf_put_str(out, key);
    buf_put_u32(out, (uint32_t)rc);
    if (rc != COLLRUN_OK)
        wire_put_diag(out, &d);
    wire_end(out, mark);
    conn_flush(&p->control);
    arena_fini(&arena);
}

static void left_scope(struct rank_proc *p, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    segment_leave(&p->agent->segments, p->rank, read_str(&r, &arena));
    arena_fini(&arena);
}

void agent_rank_frame(struct rank_proc *p, const struct wire_frame *f)
{
    struct agent *a = p->agent;
    if (f->type == WIRE_SEGMENT) {
        give_segment(p, f);
        return;
    }
    if (f->type < WIRE_ATTACHED || f->type > WIRE_WAITS)
        return; /* not a rank's to send */
    if (f->type == WIRE_LEAVE)
        left_scope(p, f);
    p->idle = p->idle || f->type == WIRE_IDLE;
    p->failed = p->failed || f->type == WIRE_FAILED;
    conn_send(&a->runner, f->type, p->rank, a->desc.attempt, f->payload, f->len);
}

/* ---- from the runner ---- */

static void fan_out(struct agent *a, const struct wire_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, sizeof(uint32_t));
    size_t ranks_at = r.pos;
    r.pos += n * sizeof(uint32_t);
    uint16_t type = read_u16(&r);
    if (r.bad)
        return;
    struct reader ranks;
    reader_init(&ranks, f->payload + ranks_at, n * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        send_to(a, read_u32(&ranks), type, f->payload + r.pos, f->len - r.pos);
}

static void take_credit(struct agent *a, const struct wire_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    a->credit += read_u32(&r);
    for (uint32_t i = 0; i < a->nranks && a->credit; i++) {
        if (a->ranks[i].spawned) {
            rank_pipe_pump(&a->ranks[i].out);
            rank_pipe_pump(&a->ranks[i].err);
        }
    }
    finish_if_done(a);
}

/* A link that is cut ends no stream: silence has to. */
static void on_silence(struct loop_timer *t)
{
    struct agent *a = t->owner;
    struct diag why;
    diag_set(&why, COLLRUN_ERR_TIMEOUT, "nothing has come from collrun for too long");
    conn_close(&a->runner);
    on_runner_closed(&a->runner, &why);
}

static void take_alive(struct agent *a, uint64_t limit_ns)
{
    if (limit_ns)
        loop_timer_set(a->loop, &a->silence, limit_ns);
    else
        loop_timer_clear(a->loop, &a->silence);
}

static void on_runner_frame(struct conn *c, const struct wire_frame *f)
{
    struct agent *a = c->owner;
    struct reader r;
    struct diag d;
    diag_init(&d);
    reader_init(&r, f->payload, f->len);
    switch (f->type) {
    case WIRE_JOB:
        if (agent_take_job(a, f, &d) != COLLRUN_OK)
            trouble(a, &d);
        finish_if_done(a);
        break;
    case WIRE_SIGNAL:
        signal_ranks(a, f->rank, (int)read_u32(&r));
        break;
    case WIRE_CREDIT:
        take_credit(a, f);
        break;
    case WIRE_MANY:
        fan_out(a, f);
        break;
    case WIRE_LOOK:
        for (uint32_t i = 0; i < a->nranks; i++) {
            if (a->ranks[i].pid && !a->ranks[i].exited)
                agent_tell_seen(a, &a->ranks[i]);
        }
        break;
    case WIRE_EXAMINE:
        examine_host(a, f);
        break;
    case WIRE_PROBE:
        examine_paths(a, f);
        break;
    case WIRE_ALIVE:
        take_alive(a, (uint64_t)read_u32(&r) * 1000000u);
        break;
    case WIRE_QUIT:
        stop(a, "", 0);
        break;
    default:
        if (f->type == WIRE_ABORT)
            a->aborted = true;
        if (f->type >= WIRE_REPLY && f->type <= WIRE_ABORT &&
            (f->rank == WIRE_HOST || rank_find(a, f->rank)))
            send_to(a, f->rank, f->type, f->payload, f->len);
    }
}

static void on_runner_closed(struct conn *c, const struct diag *why)
{
    (void)why;
    struct agent *a = c->owner;
    loop_timer_clear(a->loop, &a->heartbeat);
    loop_timer_clear(a->loop, &a->silence);
    a->credit = UINT64_MAX; /* output is read and dropped, so that no rank hangs on it */
    if (!a->nrunning)
        loop_stop(a->loop);
    else
        stop(a, "collrun itself is gone (killed, or the connection to it was lost)",
             a->desc.grace_ns);
}

/* ---- main ---- */

/* Every rank takes four descriptors of it. */
static void raise_file_limit(struct agent *a)
{
    getrlimit(RLIMIT_NOFILE, &a->files);
    struct rlimit most = {.rlim_cur = a->files.rlim_max, .rlim_max = a->files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
}

static int agent_init(struct agent *a, struct diag *d)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    raise_file_limit(a);
    memory_watch_init(&a->memory, "/proc/self/cgroup", "/sys/fs/cgroup");
    arena_init(&a->arena);
    a->loop = loop_new();
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!a->loop || fd < 0)
        return diag_sys(d, errno, "start collrun-agent");
    a->signals = (struct loop_fd){.fd = -1, .ready = on_signal, .owner = a};
    loop_watch(a->loop, &a->signals, fd, EPOLLIN);
    a->heartbeat = (struct loop_timer){.fired = on_heartbeat, .owner = a};
    a->silence = (struct loop_timer){.fired = on_silence, .owner = a};
    a->kill_timer = (struct loop_timer){.fired = on_kill_timer, .owner = a};
    a->runner.frame = on_runner_frame;
    a->runner.on_closed = on_runner_closed;
    a->runner.owner = a;
    return conn_open(&a->runner, a->loop, STDIN_FILENO, STDOUT_FILENO, d);
}

int agent_main(void)
{
    struct agent a = {0};
    struct diag d;
    diag_init(&d);
    if (agent_init(&a, &d) != COLLRUN_OK) {
        fprintf(stderr, "collrun-agent: %s\n", d.text);
        return 125;
    }
    prompt_thread();
    say_hello(&a);
    loop_timer_set(a.loop, &a.silence, FIRST_WORD_NS);
    loop_timer_set(a.loop, &a.heartbeat, SECOND_NS);
    loop_run(a.loop);
    bool clean = reap_descendants(now_ns() + 5 * SECOND_NS);
    for (uint32_t i = 0; i < a.nranks; i++)
        rank_close(&a.ranks[i]);
    segment_leave(&a.segments, 0, NULL);
    conn_drain(&a.runner, now_ns() + SECOND_NS);
    conn_close(&a.runner);
    loop_free(a.loop);
    arena_fini(&a.arena);
    return clean ? 0 : 1;
}

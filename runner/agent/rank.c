/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank: fork, exec of collrun-engine with its control socket on descriptor 3, its output in two
 * pipes, in a session of its own. It dies with the agent (PDEATHSIG, checked again against the race
 * with an agent that died before). What goes wrong between fork and exec is told on the control
 * socket, in the rank's name, like any later failure.
 */
#include "agent/agent.h"

#include "base/parse.h"
#include "base/template.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

/* ---- in the child ---- */

static void unset_matching(const char *pattern)
{
    for (char **e = environ; e && *e;) {
        char name[256];
        size_t len = strcspn(*e, "=");
        if (len >= sizeof name)
            len = sizeof name - 1;
        memcpy(name, *e, len);
        name[len] = '\0';
        if (fnmatch(pattern, name, 0) == 0 && unsetenv(name) == 0)
            continue;
        e++;
    }
}

static int apply_environment(const struct rank_proc *p, struct diag *d)
{
    const struct desc *desc = &p->agent->desc;
    const struct desc_rank *me = &desc->ranks[p->rank];
    struct template_values values = {.rank = p->rank,
                                     .local_rank = me->local_rank,
                                     .attempt = desc->attempt,
                                     .host = desc->hosts[me->host].name,
                                     .run_id = desc->run_id};
    struct arena arena;
    arena_init(&arena);
    for (uint32_t i = 0; i < desc->env_pass.n; i++)
        setenv(desc->env_pass.items[i].key, desc->env_pass.items[i].value, 1);
    for (uint32_t i = 0; i < desc->env_unset.n; i++)
        unset_matching(desc->env_unset.items[i].key);
    for (uint32_t i = 0; i < desc->env_set.n; i++) {
        const struct desc_kv *kv = &desc->env_set.items[i];
        const char *value;
        if (template_expand(kv->value, &values, &arena, &value, d) != COLLRUN_OK) {
            d->loc = kv->loc;
            return diag_wrap(d, "env.set.%s", kv->key);
        }
        setenv(kv->key, value, 1);
    }
    if (p->gpus)
        setenv("CUDA_VISIBLE_DEVICES", p->gpus, 1);
    arena_fini(&arena);
    return COLLRUN_OK;
}

/* Binds to a list; to those of it that may be used anyway, if it is what a GPU is near to. */
static int bind_cpus(const char *cpus, bool within, struct diag *d)
{
    cpu_set_t set, usable;
    CPU_ZERO(&set);
    for (const char *p = cpus; *p;) {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long c = first; c <= last && c < CPU_SETSIZE; c++)
            CPU_SET(c, &set);
        p = *end == ',' ? end + 1 : "";
    }
    if (within && sched_getaffinity(0, sizeof usable, &usable) == 0)
        CPU_AND(&set, &set, &usable);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        return diag_sys(d, errno, "bind to cpus %s", cpus);
    return COLLRUN_OK;
}

/* Descriptors: out of the way first, for any of them may stand where another has to go. */
static int arrange_descriptors(int control, int out, int err, int record, struct diag *d)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int high[5] = {fcntl(null, F_DUPFD_CLOEXEC, 10), fcntl(out, F_DUPFD_CLOEXEC, 10),
                   fcntl(err, F_DUPFD_CLOEXEC, 10), fcntl(control, F_DUPFD_CLOEXEC, 10),
                   fcntl(record, F_DUPFD_CLOEXEC, 10)};
    for (int i = 0; i < 5; i++) {
        if (high[i] < 0 || dup2(high[i], i) < 0)
            return diag_sys(d, errno, "arrange the descriptors of a rank");
    }
    return COLLRUN_OK;
}

static int prepare_child(struct rank_proc *p, pid_t parent, struct diag *d)
{
    const struct desc *desc = &p->agent->desc;
    const struct desc_rank *me = &desc->ranks[p->rank];
    const char *workdir = desc->hosts[me->host].workdir;
    sigset_t none;
    sigemptyset(&none);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(125);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_NOFILE, &p->agent->files);
    if (workdir[0] && chdir(workdir) < 0)
        return diag_sys(d, errno, "workdir %s", workdir);
    const char *cpus = p->near[0] ? p->near : me->cpus;
    if (cpus[0] && bind_cpus(cpus, p->near[0], d) != COLLRUN_OK)
        return d->code;
    return apply_environment(p, d);
}

void rank_private_libraries(const char *engine)
{
    char path[8192], *old = getenv("LD_LIBRARY_PATH");
    const char *slash = strrchr(engine, '/');
    int dir = slash ? (int)(slash - engine) : 0;
    int n = snprintf(path, sizeof path, "%.*s/../../lib/collrun/private", dir, engine);
    if (n < 0 || (size_t)n >= sizeof path || access(path, X_OK) < 0)
        return;
    if (old && *old)
        snprintf(path + n, sizeof path - (size_t)n, ":%s", old);
    setenv("LD_LIBRARY_PATH", path, 1);
}

/* Tells the runner, through the control socket, why there is no rank. */
_Noreturn static void fail_child(const struct rank_proc *p, const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_FAILED, p->rank, 0);
    buf_put_u32(&b, UINT32_MAX);
    buf_put_u32(&b, WIRE_PHASE_LOAD);
    buf_put_str(&b, "");
    buf_put_u64(&b, 0);
    wire_put_diag(&b, d);
    wire_end(&b, mark);
    ssize_t n = write(WIRE_CONTROL_FD, b.data, b.len);
    _exit(n < 0 ? 125 : 127);
}

_Noreturn static void child_main(struct rank_proc *p, pid_t parent, const char *engine,
                                 const int fds[4])
{
    struct diag d;
    diag_init(&d);
    if (arrange_descriptors(fds[0], fds[1], fds[2], fds[3], &d) != COLLRUN_OK)
        _exit(125);
    if (prepare_child(p, parent, &d) == COLLRUN_OK) {
        rank_private_libraries(engine);
        execl(engine, "collrun-engine", (char *)NULL);
        diag_sys(&d, errno, "start %s", engine);
    }
    fail_child(p, &d);
}

/* ---- in the agent ---- */

bool rank_pipe_pump(struct rank_pipe *p)
{
    unsigned char bytes[65536];
    struct loop *loop = p->proc->agent->loop;
    while (p->fd >= 0) {
        uint64_t room = p->proc->agent->credit;
        if (!room) {
            loop_unwatch(loop, &p->watch);
            return true;
        }
        ssize_t n = read(p->fd, bytes, room < sizeof bytes ? room : sizeof bytes);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (p->watch.fd < 0)
                loop_watch(loop, &p->watch, p->fd, EPOLLIN);
            return true;
        }
        if (n > 0) {
            agent_rank_output(p, bytes, (size_t)n);
            continue;
        }
        loop_unwatch(loop, &p->watch);
        close(p->fd);
        p->fd = -1;
    }
    return false;
}

static void on_pipe(struct loop_fd *w, uint32_t events)
{
    (void)events;
    rank_pipe_pump(w->owner);
}

static void on_control_closed(struct conn *c, const struct diag *why)
{
    /* The rank closed its socket: it is exiting, or it will not hear ABORT any more. Its exit
     * status tells the rest. */
    (void)c;
    (void)why;
}

static void on_control_frame(struct conn *c, const struct wire_frame *f)
{
    agent_rank_frame(c->owner, f);
}

static void pipe_open(struct rank_proc *p, struct rank_pipe *rp, uint8_t stream, int fd)
{
    *rp = (struct rank_pipe){
        .fd = fd, .watch = {.fd = -1, .ready = on_pipe, .owner = rp}, .proc = p, .stream = stream};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    loop_watch(p->agent->loop, &rp->watch, fd, EPOLLIN);
}

static void close_pair(int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

int rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome, struct diag *d)
{
    int control[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, record = record_make();
    p->out.fd = p->err.fd = -1;
    if (record < 0) {
        diag_sys(d, -record, "make the record of rank %u", p->rank);
        goto fail;
    }
    p->record = record_map(record);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0 ||
        pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) {
        diag_sys(d, errno, "make the pipes of rank %u", p->rank);
        if (errno == EMFILE)
            diag_hint(
                d, "raise the hard limit of open files (ulimit -Hn): a rank takes four descriptors "
                   "of its host's agent");
        goto fail;
    }
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid == 0)
        child_main(p, parent, engine, (int[]){control[1], out[1], err[1], record});
    if (p->pid < 0) {
        p->pid = 0;
        diag_sys(d, errno, "fork rank %u", p->rank);
        goto fail;
    }
    close(control[1]);
    close(out[1]);
    close(err[1]);
    close(record);
    p->spawned = true;
    pipe_open(p, &p->out, 1, out[0]);
    pipe_open(p, &p->err, 2, err[0]);
    p->control.frame = on_control_frame;
    p->control.on_closed = on_control_closed;
    p->control.owner = p;
    int rc = conn_open(&p->control, p->agent->loop, control[0], control[0], d);
    if (rc == COLLRUN_OK)
        conn_send(&p->control, WIRE_WELCOME, p->rank, p->agent->desc.attempt, welcome->data,
                  welcome->len);
    return rc;
fail:
    close_pair(control);
    close_pair(out);
    close_pair(err);
    if (record >= 0)
        close(record);
    return d->code;
}

void rank_close(struct rank_proc *p)
{
    if (!p->spawned)
        return;
    conn_close(&p->control);
    if (p->record)
        munmap(p->record, sizeof *p->record);
    struct rank_pipe *pipes[2] = {&p->out, &p->err};
    for (int i = 0; i < 2; i++) {
        if (pipes[i]->fd < 0)
            continue;
        loop_unwatch(p->agent->loop, &pipes[i]->watch);
        close(pipes[i]->fd);
        pipes[i]->fd = -1;
    }
}

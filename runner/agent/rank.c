/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rank.h"

#include "agent/agent.h"
#include "agent/command.h"
#include "agent/engine_query.h"
#include "agent/placement.h"
#include "agent/rank_stdin.h"
#include "agent/uplink.h"
#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/reap.h"
#include "base/topology.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
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

enum { PART_SECONDS = 10 };

/* ---- in the child ---- */

/* Binds the rank to a list of CPUs, and its memory to their NUMA node. `within`: only to those that
 * this process may use, for the CPUs near a device or a share of all. */
static int rank_bind_cpus(const char *cpus, bool within, struct diag *d)
{
    struct cpus set = {0}, usable;
    cpus_add_list(&set, cpus);
    if (within && cpus_read(&usable, 0) == 0)
        cpus_keep(&set, &usable);
    if (sched_setaffinity(0, sizeof set, set.sets) < 0)
        return diag_sys(d, errno, "cannot bind the rank to cpus %s", cpus);
    memory_policy_set(memory_policy_node("/sys", &set));
    return COLLRUN_OK;
}

/* Duplicates all descriptors to high numbers first: any of them may have the number of another's
 * target. `in`: -1 = /dev/null. */
static int rank_arrange_descriptors(int in, const int fds[6], struct diag *d)
{
    if (in < 0)
        in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return diag_sys(d, errno, "/dev/null, the stdin of the rank");
    int high[7] = {fcntl(in, F_DUPFD_CLOEXEC, 10)};
    int n = fds[5] < 0 ? 6 : 7;
    for (int i = 1; i < n; i++)
        high[i] = fcntl(fds[i - 1], F_DUPFD_CLOEXEC, 10);
    for (int i = 0; i < n; i++) {
        if (high[i] < 0 || dup2(high[i], i) < 0)
            return diag_sys(d, errno, "cannot set up the descriptors of the rank");
    }
    return COLLRUN_OK;
}

/* processes.limits; above the hard limit only root may set one. */
static int rank_set_limits(const struct desc *desc, struct diag *d)
{
    static const struct {
        int resource;
        const char *key, *what, *option;
    } rows[DESC_LIMITS] = {{RLIMIT_STACK, "stack", "the size of the stack", "s"},
                           {RLIMIT_CORE, "core", "the size of a core file", "c"},
                           {RLIMIT_DATA, "memory", "the size of its memory", "d"}};
    for (int i = 0; i < DESC_LIMITS; i++) {
        const struct desc_limit *wanted = &desc->limits[i];
        struct rlimit limit;
        if (!wanted->loc.line)
            continue;
        getrlimit((__rlimit_resource_t)rows[i].resource, &limit);
        limit.rlim_cur = wanted->bytes == INT64_MAX ? RLIM_INFINITY : wanted->bytes;
        if (limit.rlim_cur > limit.rlim_max)
            limit.rlim_max = limit.rlim_cur;
        if (setrlimit((__rlimit_resource_t)rows[i].resource, &limit) == 0)
            continue;
        diag_sys(d, errno, "processes.limits.%s: cannot set %s", rows[i].key, rows[i].what);
        diag_hint(d, "ulimit -H%s is the largest one on this host", rows[i].option);
        d->loc = wanted->loc;
        return d->code;
    }
    return COLLRUN_OK;
}

/* When memory is short, the kernel kills a rank rather than the agent or the runner, which explain
 * it. */
static void rank_offer_to_oom_killer(void)
{
    static const char score[] = "300";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";
    bool lower = fd >= 0 && read(fd, text, sizeof text - 1) > 0 && atoi(text) < atoi(score);
    if (lower && pwrite(fd, score, sizeof score - 1, 0) < 0) {
        /* It keeps the score of the agent. */
    }
    if (fd >= 0)
        close(fd);
}

/* A new process group, for its signals; but the session of the agent, unless it has a terminal:
 * autogroup shares out CPUs by session, and a group whose threads mostly sleep on one CPU while
 * another polls elsewhere has so little weight there that a wake-up may take half a second. */
static void rank_enter_process_group(const struct rank_proc *p)
{
    if (rank_terminal_is_wanted(p))
        setsid();
    else
        setpgid(0, 0);
}

static int rank_prepare_child(struct rank_proc *p, pid_t parent, struct diag *d)
{
    const struct desc *desc = &p->agent->desc;
    const struct desc_rank *me = &desc->ranks[p->rank];
    const struct desc_host *host = &desc->hosts[me->host];
    sigset_t none;
    sigemptyset(&none);
    rank_enter_process_group(p);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_INTERNAL);
    prctl(PR_SET_PTRACER, parent); /* the agent's collrun-stack, where only ancestors may trace */
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_NOFILE, &p->agent->files);
    setrlimit(RLIMIT_FSIZE, &p->agent->file_size);
    setpriority(PRIO_PROCESS, 0, p->agent->nice);
    rank_offer_to_oom_killer();
    if (rank_set_limits(desc, d) != COLLRUN_OK)
        return d->code;
    if (host->workdir[0] && chdir(host->workdir) < 0) {
        diag_sys(d, errno, "workdir %s", host->workdir);
        d->loc = host->workdir_loc;
        return d->code;
    }
    if (p->command && command_enter_folder(p, d) != COLLRUN_OK)
        return d->code;
    const char *cpus = placement_cpus(p);
    if (cpus[0] && rank_bind_cpus(cpus, p->near[0], d) != COLLRUN_OK)
        return d->code;
    int rc = environment_apply(p, d);
    if (rank_terminal_is_wanted(p))
        rank_terminal_enter(p);
    return rc;
}

/* Reports on the control socket why the rank does not start. `started`: see rank_proc.started_fd.
 */
_Noreturn static void rank_fail_child(const struct rank_proc *p, int control, int started,
                                      const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_FAILED, p->rank, 0);
    wire_put_failed(
        &b,
        &(struct wire_failed){
            .workload = p->command ? (uint32_t)(p->command - p->agent->desc.workloads) : UINT32_MAX,
            .phase = WIRE_PHASE_LOAD,
            .subject = WIRE_SUBJECT_RANK,
            .why = *d});
    wire_end(&b, mark);
    ssize_t n = write(control, b.data, b.len);
    if (started >= 0 && write(started, "", 1) < 0)
        _exit(EXIT_INTERNAL);
    _exit(n < 0 ? EXIT_INTERNAL : p->command ? EXIT_LOAD : EXIT_EXEC);
}

/* fds[5]: for PMI, fds[6]: the writing end of rank_proc.started_fd; -1: it runs plugins. fds[7]:
 * its stdin; -1: /dev/null. */
_Noreturn static void rank_child_main(struct rank_proc *p, pid_t parent, const char *engine,
                                      const int fds[8])
{
    struct diag d;
    diag_init(&d);
    int started = fds[6] < 0 ? -1 : fcntl(fds[6], F_DUPFD_CLOEXEC, 10);
    if (rank_arrange_descriptors(fds[7], fds, &d) != COLLRUN_OK)
        rank_fail_child(p, fds[2], started, &d);
    if (rank_prepare_child(p, parent, &d) != COLLRUN_OK) {
        rank_fail_child(p, WIRE_CONTROL_FD, started, &d);
    } else if (p->command) {
        command_exec(p, engine, &d);
    } else {
        engine_path_set_libraries(engine);
        if (command_is_wrapped(p) && command_exec_engine(p, engine, &d) < 0)
            rank_fail_child(p, WIRE_CONTROL_FD, started, &d);
        char title[128]; /* for ps; its name remains collrun-engine */
        snprintf(title, sizeof title, "collrun-engine: rank %u of %u, %s", p->rank,
                 p->agent->desc.nranks, p->agent->desc.job_name);
        execl(engine, title, (char *)NULL);
        diag_sys(&d, errno, "cannot start %s", engine);
    }
    rank_fail_child(p, WIRE_CONTROL_FD, started, &d);
}

/* ---- in the agent ---- */

bool rank_pipe_pump(struct rank_pipe *p)
{
    unsigned char *const bytes = p->proc->agent->output;
    struct loop *loop = p->proc->agent->loop;
    /* Without the runner the credit has no end, and a rank may write faster than it is read. */
    const bool once = !conn_is_open(&p->proc->agent->runner);
    while (p->fd >= 0) {
        uint64_t room = p->proc->agent->credit;
        if (!room) {
            loop_unwatch(loop, &p->watch);
            return true;
        }
        ssize_t n = read(p->fd, bytes, room < AGENT_OUTPUT ? room : AGENT_OUTPUT);
        if (n > 0)
            uplink_send_output(p, bytes, (size_t)n);
        if (n > 0 && !once)
            continue;
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
            if (p->watch.fd < 0)
                loop_watch(loop, &p->watch, p->fd, EPOLLIN);
            return true;
        }
        loop_unwatch(loop, &p->watch);
        close(p->fd);
        p->fd = -1;
    }
    return false;
}

static void rank_on_pipe(struct loop_fd *w, uint32_t events)
{
    (void)events;
    rank_pipe_pump(w->owner);
}

/* The program was executed, which closes the pipe, or the child wrote a byte into it. */
static void rank_on_started(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct rank_proc *p = w->owner;
    char byte;
    ssize_t n = read(p->started_fd, &byte, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_unwatch(p->agent->loop, w);
    close(p->started_fd);
    p->started_fd = -1;
    if (n == 0)
        conn_send(&p->agent->runner, WIRE_STARTED, p->rank, p->agent->desc.attempt, NULL, 0);
}

void rank_check_started(struct rank_proc *p)
{
    if (p->started_fd >= 0)
        rank_on_started(&p->started, EPOLLIN);
}

static void rank_send_detached(struct rank_proc *p, const char *text)
{
    struct buf b;
    buf_init(&b);
    wire_put_detached(&b, &(struct wire_detached){text});
    conn_send_buf(&p->agent->runner, WIRE_DETACHED, p->rank, p->agent->desc.attempt, &b);
    buf_fini(&b);
}

/* A member that had closed the socket has exited: its code may be that of the engine. */
void rank_report_closed(struct rank_proc *p)
{
    char text[80];
    if (!p->record || !atomic_load(&p->record->closed) || p->closed_seconds > 2)
        return;
    snprintf(text, sizeof text, "has closed its connection to collrun (descriptor %d)",
             WIRE_CONTROL_FD);
    rank_send_detached(p, text);
}

static void rank_on_control_closed(struct conn *c, const struct diag *why)
{
    struct rank_proc *p = c->owner;
    struct diag d;
    /* A program that is no member may do with the descriptor as it likes. */
    if (p->command && !p->member)
        return;
    if (!why->code) { /* the rank is exiting, which decides; or it is not: rank_check_closed */
        p->closed_seconds = p->member && !p->idle && !p->failed;
        return;
    }
    diag_init(&d);
    diag_set(&d, why->code, "rank %u (pid %d): %s", p->rank, (int)p->pid, why->text);
    if (why->code == COLLRUN_ERR_INVALID)
        diag_hint(&d, "a workload wrote to descriptor %d, which it has not opened",
                  WIRE_CONTROL_FD);
    uplink_send_error(p->agent, &d);
}

/* The engine writes frames whole, so a part of one is what a workload has written. Frames of the
 * engine that follow would be taken for its rest, and the job would wait for them. A rank that is
 * stopped, or that the agent does not read from, may have more to send. */
void rank_check_frame(struct rank_proc *p)
{
    pid_t parent;
    if (!conn_is_open(&p->control) || p->exited)
        return;
    size_t len = buf_pending(&p->control.in);
    bool late = len > 0 && len == p->part_len && p->control.reader.fd >= 0;
    p->part_len = len;
    p->part_seconds = late && !strchr("Tt", reap_state(p->pid, &parent)) ? p->part_seconds + 1 : 0;
    if (p->part_seconds < PART_SECONDS)
        return;
    struct diag why;
    diag_init(&why);
    diag_set(&why, COLLRUN_ERR_INVALID,
             "the control stream carries part of a collrun frame, and nothing more for %d s",
             PART_SECONDS);
    conn_close(&p->control);
    rank_on_control_closed(&p->control, &why);
}

/* False: the process is not there, or has executed another program since it mapped its record. */
static bool rank_has_record(pid_t pid)
{
    char path[32], line[512];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, "/memfd:collrun-record") != NULL;
    if (f)
        fclose(f);
    return found;
}

static void rank_closed_text(const struct rank_proc *p, char *out, size_t size)
{
    char link[32], program[512] = "";
    pid_t parent;
    const char state = reap_state(p->member_pid, &parent);
    snprintf(link, sizeof link, "/proc/%d/exe", (int)p->member_pid);
    if (readlink(link, program, sizeof program - 1) < 0)
        program[0] = '\0';
    if (!state || strchr("ZX", state))
        snprintf(out, size,
                 "has ended without collrun_finalize: its process %d, a child, has exited",
                 (int)p->member_pid);
    else if (rank_has_record(p->member_pid))
        snprintf(out, size, "has closed its connection to collrun (descriptor %d)",
                 WIRE_CONTROL_FD);
    else
        snprintf(out, size, "has replaced itself by another program (exec of %s)", program);
}

/* A process that exits closes the socket first, so it gets a second. */
void rank_check_closed(struct rank_proc *p)
{
    char text[640];
    if (!p->closed_seconds || p->exited || p->closed_seconds++ != 2)
        return;
    rank_closed_text(p, text, sizeof text);
    rank_send_detached(p, text);
}

static void rank_on_control_frame(struct conn *c, const struct wire_frame *f)
{
    struct rank_proc *p = c->owner;
    p->agent->on_rank_frame(p, f);
}

static bool rank_watch(const struct rank_proc *p, struct loop_fd *w, int fd, struct diag *d)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    int err = -loop_watch(p->agent->loop, w, fd, EPOLLIN);
    if (err)
        diag_sys(d, err, "watch its output");
    return !err;
}

static bool rank_pipe_open(struct rank_proc *p, struct rank_pipe *rp, uint8_t stream, int fd,
                           struct diag *d)
{
    *rp = (struct rank_pipe){.fd = fd,
                             .watch = {.fd = -1, .ready = rank_on_pipe, .owner = rp},
                             .proc = p,
                             .stream = stream};
    return rank_watch(p, &rp->watch, fd, d);
}

static void rank_close_pair(int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* The process runs: watches its pipes and its control socket, and sends WELCOME. */
static int rank_connect(struct rank_proc *p, int out, int err, int control,
                        const struct buf *welcome, struct diag *d)
{
    p->spawned = true;
    p->started = (struct loop_fd){.fd = -1, .ready = rank_on_started, .owner = p};
    bool watched = p->started_fd < 0 || rank_watch(p, &p->started, p->started_fd, d);
    watched = rank_pipe_open(p, &p->out, 1, out, d) && watched;
    watched = rank_pipe_open(p, &p->err, 2, err, d) && watched;
    p->control.peer = "rank";
    p->control.frame = rank_on_control_frame;
    p->control.on_closed = rank_on_control_closed;
    p->control.owner = p;
    if (conn_open(&p->control, p->agent->loop, control, control, d) != COLLRUN_OK)
        return d->code;
    conn_send(&p->control, WIRE_WELCOME, p->rank, p->agent->desc.attempt, welcome->data,
              welcome->len);
    return watched ? COLLRUN_OK : d->code;
}

/* -1: errno is set. */
static int rank_open_sockets(const struct rank_proc *p, int control[2], int pmi[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0)
        return -1;
    if (!p->command)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pmi) < 0)
        return -1;
    /* The agent learns which process of the rank sends a command. */
    return setsockopt(pmi[0], SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
}

/* -1: errno is set. */
static int rank_open_pipes(const struct rank_proc *p, int out[2], int err[2], int started[2],
                           int in[2])
{
    if (p->command && pipe2(started, O_CLOEXEC) < 0)
        return -1;
    if (rank_terminal_is_wanted(p))
        return rank_terminal_open(&p->agent->desc.terminal, out, err, in);
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        return -1;
    return rank_stdin_is_wanted(p) ? pipe2(in, O_CLOEXEC) : 0;
}

static void rank_no_descriptors(const struct rank_proc *p, struct diag *d)
{
    int err = errno;
    diag_sys(d, err, "cannot create the control socket and the %s of rank %u",
             rank_terminal_is_wanted(p) ? "terminal" : "output pipes", p->rank);
    if (err == EMFILE)
        diag_hint(d,
                  "raise the hard limit of open files (ulimit -Hn): the agent of a host needs four "
                  "descriptors for each rank, six if it runs a command");
}

static void rank_map_record(struct rank_proc *p, int record)
{
    p->record = record_map(record);
    if (!p->record)
        return;
    p->record_len = record_len(p->record);
    task_survey_init(&p->survey, p->record, record);
    p->record->timed = p->agent->desc.trace || p->agent->desc.run_dir[0];
    p->record->debug_areas = debug_areas();
    p->record->debug_start_ns = debug_start_ns();
}

int rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome, struct diag *d)
{
    int control[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, started[2] = {-1, -1},
        pmi[2] = {-1, -1}, in[2] = {-1, -1};
    int record = record_make(p->rank, p->agent->desc.record_entries);
    p->out.fd = p->err.fd = p->started_fd = p->pmi.fd = -1;
    if (record < 0) {
        diag_sys(d, -record, "cannot create the flight recorder of rank %u", p->rank);
        goto fail;
    }
    rank_map_record(p, record);
    if (rank_open_sockets(p, control, pmi) < 0 || rank_open_pipes(p, out, err, started, in) < 0) {
        rank_no_descriptors(p, d);
        goto fail;
    }
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid == 0)
        rank_child_main(p, parent, engine,
                        (int[]){out[1], err[1], control[1], record, p->agent->hostmem, pmi[1],
                                started[1], in[0]});
    if (p->pid < 0) {
        p->pid = 0;
        diag_sys(d, errno, "cannot fork rank %u", p->rank);
        diag_hint_processes(d);
        goto fail;
    }
    debug_log(DEBUG_RANK, "rank %u runs as pid %d: %s", p->rank, (int)p->pid,
              p->command ? "a command" : engine);
    close(control[1]);
    close(out[1]);
    close(err[1]);
    close(record);
    if (in[0] >= 0)
        close(in[0]);
    rank_stdin_open(&p->in, p, in[1]);
    if (p->command) {
        close(started[1]);
        close(pmi[1]);
        pmi_open(&p->pmi, p, pmi[0]);
    }
    p->started_fd = started[0];
    return rank_connect(p, out[0], err[0], control[0], welcome, d);
fail:
    rank_close_pair(control);
    rank_close_pair(out);
    rank_close_pair(err);
    rank_close_pair(started);
    rank_close_pair(pmi);
    rank_close_pair(in);
    if (record >= 0)
        close(record);
    return d->code;
}

void rank_close(struct rank_proc *p)
{
    if (!p->spawned)
        return;
    rank_check_started(p);
    pmi_close(&p->pmi);
    rank_stdin_close(&p->in);
    conn_close(&p->control);
    record_unmap(p->record, p->record_len);
    struct rank_pipe *pipes[2] = {&p->out, &p->err};
    for (int i = 0; i < 2; i++) {
        if (pipes[i]->fd < 0)
            continue;
        loop_unwatch(p->agent->loop, &pipes[i]->watch);
        close(pipes[i]->fd);
        pipes[i]->fd = -1;
    }
}

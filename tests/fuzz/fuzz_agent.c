/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for what the agent of a host reads: frames of the runner, frames of its ranks,
 * and what programs write to their PMI socket. The input is a stream of frames: those of a type
 * that ranks send come from a rank of this host, PMI (a type of this file) are bytes of a program,
 * and all others come from the runner. A first byte that is odd starts a good job before. The
 * sanitizers and the time limit are the oracle.
 *
 * No process is started, no signal is sent, and no connection is made: the linker replaces the
 * functions below (--wrap).
 *
 * fuzz_agent --seeds FOLDER writes streams to start from.
 */
#include "agent/agent.c" /* agent_on_runner_frame, which only agent_main passes on */
#include "fuzz/seed_frames.h"
#include "fuzz/seed_record.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { PMI = 200, PID = 4711 };

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

/* ---- the system, which has no part in this ---- */

int __wrap_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig)
{
    (void)sig;
    must(pid == PID || pid == -PID, "only ranks get signals");
    return 0;
}

pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    errno = EAGAIN;
    return -1;
}

bool __wrap_reap_descendants(uint64_t until_ns);
bool __wrap_reap_descendants(uint64_t until_ns)
{
    (void)until_ns;
    return true;
}

int __wrap_tcp_connect(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns, int wake_fd,
                       int *fd);
int __wrap_tcp_connect(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns, int wake_fd,
                       int *fd)
{
    (void)to, (void)len, (void)deadline_ns, (void)wake_fd, (void)fd;
    return ECONNREFUSED;
}

int __wrap_address_resolve(const char *wanted, char *address, size_t address_size, char *interface,
                           size_t interface_size, struct diag *d);
int __wrap_address_resolve(const char *wanted, char *address, size_t address_size, char *interface,
                           size_t interface_size, struct diag *d)
{
    if (strcmp(wanted, "loopback") != 0)
        return diag_set(d, COLLRUN_ERR_NOT_FOUND, "no interface \"%s\"", wanted);
    snprintf(address, address_size, "127.0.0.1");
    snprintf(interface, interface_size, "lo");
    return COLLRUN_OK;
}

int __wrap_engine_path(const char *given, char *path, size_t size, struct diag *d);
int __wrap_engine_path(const char *given, char *path, size_t size, struct diag *d)
{
    (void)given, (void)d;
    snprintf(path, size, "/nowhere/collrun-engine");
    return COLLRUN_OK;
}

void __wrap_engine_query(struct agent *a, const char *engine, const char *option,
                         const char *argument, struct buf *answer);
void __wrap_engine_query(struct agent *a, const char *engine, const char *option,
                         const char *argument, struct buf *answer)
{
    (void)a, (void)engine, (void)option, (void)argument;
    buf_put(answer, "{}\n", 3);
}

int __wrap_master_reserve(struct master *m, const struct desc *of, const char *address,
                          struct diag *d);
int __wrap_master_reserve(struct master *m, const struct desc *of, const char *address,
                          struct diag *d)
{
    (void)of, (void)d;
    *m = (struct master){.address = address, .port = 29500, .fd = -1};
    return COLLRUN_OK;
}

static void open_stream(struct conn *c, struct loop *loop)
{
    struct diag d;
    must(conn_open(c, loop, eventfd(0, EFD_CLOEXEC), open("/dev/null", O_WRONLY | O_CLOEXEC), &d) ==
             COLLRUN_OK,
         "a stream opens");
}

static void ignore_frame(struct conn *c, const struct wire_frame *f)
{
    (void)c, (void)f;
}

static void ignore_end(struct conn *c, const struct diag *why)
{
    (void)c, (void)why;
}

/* The far end of the PMI socket of a rank is its `started_fd`. */
int __wrap_rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome,
                      struct diag *d);
int __wrap_rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome,
                      struct diag *d)
{
    int pmi[2], record = record_make(p->rank, 16);
    (void)engine, (void)welcome, (void)d;
    must(record >= 0 && (p->record = record_map(record)) != NULL, "there is memory");
    p->record_len = record_len(p->record);
    close(record);
    p->out.fd = p->err.fd = p->started_fd = p->pmi.fd = -1;
    p->pid = PID;
    p->spawned = true;
    p->control.frame = ignore_frame;
    p->control.on_closed = ignore_end;
    p->control.owner = p;
    open_stream(&p->control, p->agent->loop);
    rank_stdin_open(&p->in, p, open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!p->command)
        return COLLRUN_OK;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pmi) == 0,
         "there are sockets");
    pmi_open(&p->pmi, p, pmi[0]);
    p->started_fd = pmi[1];
    return COLLRUN_OK;
}

bool __wrap_rank_pipe_pump(struct rank_pipe *p);
bool __wrap_rank_pipe_pump(struct rank_pipe *p)
{
    (void)p;
    return false;
}

static void close_rank(struct rank_proc *p)
{
    if (!p->spawned)
        return;
    pmi_close(&p->pmi);
    if (p->started_fd >= 0)
        close(p->started_fd);
    rank_stdin_close(&p->in);
    conn_close(&p->control);
    record_unmap(p->record, p->record_len);
}

/* ---- streams to start from ---- */

struct seed_line {
    uint16_t type;
    uint32_t rank;
    const char *parts;
};

static const struct seed_line from_runner[] = {
    {WIRE_KEEPALIVE, WIRE_HOST, "4=30000 8=1000"},
    {WIRE_CREDIT, WIRE_HOST, "4=1048576"},
    {WIRE_MASTER, WIRE_HOST, "s=10.0.0.1 2=29500"},
    {WIRE_QUERY, WIRE_HOST, ""},
    {WIRE_MEASURE, WIRE_HOST, ""},
    {WIRE_LOOK, WIRE_HOST, "8=1"},
    {WIRE_STDIN, 2, "t=text 1=10"},
    {WIRE_STDIN, 2, ""},
    {WIRE_WINDOW, 2, "2=40 2=120"},
    {WIRE_READ_STACKS, WIRE_HOST, "4=1 4=2 1=1 4=1 8=0x401234"},
    {WIRE_READ_RECORDS, WIRE_HOST, ""},
    {WIRE_EXAMINE, WIRE_HOST,
     "s=loopback 1=1 4=1 s=/b.so s=CUDA_VISIBLE_DEVICES s=GPU 4=1 s=backend:/b.so 4=1 s=sh s= s=/"},
    {WIRE_PLACE, WIRE_HOST, "4=0 s= 1=1 4=0"},
    {WIRE_PROBE, WIRE_HOST, "4=1 s=127.0.0.1 2=29500"},
    {WIRE_MULTICAST, WIRE_HOST, "4=1 4=2 2=97 s=pmi:1 4=0 4=0 4=1 s=0:key s=value"},
    {WIRE_REPLY, 2, "s=world:0 s=key 4=0 s=value"},
    {WIRE_RANK_LOST, WIRE_HOST, "4=0 s=it-exited"},
    {WIRE_SIGNAL, WIRE_HOST, "4=15 1=0"},
    {WIRE_SIGNAL, WIRE_HOST, "4=10 1=1"},
    {WIRE_ABORT, WIRE_HOST, "4=0xfffffff6 4=0 s=rank-0-failed"},
    {WIRE_QUIT, WIRE_HOST, ""},
};
static const struct seed_line from_rank[] = {
    {WIRE_ATTACHED, 2, "4=4711"},
    {WIRE_JOIN, 2, "s=own:0 s=own 8=60000000000 4=1 4=2 s=shm-1 4=0"},
    {WIRE_PUT, 2, "s=own:0 s=key s=value"},
    {WIRE_GET, 2, "s=own:0 s=key"},
    {WIRE_FENCE, 2, "s=own:0 4=0"},
    {WIRE_LEAVE, 2, "s=own:0"},
    {WIRE_LOG, 2, "1=1 s=warning"},
    {WIRE_IDLE, 2, ""},
};
static const struct seed_line from_program[] = {
    {PMI, 2, "t=cmd=init 1=32 t=pmi_version=1 1=32 t=pmi_subversion=1 1=10"},
    {PMI, 2, "t=cmd=get_maxes 1=10 t=cmd=get_appnum 1=10 t=cmd=get_my_kvsname 1=10"},
    {PMI, 2, "t=cmd=get_universe_size 1=10"},
    {PMI, 2, "t=cmd=put 1=32 t=kvsname=k 1=32 t=key=a 1=32 t=value=b 1=10"},
    {PMI, 2, "t=cmd=barrier_in 1=10"},
    {PMI, 2, "t=cmd=get 1=32 t=kvsname=k 1=32 t=key=PMI_process_mapping 1=10"},
    {PMI, 2, "t=mcmd=spawn 1=10 t=nprocs=1 1=10 t=endcmd 1=10"},
    {PMI, 2, "t=cmd=abort 1=32 t=exitcode=3 1=10"},
    {PMI, 2, "t=cmd=finalize 1=10"},
};

static void seed_lines(const char *folder, const char *name, const struct seed_line *lines,
                       size_t n)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 1);
    for (size_t i = 0; i < n; i++)
        seed_frame(&b, lines[i].type, lines[i].rank, lines[i].parts);
    seed_write(folder, name, b.data, b.len);
    buf_fini(&b);
}

/* JOB for host b. */
static void put_job(struct buf *out)
{
    struct buf of;
    buf_init(&of);
    desc_encode(seed_desc(), &of);
    size_t mark = wire_begin(out, WIRE_JOB, WIRE_HOST, 0);
    seed_parts(out, 0, "4=1 s= 1=1");
    buf_put_blob(out, of.data, of.len);
    wire_end(out, mark);
    buf_fini(&of);
}

static void seed_job(const char *folder)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 0);
    put_job(&b);
    seed_frame(&b, WIRE_MASTER, WIRE_HOST, "s=10.0.0.1 2=29500");
    seed_write(folder, "job", b.data, b.len);
    buf_fini(&b);
}

#define SEED_LINES(folder, lines) seed_lines(folder, #lines, lines, sizeof(lines) / sizeof *(lines))

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc != 3 || strcmp((*argv)[1], "--seeds") != 0)
        return 0;
    seed_job((*argv)[2]);
    SEED_LINES((*argv)[2], from_runner);
    SEED_LINES((*argv)[2], from_rank);
    SEED_LINES((*argv)[2], from_program);
    exit(0);
}

/* ---- the agent ---- */

static void open_agent(struct agent *a)
{
    *a = (struct agent){.hostmem = -1, .master = {.fd = -1}};
    arena_init(&a->arena);
    must((a->loop = loop_new()) != NULL, "there is memory");
    a->heartbeat = (struct loop_timer){.fired = agent_on_heartbeat, .owner = a};
    a->silence = (struct loop_timer){.fired = agent_on_silence, .owner = a};
    a->kill_timer = (struct loop_timer){.fired = agent_on_kill_timer, .owner = a};
    a->runner.frame = agent_on_runner_frame;
    a->runner.on_closed = agent_on_runner_closed;
    a->runner.drained = agent_read_ranks_again;
    a->runner.owner = a;
    a->on_rank_frame = agent_on_rank_frame;
    open_stream(&a->runner, a->loop);
}

static void close_agent(struct agent *a)
{
    stacks_close(a);
    audit_sender_stop(&a->audit);
    cut_sender_stop(&a->cuts);
    trace_sender_stop(&a->trace);
    for (uint32_t i = 0; i < a->nranks; i++)
        close_rank(&a->ranks[i]);
    local_rdv_close(&a->rendezvous);
    for (uint32_t i = 0; a->pmi_keys && i < a->desc.nworkloads; i++)
        pmi_keys_fini(&a->pmi_keys[i]);
    cores_close(&a->cores);
    if (a->hostmem >= 0)
        close(a->hostmem);
    conn_close(&a->runner);
    loop_free(a->loop);
    arena_fini(&a->arena);
}

static void deliver_pmi(struct rank_proc *p, const struct wire_frame *f)
{
    char answers[4096];
    if (p->started_fd < 0 || p->pmi.fd < 0 ||
        send(p->started_fd, f->payload, f->len, MSG_NOSIGNAL) < 0)
        return;
    while (p->pmi.fd >= 0 && recv(p->pmi.fd, answers, 1, MSG_PEEK) > 0)
        p->pmi.watch.ready(&p->pmi.watch, EPOLLIN);
    while (f->attempt % 2 == 0 && recv(p->started_fd, answers, sizeof answers, 0) > 0)
        continue; /* others do not read what they have asked for */
}

static void deliver(struct agent *a, const struct wire_frame *f)
{
    bool of_rank = f->type == PMI || (f->type >= WIRE_ATTACHED && f->type < WIRE_REPLY);
    struct rank_proc *p = of_rank ? ranks_find(a, f->rank) : NULL;
    if (f->type == PMI && p && p->command)
        deliver_pmi(p, f);
    else if (p && p->spawned && conn_is_open(&p->control))
        agent_on_rank_frame(p, f);
    else if (!of_rank && conn_is_open(&a->runner))
        agent_on_runner_frame(&a->runner, f);
}

static void deliver_all(struct agent *a, const void *bytes, size_t len)
{
    struct buf in;
    struct wire_frame f;
    struct diag d;
    buf_init(&in);
    buf_put(&in, bytes, len);
    while (wire_next(&in, &f, &d) > 0) {
        deliver(a, &f);
        wire_next_done(&in, &f);
    }
    buf_fini(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct agent a;
    struct buf job;
    if (size == 0)
        return 0;
    open_agent(&a);
    buf_init(&job);
    if (data[0] & 1) {
        put_job(&job);
        seed_frame(&job, WIRE_MASTER, WIRE_HOST, "s=10.0.0.1 2=29500");
        deliver_all(&a, job.data, job.len);
        must(a.nranks == 1 && a.ranks[0].spawned, "a good job starts");
    }
    deliver_all(&a, data + 1, size - 1);
    buf_fini(&job);
    close_agent(&a);
    return 0;
}

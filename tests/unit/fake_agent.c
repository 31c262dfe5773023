/* SPDX-License-Identifier: Apache-2.0
 *
 * One poll loop serves the control sockets and output pipes of all ranks.
 */
#include "fake_agent.h"

#include "base/hostmem.h"
#include "base/loop.h"
#include "base/record.h"
#include "base/wire_fields.h"
#include "diagnose/wait_report.h"
#include "rendezvous/store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- building the job ---- */

void fake_init(struct fake_job *job, uint32_t nranks)
{
    struct diag d;
    *job = (struct fake_job){.limit_s = 120, .hostmem = -1};
    diag_init(&d);
    if (hostmem_make(nranks, &job->hostmem, &d) != COLLRUN_OK)
        abort();
    arena_init(&job->arena);
    struct desc *desc = &job->desc;
    desc->run_id = "run-7";
    desc->run_dir = "";
    desc->job_name = "test";
    desc->job_file = "/job.yaml";
    desc->interface = "default-route";
    desc->attempt = 3;
    desc->nhosts = 1;
    desc->hosts = arena_calloc(&job->arena, 1, sizeof *desc->hosts);
    desc->hosts[0] = (struct desc_host){.name = "here", .nranks = nranks, .workdir = ""};
    desc->nranks = nranks;
    desc->ranks = arena_calloc(&job->arena, nranks, sizeof *desc->ranks);
    for (uint32_t i = 0; i < nranks; i++)
        desc->ranks[i] = (struct desc_rank){.local_rank = i, .cpus = ""};
    desc->backends = job->backends;
    desc->groups = job->groups;
    desc->workloads = job->workloads;
    desc->start_timeout_ns = desc->rendezvous_timeout_ns = 5000000000u;
    desc->grace_ns = 1000000000u;
}

const char *fake_path(struct fake_job *job, const char *file)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = '\0';
    return strchr(file, '/') ? arena_strdup(&job->arena, file)
                             : arena_printf(&job->arena, "%s/plugins/%s", dirname(self), file);
}

const char *fake_engine(struct fake_job *job)
{
    return arena_printf(&job->arena, "%s../../libexec/collrun/collrun-engine", fake_path(job, ""));
}

void fake_option(struct fake_job *job, struct desc_kvs *kvs, const char *key, const char *value)
{
    struct desc_kv *grown = arena_calloc(&job->arena, kvs->n + 1, sizeof *grown);
    if (kvs->n)
        memcpy(grown, kvs->items, kvs->n * sizeof *grown);
    grown[kvs->n] = (struct desc_kv){
        .key = key, .value = value, .loc = {.line = 40 + kvs->n, .column = 9, .width = 3}};
    kvs->items = grown;
    kvs->n++;
}

static struct desc_ranks all_or(struct fake_job *job, const uint32_t *ranks, uint32_t n)
{
    uint32_t *items = arena_calloc(&job->arena, FAKE_RANKS, sizeof *items);
    for (uint32_t i = 0; i < FAKE_RANKS; i++)
        items[i] = ranks && i < n ? ranks[i] : i;
    return (struct desc_ranks){.items = items, .n = ranks ? n : job->desc.nranks};
}

struct desc_backend *fake_backend(struct fake_job *job, const char *name, const char *file)
{
    struct desc_backend *b = &job->backends[job->desc.nbackends++];
    *b = (struct desc_backend){
        .name = name, .path = fake_path(job, file), .loc = {.line = 20, .column = 3, .width = 5}};
    return b;
}

struct desc_group *fake_group(struct fake_job *job, const char *name, uint32_t backend,
                              const uint32_t *ranks, uint32_t n)
{
    struct desc_group *g = &job->groups[job->desc.ngroups++];
    *g = (struct desc_group){.name = name,
                             .backend = backend,
                             .timeout_ns = 60000000000u,
                             .loc = {.line = 10, .column = 3, .width = 5}};
    g->ranks = all_or(job, ranks, n);
    return g;
}

struct desc_workload *fake_workload(struct fake_job *job, const char *name, const char *file)
{
    struct desc_workload *w = &job->workloads[job->desc.nworkloads++];
    *w = (struct desc_workload){.name = name,
                                .plugin = fake_path(job, file),
                                .loc = {.line = 30, .column = 13, .width = 5}};
    w->ranks = all_or(job, NULL, 0);
    w->groups = arena_calloc(&job->arena, 4, sizeof *w->groups);
    for (uint32_t i = 0; i < job->desc.ngroups; i++)
        w->groups[w->ngroups++] = i;
    return w;
}

struct desc_workload *fake_simple(struct fake_job *job, uint32_t nranks, bool starts,
                                  const char *what)
{
    fake_init(job, nranks);
    fake_backend(job, starts ? "msgstart" : "msg", starts ? "msgstart.so" : "msg.so");
    fake_group(job, "world", 0, NULL, 0);
    struct desc_workload *w = fake_workload(job, "probe", "probe.so");
    fake_option(job, &w->params, "do", what);
    return w;
}

/* ---- starting ---- */

/* Executes a program as the agent does: with the memory of its record, too. */
static void become_program(const char *program, const char *argument, uint32_t rank)
{
    int record = fcntl(record_make(rank, RECORD_ENTRIES), F_DUPFD_CLOEXEC, RECORD_FD + 1);
    dup2(record, RECORD_FD);
    setenv("COLLRUN_CONTROL_FD", "3", 1);
    execl(program, program, argument, (char *)NULL);
}

/* Starts the engine or the program of a rank; returns its control socket and its output pipe. */
static pid_t spawn(struct fake_job *job, uint32_t rank, int *control_fd, int *output_fd)
{
    const char *engine = fake_engine(job);
    int hostmem = job->hostmem;
    int control[2], output[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) || pipe(output))
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(output[1], 1);
        dup2(output[1], 2);
        int fd = dup(control[1]);
        while (fd <= WIRE_CONTROL_FD && fd >= 0)
            fd = dup(fd);
        int memory = fcntl(hostmem, F_DUPFD, HOSTMEM_FD + 1);
        dup2(fd, WIRE_CONTROL_FD);
        dup2(memory, HOSTMEM_FD);
        for (int i = WIRE_CONTROL_FD + 1; i < 256; i++) {
            if (i != HOSTMEM_FD)
                close(i);
        }
        if (job->program)
            become_program(fake_path(job, job->program), job->program_argument, rank);
        else
            execl(engine, "collrun-engine", (char *)NULL);
        perror(engine);
        _exit(127);
    }
    close(control[1]);
    close(output[1]);
    *control_fd = control[0];
    *output_fd = output[0];
    return pid;
}

static void start_rank(struct fake_job *job, uint32_t rank)
{
    struct fake_rank *r = &job->ranks[rank];
    struct desc desc = job->desc;
    struct buf b, encoded;
    r->pid = spawn(job, rank, &r->control, &r->output);
    if (job->change_desc && rank == job->changed_rank)
        job->change_desc(&desc);
    buf_init(&encoded);
    desc_encode(&desc, &encoded);
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_WELCOME, rank, job->desc.attempt);
    wire_put_welcome(&b, &(struct wire_welcome){.rank = rank,
                                                .attempt = job->desc.attempt,
                                                .address = "127.0.0.1",
                                                .interface = "lo",
                                                .cpus = 2,
                                                .desc = {encoded.data, encoded.len}});
    wire_end(&b, mark);
    if (job->early_go)
        wire_put(&b, WIRE_GO, WIRE_HOST, job->desc.attempt, NULL, 0);
    if (send(r->control, b.data, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
        abort();
    buf_fini(&b);
    buf_fini(&encoded);
}

static int exit_code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int fake_send_garbage(const void *bytes, size_t len, char *printed, size_t size)
{
    struct fake_job job;
    int control, output, status = 0;
    size_t n = 0;
    ssize_t got;
    fake_init(&job, 1);
    pid_t pid = spawn(&job, 0, &control, &output);
    if (len && send(control, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        abort();
    shutdown(control, SHUT_WR);
    while ((got = read(output, printed + n, size - 1 - n)) > 0)
        n += (size_t)got;
    printed[n] = '\0';
    waitpid(pid, &status, 0);
    close(control);
    close(output);
    fake_fini(&job);
    return exit_code_of(status);
}

/* ---- frames to the ranks ---- */

static void send_frame(struct fake_job *job, uint32_t rank, uint16_t type, const void *payload,
                       size_t len)
{
    struct buf b;
    buf_init(&b);
    wire_put(&b, type, rank, job->desc.attempt, payload, len);
    if (job->ranks[rank].control >= 0 &&
        send(job->ranks[rank].control, b.data, b.len, MSG_NOSIGNAL) < 0)
        errno = 0; /* the rank has exited; reap() finds it */
    buf_fini(&b);
}

static void send_store_frame(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                             const struct buf *payload)
{
    for (uint32_t i = 0; i < n; i++)
        send_frame(ctx, ranks[i], type, payload->data, payload->len);
}

void fake_abort(struct fake_job *job, int status, uint32_t culprit, const char *error)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u32(&b, culprit);
    buf_put_str(&b, error);
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (i != culprit)
            send_frame(job, i, WIRE_ABORT, b.data, b.len);
    }
    buf_fini(&b);
}

void fake_disconnect(struct fake_job *job, uint32_t rank)
{
    close(job->ranks[rank].control);
    job->ranks[rank].control = -1;
}

void fake_send_bad_frame(struct fake_job *job, uint32_t rank, uint16_t type)
{
    send_frame(job, rank, type, "?", 1);
}

void fake_kill(struct fake_job *job, uint32_t rank)
{
    kill(job->ranks[rank].pid, SIGKILL);
}

static void report_failure(struct fake_job *job, uint32_t rank, const char *how)
{
    char error[512];
    snprintf(error, sizeof error, "rank %u (here) %.400s", rank, how);
    rdv_on_rank_exit(job->rdv, rank, how);
    if (!job->no_abort)
        fake_abort(job, COLLRUN_ERR_PEER_FAILED, rank, error);
}

static void append_line(struct buf *b, const char *text)
{
    b->len -= b->len > 0; /* the NUL */
    buf_put(b, text, strlen(text));
    buf_put(b, "\n", 2);
}

static void on_failed(struct fake_job *job, struct fake_rank *r, struct reader *in, double now_s)
{
    struct arena arena;
    arena_init(&arena);
    r->failed = true;
    r->failed_s = now_s;
    r->failed_workload = read_u32(in);
    r->failed_phase = read_u32(in);
    snprintf(r->failed_group, sizeof r->failed_group, "%s", read_str(in, &arena));
    r->failed_number = read_u64(in);
    r->failed_subject = (enum wire_subject)read_u8(in);
    wire_read_diag(in, NULL, &r->failure);
    wire_read_failure(in, &r->why);
    arena_fini(&arena);
    if (!reader_done(in))
        abort();
    if (r->failure.code != COLLRUN_ERR_PEER_FAILED && r->failure.code != COLLRUN_ERR_ABORTED)
        report_failure(job, (uint32_t)(r - job->ranks), r->failure.text);
}

static void on_waits(uint32_t rank, const struct wire_frame *f)
{
    struct wait_report w = {0};
    if (!wait_report_read(&w, f))
        fprintf(stderr, "# rank %u: malformed WAIT_REPORT\n", rank);
    wait_report_fini(&w);
}

static void on_report(struct fake_rank *r, uint16_t type, struct reader *in)
{
    struct arena arena;
    uint64_t bits;
    arena_init(&arena);
    if (type == WIRE_LOG) {
        read_u8(in);
        append_line(&r->logged, read_str(in, &arena));
    } else if (type == WIRE_PROGRESS) {
        r->progress++;
    } else {
        r->metrics++;
        read_u32(in);
        snprintf(r->last_metric_name, sizeof r->last_metric_name, "%s", read_str(in, &arena));
        bits = read_u64(in);
        memcpy(&r->last_metric, &bits, sizeof bits);
    }
    arena_fini(&arena);
}

/* Sets the flag; true if it is set on all ranks now. */
static bool all_have(struct fake_job *job, struct fake_rank *r, bool *it)
{
    size_t offset = (size_t)((char *)it - (char *)r);
    *it = true;
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (!*(bool *)((char *)&job->ranks[i] + offset))
            return false;
    }
    return true;
}

static void send_to_all(struct fake_job *job, uint16_t type)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++)
        send_frame(job, i, type, NULL, 0);
}

static void on_frame(struct fake_job *job, uint32_t rank, const struct wire_frame *f, double *go_s,
                     double now_s)
{
    struct fake_rank *r = &job->ranks[rank];
    struct diag d;
    struct reader in;
    reader_init(&in, f->payload, f->len);
    switch (f->type) {
    case WIRE_ATTACHED:
        r->attached = true;
        break;
    case WIRE_READY:
        if (all_have(job, r, &r->ready)) {
            *go_s = now_s;
            if (!job->early_go)
                send_to_all(job, WIRE_GO);
        }
        break;
    case WIRE_DONE:
        if (all_have(job, r, &r->done))
            send_to_all(job, WIRE_STOP_BACKGROUND);
        break;
    case WIRE_IDLE:
        if (all_have(job, r, &r->idle))
            send_to_all(job, WIRE_FINISH);
        break;
    case WIRE_FAILED:
        on_failed(job, r, &in, now_s);
        break;
    case WIRE_LOG:
    case WIRE_PROGRESS:
    case WIRE_METRIC:
        on_report(r, f->type, &in);
        break;
    case WIRE_WAIT_REPORT:
        on_waits(rank, f);
        break;
    case WIRE_FORMING:
        break;
    default:
        if (f->rank != rank || f->attempt != job->desc.attempt ||
            rdv_on_frame(job->rdv, f, now_ns(), &d) != COLLRUN_OK) {
            fprintf(stderr, "# rank %u sent an unexpected frame: %s\n", rank,
                    wire_type_name(f->type));
            abort();
        }
    }
}

/* ---- event loop ---- */

static void read_control(struct fake_job *job, uint32_t rank, double *go_s, double now_s)
{
    struct fake_rank *r = &job->ranks[rank];
    struct wire_frame f;
    struct diag d;
    void *to = buf_reserve(&r->in, 65536);
    ssize_t n = recv(r->control, to, 65536, 0);
    if (n <= 0) {
        fake_disconnect(job, rank);
        return;
    }
    buf_commit(&r->in, (size_t)n);
    while (wire_next(&r->in, &f, &d) > 0) {
        on_frame(job, rank, &f, go_s, now_s);
        wire_next_done(&r->in, &f);
    }
}

static void read_output(struct fake_rank *r)
{
    char bytes[4096];
    ssize_t n = read(r->output, bytes, sizeof bytes);
    if (n <= 0) {
        close(r->output);
        r->output = -1;
        return;
    }
    r->printed.len -= r->printed.len > 0;
    buf_put(&r->printed, bytes, (size_t)n);
    buf_put(&r->printed, "", 1);
}

static void reap(struct fake_job *job, double now_s)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        struct fake_rank *r = &job->ranks[i];
        int status;
        if (!r->pid || r->control >= 0 || r->output >= 0 ||
            waitpid(r->pid, &status, WNOHANG) != r->pid)
            continue;
        r->pid = 0;
        r->ended = true;
        r->ended_s = now_s;
        r->exit_code = exit_code_of(status);
        if (r->exit_code && !r->failed)
            report_failure(job, i, "died");
    }
}

static bool all_ended(const struct fake_job *job)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (!job->ranks[i].ended)
            return false;
    }
    return true;
}

static void poll_ranks(struct fake_job *job, double *go_s, double now_s)
{
    struct pollfd p[2 * FAKE_RANKS];
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        p[2 * i] = (struct pollfd){.fd = job->ranks[i].control, .events = POLLIN};
        p[2 * i + 1] = (struct pollfd){.fd = job->ranks[i].output, .events = POLLIN};
    }
    poll(p, 2 * job->desc.nranks, 5);
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (p[2 * i].revents && job->ranks[i].control >= 0)
            read_control(job, i, go_s, now_s);
        if (p[2 * i + 1].revents)
            read_output(&job->ranks[i]);
    }
}

static int result_of(const struct fake_job *job)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        const struct fake_rank *r = &job->ranks[i];
        if (r->exit_code)
            return 1;
    }
    return 0;
}

int fake_run(struct fake_job *job)
{
    uint64_t start = now_ns();
    double go_s = 0, now_s = 0;
    bool killed = false;
    job->rdv = rdv_new(&job->desc, (struct rdv_output){.send = send_store_frame, .ctx = job});
    for (uint32_t i = 0; i < job->desc.nranks; i++)
        start_rank(job, i);
    while (!all_ended(job)) {
        poll_ranks(job, &go_s, now_s);
        now_s = (double)(now_ns() - start) / 1e9;
        rdv_expire(job->rdv, now_ns());
        reap(job, now_s);
        if (job->after_go && go_s > 0 && now_s >= go_s + job->after_go_s) {
            void (*act)(struct fake_job *) = job->after_go;
            job->after_go = NULL;
            act(job);
        }
        for (uint32_t i = 0; now_s > job->limit_s && i < job->desc.nranks; i++) {
            if (job->ranks[i].pid)
                kill(job->ranks[i].pid, SIGKILL);
            killed = true;
        }
    }
    job->scopes_left = rdv_open_scopes(job->rdv);
    rdv_free(job->rdv);
    if (killed)
        fprintf(stderr, "# the job took more than %.0f s and was killed\n", job->limit_s);
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        struct fake_rank *r = &job->ranks[i];
        append_line(&r->logged, "");
        append_line(&r->printed, "");
        if (r->exit_code)
            fprintf(stderr, "# rank %u: exit code %d: %s\n%s", i, r->exit_code, r->failure.text,
                    r->printed.len > 2 ? (char *)r->printed.data : "");
    }
    return killed ? 2 : result_of(job);
}

void fake_fini(struct fake_job *job)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        buf_fini(&job->ranks[i].in);
        buf_fini(&job->ranks[i].logged);
        buf_fini(&job->ranks[i].printed);
    }
    if (job->hostmem >= 0)
        close(job->hostmem);
    arena_fini(&job->arena);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One poll loop over the ranks' control sockets and output pipes.
 */
#include "fake_agent.h"

#include "base/loop.h"
#include "watch/rendezvous.h"
#include "watch/waits.h"

#include <errno.h>
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

struct fake_segment {
    char *name;
    int fd;
    struct fake_segment *next;
};

/* ---- building the job ---- */

void fake_init(struct fake_job *job, uint32_t nranks)
{
    *job = (struct fake_job){.limit_s = 30};
    arena_init(&job->arena);
    struct desc *d = &job->desc;
    d->run_id = "run-7";
    d->run_dir = "";
    d->job_name = "test";
    d->job_file = "/job.yaml";
    d->interface = "default-route";
    d->attempt = 3;
    d->nhosts = 1;
    d->hosts = arena_calloc(&job->arena, 1, sizeof *d->hosts);
    d->hosts[0] = (struct desc_host){.name = "here", .nranks = nranks, .workdir = ""};
    d->nranks = nranks;
    d->ranks = arena_calloc(&job->arena, nranks, sizeof *d->ranks);
    for (uint32_t i = 0; i < nranks; i++)
        d->ranks[i] = (struct desc_rank){.local_rank = i, .cpus = ""};
    d->backends = job->backends;
    d->groups = job->groups;
    d->workloads = job->workloads;
    d->start_timeout_ns = d->rendezvous_timeout_ns = 5000000000u;
    d->grace_ns = 1000000000u;
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
                             .timeout_ns = 10000000000u,
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

/* A new engine: its control socket and output pipe. */
static pid_t spawn(const char *engine, int *control_fd, int *output_fd)
{
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
        dup2(fd, WIRE_CONTROL_FD);
        for (int i = WIRE_CONTROL_FD + 1; i < 256; i++)
            close(i);
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
    r->pid = spawn(fake_engine(job), &r->control, &r->output);
    if (job->odd && rank == job->odd_rank)
        job->odd(&desc);
    buf_init(&encoded);
    desc_encode(&desc, &encoded);
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_WELCOME, rank, job->desc.attempt);
    buf_put_u32(&b, rank);
    buf_put_u32(&b, job->desc.attempt);
    buf_put_u32(&b, 0);
    buf_put_str(&b, "127.0.0.1");
    buf_put_str(&b, "lo");
    buf_put_u32(&b, 2);
    buf_put_blob(&b, encoded.data, encoded.len);
    wire_end(&b, mark);
    if (send(r->control, b.data, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
        abort();
    buf_fini(&b);
    buf_fini(&encoded);
}

static int exit_code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int fake_stammer(const void *bytes, size_t len, char *printed, size_t size)
{
    struct fake_job job;
    int control, output, status = 0;
    size_t n = 0;
    ssize_t got;
    fake_init(&job, 1);
    pid_t pid = spawn(fake_engine(&job), &control, &output);
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

/* ---- talking ---- */

static void say(struct fake_job *job, uint32_t rank, uint16_t type, const void *payload, size_t len)
{
    struct buf b;
    buf_init(&b);
    wire_put(&b, type, rank, job->desc.attempt, payload, len);
    if (job->ranks[rank].control >= 0 &&
        send(job->ranks[rank].control, b.data, b.len, MSG_NOSIGNAL) < 0)
        errno = 0; /* it is gone; its end will be seen */
    buf_fini(&b);
}

static void store_says(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                       const struct buf *payload)
{
    for (uint32_t i = 0; i < n; i++)
        say(ctx, ranks[i], type, payload->data, payload->len);
}

void fake_abort(struct fake_job *job, int status, uint32_t culprit, const char *sentence)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u32(&b, culprit);
    buf_put_str(&b, sentence);
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (i != culprit)
            say(job, i, WIRE_ABORT, b.data, b.len);
    }
    buf_fini(&b);
}

void fake_hang_up(struct fake_job *job, uint32_t rank)
{
    close(job->ranks[rank].control);
    job->ranks[rank].control = -1;
}

void fake_babble(struct fake_job *job, uint32_t rank, uint16_t type)
{
    say(job, rank, type, "?", 1);
}

void fake_kill(struct fake_job *job, uint32_t rank)
{
    kill(job->ranks[rank].pid, SIGKILL);
}

static void give_segment(struct fake_job *job, uint32_t rank, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    const char *scope = read_str(&r, &arena), *key = read_str(&r, &arena);
    uint64_t len = read_u64(&r);
    const char *name = arena_printf(&arena, "%s %s", scope, key);
    struct fake_segment *s = job->segments;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        s->name = strdup(name);
        s->fd = memfd_create("segment", MFD_CLOEXEC);
        s->next = job->segments;
        job->segments = s;
        if (ftruncate(s->fd, (off_t)len))
            abort();
    }
    struct buf b;
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_SEGMENT_FD, rank, job->desc.attempt);
    buf_put_str(&b, scope);
    buf_put_str(&b, key);
    buf_put_u32(&b, 0);
    wire_end(&b, mark);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } space = {0};
    struct iovec part = {.iov_base = b.data, .iov_len = b.len};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &space,
                       .msg_controllen = sizeof space.room};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &s->fd, sizeof(int));
    sendmsg(job->ranks[rank].control, &m, MSG_NOSIGNAL);
    buf_fini(&b);
    arena_fini(&arena);
}

static void tell_others(struct fake_job *job, uint32_t rank, const char *how)
{
    char sentence[512];
    snprintf(sentence, sizeof sentence, "rank %u (here) %.400s", rank, how);
    rdv_rank_gone(job->rdv, rank, how);
    if (!job->no_abort)
        fake_abort(job, COLLRUN_ERR_PEER_FAILED, rank, sentence);
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
    wire_read_diag(in, NULL, &r->failure);
    arena_fini(&arena);
    if (!reader_done(in))
        abort();
    if (r->failure.code != COLLRUN_ERR_PEER_FAILED && r->failure.code != COLLRUN_ERR_ABORTED)
        tell_others(job, (uint32_t)(r - job->ranks), r->failure.text);
}

static void on_waits(uint32_t rank, const struct wire_frame *f)
{
    struct waits w = {0};
    if (!waits_read(&w, f))
        fprintf(stderr, "# rank %u: a WAITS that cannot be read\n", rank);
    waits_fini(&w);
}

static void on_words(struct fake_rank *r, uint16_t type, struct reader *in)
{
    struct arena arena;
    uint64_t bits;
    arena_init(&arena);
    if (type == WIRE_LOG) {
        read_u8(in);
        append_line(&r->said, read_str(in, &arena));
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

/* True if the last rank has just said this. */
static bool all_said(struct fake_job *job, struct fake_rank *r, bool *it)
{
    size_t offset = (size_t)((char *)it - (char *)r);
    *it = true;
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        if (!*(bool *)((char *)&job->ranks[i] + offset))
            return false;
    }
    return true;
}

static void say_all(struct fake_job *job, uint16_t type)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++)
        say(job, i, type, NULL, 0);
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
        if (all_said(job, r, &r->ready)) {
            say_all(job, WIRE_GO);
            *go_s = now_s;
        }
        break;
    case WIRE_DONE:
        if (all_said(job, r, &r->done))
            say_all(job, WIRE_STOP_BACKGROUND);
        break;
    case WIRE_IDLE:
        if (all_said(job, r, &r->idle))
            say_all(job, WIRE_FINISH);
        break;
    case WIRE_FAILED:
        on_failed(job, r, &in, now_s);
        break;
    case WIRE_LOG:
    case WIRE_PROGRESS:
    case WIRE_METRIC:
        on_words(r, f->type, &in);
        break;
    case WIRE_WAITS:
        on_waits(rank, f);
        break;
    case WIRE_SEGMENT:
        give_segment(job, rank, f);
        break;
    default:
        if (f->rank != rank || f->attempt != job->desc.attempt ||
            rdv_frame(job->rdv, f, now_ns(), &d) != COLLRUN_OK) {
            fprintf(stderr, "# rank %u sends nonsense: %s\n", rank, wire_type_name(f->type));
            abort();
        }
    }
}

/* ---- the loop ---- */

static void read_control(struct fake_job *job, uint32_t rank, double *go_s, double now_s)
{
    struct fake_rank *r = &job->ranks[rank];
    struct wire_frame f;
    struct diag d;
    void *to = buf_reserve(&r->in, 65536);
    ssize_t n = recv(r->control, to, 65536, 0);
    if (n <= 0) {
        fake_hang_up(job, rank);
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
            tell_others(job, i, "died");
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

static int verdict(const struct fake_job *job)
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
    job->rdv = rdv_new(&job->desc, (struct rdv_output){.send = store_says, .ctx = job});
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
        append_line(&r->said, "");
        append_line(&r->printed, "");
        if (r->exit_code)
            fprintf(stderr, "# rank %u: exit code %d: %s\n%s", i, r->exit_code, r->failure.text,
                    r->printed.len > 2 ? (char *)r->printed.data : "");
    }
    return killed ? 2 : verdict(job);
}

void fake_fini(struct fake_job *job)
{
    for (uint32_t i = 0; i < job->desc.nranks; i++) {
        buf_fini(&job->ranks[i].in);
        buf_fini(&job->ranks[i].said);
        buf_fini(&job->ranks[i].printed);
    }
    while (job->segments) {
        struct fake_segment *next = job->segments->next;
        close(job->segments->fd);
        free(job->segments->name);
        free(job->segments);
        job->segments = next;
    }
    arena_fini(&job->arena);
}

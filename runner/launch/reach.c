/* SPDX-License-Identifier: Apache-2.0
 *
 * One small state machine per host: open the stream, talk to the shell (stage.c), hand over. It
 * fails when the transport cannot be opened, when the stream ends early, or when the host is told
 * to be unfit. Then the last words of the carrier's stderr, its exit status and the last line of
 * shell noise make the sentence, whichever of them there are.
 */
#include "launch/reach.h"

#include "base/reap.h"
#include "launch/stage.h"
#include "prefix.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_WORDS_NS 500000000ull /* for a carrier to end once its stream has */

enum { ERR_TAIL = 1024 };

struct reach_host {
    struct reach *reach;
    uint32_t index;
    const struct job_host *spec;
    bool remote, done, ended; /* done: handed over, failed or given up */
    struct transport_stream stream;
    char *const *argv; /* of a command transport */
    struct stage stage;
    struct loop_fd reader, writer, errors;
    struct buf out;                /* to send: the script */
    const struct stage_file *file; /* and after it, a file */
    size_t file_at;
    struct loop_timer last_words;
    bool reaped;
    int status;
    char err[ERR_TAIL]; /* the end of what the carrier said on stderr */
    size_t err_len;
};

struct reach {
    struct loop *loop;
    const struct job *job;
    struct desc desc;
    struct reach_hooks hooks;
    FILE *verbose; /* NULL: not wanted */
    struct arena arena;
    const char *prefix;
    struct stage_bundle bundle;
    struct ssh_pool *ssh;
    struct reach_host *hosts;
    uint32_t nhosts;
    struct buf desc_bytes;
    const char *desc_root; /* that desc_bytes are for; NULL: none yet */
};

/* ---- failing ---- */

static void release(struct reach_host *h)
{
    struct loop *loop = h->reach->loop;
    loop_unwatch(loop, &h->reader);
    loop_unwatch(loop, &h->writer);
    loop_timer_clear(loop, &h->last_words);
    h->done = true;
}

static void close_stream(struct reach_host *h)
{
    if (h->stream.read_fd >= 0)
        close(h->stream.read_fd);
    if (h->stream.write_fd >= 0 && h->stream.write_fd != h->stream.read_fd)
        close(h->stream.write_fd);
    h->stream.read_fd = h->stream.write_fd = -1;
}

static void let_go(struct reach_host *h)
{
    release(h);
    close_stream(h);
    if (h->stream.pid && !h->reaped)
        kill(h->stream.pid, SIGTERM);
}

static void fail(struct reach_host *h, struct diag *d)
{
    if (h->done)
        return;
    let_go(h);
    diag_wrap(d, "host %s", h->spec->name.v);
    d->loc = h->spec->name.loc;
    h->reach->hooks.failed(h->reach->hooks.ctx, h->index, d);
}

/* ---- stderr of the carrier ---- */

static void read_errors(struct reach_host *h)
{
    char bytes[4096];
    ssize_t n;
    while (h->stream.err_fd >= 0 && (n = read(h->stream.err_fd, bytes, sizeof bytes)) > 0) {
        size_t len = (size_t)n, keep = sizeof h->err - 1;
        const char *from = bytes;
        if (len > keep) {
            from += len - keep;
            len = keep;
        }
        if (h->err_len + len > keep) {
            size_t drop = h->err_len + len - keep;
            memmove(h->err, h->err + drop, h->err_len - drop);
            h->err_len -= drop;
        }
        memcpy(h->err + h->err_len, from, len);
        h->err_len += len;
        h->err[h->err_len] = '\0';
    }
}

static void on_errors(struct loop_fd *w, uint32_t events)
{
    struct reach_host *h = w->owner;
    read_errors(h);
    if (events & (EPOLLHUP | EPOLLERR))
        loop_unwatch(h->reach->loop, w);
}

/* The last line that says anything. */
static const char *last_line(const char *text, char *out, size_t size)
{
    const char *end = text + strlen(text);
    while (end > text && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
        end--;
    const char *from = end;
    while (from > text && from[-1] != '\n')
        from--;
    size_t n = 0;
    for (const char *p = from; p < end && n + 1 < size; p++)
        out[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    out[n] = '\0';
    return out;
}

static void describe_status(const struct reach_host *h, const char *what, char *out, size_t size)
{
    if (!h->reaped)
        snprintf(out, size, "%s closed the connection", what);
    else if (WIFSIGNALED(h->status))
        snprintf(out, size, "%s was killed by signal %d (SIG%s)", what, WTERMSIG(h->status),
                 sigabbrev_np(WTERMSIG(h->status)));
    else
        snprintf(out, size, "%s ended with code %d", what, WEXITSTATUS(h->status));
}

bool reach_why(struct reach *r, uint32_t host, char *out, size_t size)
{
    struct reach_host *h = &r->hosts[host];
    struct diag d;
    char line[300], status[200];
    diag_init(&d);
    if (h->stream.ssh) {
        bool known = transport_ssh_why(h->stream.ssh, &d);
        if (known)
            snprintf(out, size, "%s", d.text);
        return known;
    }
    if (!h->argv)
        return false;
    if (!h->reaped)
        h->reaped = reap_closed(h->stream.pid, &h->status);
    read_errors(h);
    describe_status(h, h->argv[0], status, sizeof status);
    last_line(h->err, line, sizeof line);
    snprintf(out, size, "%s%s%s", status, line[0] ? ": " : "", line);
    return true;
}

/* The stream ended before there was an agent. */
static void fail_early(struct reach_host *h)
{
    struct diag d;
    char why[700];
    diag_init(&d);
    if (h->stream.ssh && transport_ssh_why(h->stream.ssh, &d)) {
        if (h->stage.noise[0] && !d.hint[0])
            diag_hint(&d, "the last line it printed was: %.200s", h->stage.noise);
        fail(h, &d);
        return;
    }
    if (!reach_why(h->reach, h->index, why, sizeof why))
        snprintf(why, sizeof why, "%s ended before collrun-agent was there",
                 h->stream.ssh ? "its shell" : "the stream");
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    if (h->stage.noise[0])
        diag_hint(&d, "the last line it printed was: %.200s", h->stage.noise);
    fail(h, &d);
}

static void on_last_words(struct loop_timer *t)
{
    fail_early(t->owner);
}

static void on_end(struct reach_host *h)
{
    loop_unwatch(h->reach->loop, &h->reader);
    loop_unwatch(h->reach->loop, &h->writer);
    h->ended = true;
    if (!h->argv || h->reaped)
        fail_early(h);
    else
        loop_timer_set(h->reach->loop, &h->last_words, LAST_WORDS_NS);
}

void reach_child_ended(struct reach *r, pid_t pid, int status)
{
    for (uint32_t i = 0; i < r->nhosts; i++) {
        struct reach_host *h = &r->hosts[i];
        if (h->stream.pid != pid || h->reaped)
            continue;
        h->reaped = true;
        h->status = status;
        if (h->ended && !h->done)
            fail_early(h);
    }
}

/* ---- talking ---- */

static void hand_over(struct reach_host *h)
{
    struct reach *r = h->reach;
    struct transport_stream stream = h->stream;
    release(h);
    h->stream.read_fd = h->stream.write_fd = -1; /* the agent's conn owns them now */
    if (r->verbose && h->stage.sent)
        fprintf(r->verbose, "collrun: host %s: sent %u file%s, %.1f MiB\n", h->spec->name.v,
                h->stage.sent, h->stage.sent == 1 ? "" : "s",
                (double)h->stage.sent_bytes / 1048576.0);
    else if (r->verbose && h->stage.mode == STAGE_MODE_AUTO)
        fprintf(r->verbose, "collrun: host %s: nothing to send\n", h->spec->name.v);
    r->hooks.ready(r->hooks.ctx, h->index, &stream, &h->stage.in);
    buf_clear(&h->stage.in);
}

/* Writes what is waiting. False: the stream takes nothing any more; its reading end says why. */
static bool push(struct reach_host *h)
{
    while (buf_pending(&h->out)) {
        ssize_t n = write(h->stream.write_fd, h->out.data + h->out.start, buf_pending(&h->out));
        if (n < 0)
            return errno == EAGAIN;
        buf_consume(&h->out, (size_t)n);
    }
    while (h->file && h->file_at < h->file->len) {
        ssize_t n = write(h->stream.write_fd, (const char *)h->file->bytes + h->file_at,
                          h->file->len - h->file_at);
        if (n < 0)
            return errno == EAGAIN;
        h->file_at += (size_t)n;
    }
    h->file = NULL;
    return true;
}

static void flush(struct reach_host *h)
{
    struct loop *loop = h->reach->loop;
    bool waiting = push(h) && (buf_pending(&h->out) || h->file);
    if (!waiting)
        loop_unwatch(loop, &h->writer);
    else if (h->writer.fd < 0)
        loop_watch(loop, &h->writer, h->stream.write_fd, EPOLLOUT);
}

static void on_writable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    flush(w->owner);
}

static void on_bytes(struct reach_host *h, const void *bytes, size_t len)
{
    struct diag d;
    const struct stage_file *file = NULL;
    diag_init(&d);
    int step = stage_feed(&h->stage, bytes, len, &file, &d);
    if (step == STAGE_STEP_SEND) {
        h->file = file;
        h->file_at = 0;
        flush(h);
    } else if (step == STAGE_STEP_AGENT) {
        hand_over(h);
    } else if (step < 0) {
        fail(h, &d);
    }
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct reach_host *h = w->owner;
    char bytes[16384];
    ssize_t n = read(h->stream.read_fd, bytes, sizeof bytes);
    if (n > 0)
        on_bytes(h, bytes, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        on_end(h);
}

/* ---- beginning ---- */

static int open_stream(struct reach_host *h, enum stage_mode *mode, struct diag *d)
{
    struct reach *r = h->reach;
    bool bare = false;
    switch ((enum job_transport_kind)h->spec->transport.kind.v) {
    case JOB_TRANSPORT_LOCAL:
        *mode = STAGE_MODE_BARE;
        const char *agent = prefix_path(&r->arena, "libexec/collrun/collrun-agent", d);
        return agent ? transport_local_open(agent, &h->stream, d) : d->code;
    case JOB_TRANSPORT_SSH:
        return transport_ssh_open(r->ssh, h->spec, &h->stream, d);
    case JOB_TRANSPORT_SLURM:
    case JOB_TRANSPORT_COMMAND:
        break;
    }
    h->argv = transport_command_argv(h->spec, &r->arena, &bare);
    if (bare)
        *mode = STAGE_MODE_BARE;
    return h->argv ? transport_command_open(h->argv, &h->stream, d)
                   : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

static void watch(struct reach_host *h, struct loop_fd *w, int fd,
                  void (*ready)(struct loop_fd *, uint32_t))
{
    *w = (struct loop_fd){.fd = -1, .ready = ready, .owner = h};
    if (fd < 0)
        return;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (ready != on_writable)
        loop_watch(h->reach->loop, w, fd, EPOLLIN);
}

static void begin(struct reach_host *h)
{
    struct reach *r = h->reach;
    struct diag d;
    diag_init(&d);
    enum stage_mode mode = r->job->stage.v == JOB_STAGE_NEVER ? STAGE_MODE_NEVER : STAGE_MODE_AUTO;
    if (open_stream(h, &mode, &d) != COLLRUN_OK) {
        fail(h, &d);
        return;
    }
    watch(h, &h->errors, h->stream.err_fd, on_errors);
    stage_init(&h->stage, mode, &r->bundle, r->prefix);
    if (!h->remote) { /* it is the agent from its first byte on */
        hand_over(h);
        return;
    }
    watch(h, &h->reader, h->stream.read_fd, on_readable);
    /* A socket stands in the loop once for each direction, so it needs two numbers. */
    if (h->stream.write_fd == h->stream.read_fd)
        h->stream.write_fd = fcntl(h->stream.read_fd, F_DUPFD_CLOEXEC, 0);
    watch(h, &h->writer, h->stream.write_fd, on_writable);
    stage_script(&h->stage, &h->out);
    flush(h);
}

void reach_start(struct reach *r)
{
    for (uint32_t i = 0; i < r->nhosts; i++) {
        if (!r->hosts[i].done)
            begin(&r->hosts[i]);
    }
}

void reach_give_up(struct reach *r, uint32_t host)
{
    struct reach_host *h = &r->hosts[host];
    if (!h->done)
        let_go(h);
}

/* ---- asking ---- */

bool reach_is_remote(const struct reach *r, uint32_t host)
{
    return r->hosts[host].remote;
}

const char *reach_phase(const struct reach *r, uint32_t host)
{
    const struct reach_host *h = &r->hosts[host];
    if (h->file)
        return "sending files";
    if (h->stage.heard)
        return "looking for collrun-agent";
    const char *ssh = h->stream.ssh ? transport_ssh_phase(h->stream.ssh) : NULL;
    return ssh ? ssh : "waiting for its shell to answer";
}

const char *reach_path(struct reach *r, uint32_t host, const char *path)
{
    const char *root = r->hosts[host].stage.root;
    const char *there = *root ? stage_path(&r->bundle, path, root, &r->arena) : path;
    return there ? there : path;
}

void reach_set_interface(struct reach *r, const char *interface)
{
    r->desc.interface = interface;
    r->desc_root = NULL;
}

const struct buf *reach_desc(struct reach *r, uint32_t host)
{
    struct desc desc = r->desc;
    const char *root = r->hosts[host].stage.root;
    if (r->desc_root && strcmp(r->desc_root, root) == 0)
        return r->desc_bytes.failed ? NULL : &r->desc_bytes;
    if (*root && stage_rewrite(&r->bundle, &r->desc, root, &r->arena, &desc) != COLLRUN_OK)
        return NULL;
    buf_clear(&r->desc_bytes);
    desc_encode(&desc, &r->desc_bytes);
    r->desc_root = root;
    return r->desc_bytes.failed ? NULL : &r->desc_bytes;
}

/* ---- making it ---- */

static int init_hosts(struct reach *r, struct diag *d)
{
    bool ssh = false, stage = false;
    r->nhosts = r->desc.nhosts;
    r->hosts = arena_calloc(&r->arena, r->nhosts, sizeof *r->hosts);
    if (!r->hosts)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < r->nhosts; i++) {
        struct reach_host *h = &r->hosts[i];
        *h = (struct reach_host){.reach = r, .index = i, .spec = &r->job->hosts.nodes[i]};
        h->stream = (struct transport_stream){.read_fd = -1, .write_fd = -1, .err_fd = -1};
        h->reader.fd = h->writer.fd = h->errors.fd = -1;
        h->last_words = (struct loop_timer){.fired = on_last_words, .owner = h};
        buf_init(&h->out);
        buf_init(&h->stage.in);
        h->remote = h->spec->transport.kind.v != JOB_TRANSPORT_LOCAL;
        ssh = ssh || h->spec->transport.kind.v == JOB_TRANSPORT_SSH;
        stage = stage || h->remote;
    }
    int rc = COLLRUN_OK;
    if (stage && r->job->stage.v == JOB_STAGE_AUTO)
        rc = stage_bundle_make(&r->bundle, &r->desc, r->prefix, &r->arena, d);
    if (rc == COLLRUN_OK && ssh) {
        r->ssh = ssh_pool_new(r->job, d);
        rc = r->ssh ? COLLRUN_OK : d->code;
    }
    return rc;
}

struct reach *reach_new(struct loop *loop, const struct job *job, const struct desc *desc,
                        const struct reach_hooks *hooks, FILE *verbose, struct diag *d)
{
    struct reach *r = calloc(1, sizeof *r);
    if (!r) {
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    *r = (struct reach){
        .loop = loop, .job = job, .desc = *desc, .hooks = *hooks, .verbose = verbose};
    arena_init(&r->arena);
    buf_init(&r->desc_bytes);
    const char *top = prefix_path(&r->arena, ".", d);
    r->prefix = top ? arena_strndup(&r->arena, top, strlen(top) - 2) : NULL;
    if (!r->prefix || init_hosts(r, d) != COLLRUN_OK) {
        reach_free(r);
        return NULL;
    }
    return r;
}

void reach_free(struct reach *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; r->hosts && i < r->nhosts; i++) {
        struct reach_host *h = &r->hosts[i];
        reach_give_up(r, i);
        loop_unwatch(r->loop, &h->errors);
        if (h->stream.err_fd >= 0)
            close(h->stream.err_fd);
        stage_fini(&h->stage);
        buf_fini(&h->out);
    }
    ssh_pool_free(r->ssh);
    stage_bundle_free(&r->bundle);
    buf_fini(&r->desc_bytes);
    arena_fini(&r->arena);
    free(r);
}

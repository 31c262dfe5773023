/* SPDX-License-Identifier: Apache-2.0
 *
 * One state machine per host: open the stream, stage files through the shell (staging.c), hand
 * over. It fails if the transport cannot be opened, if the stream ends early, or if the host is not
 * usable. The error message is made of the end of the transport command's stderr, its exit status
 * and the last line that the shell printed, as far as they exist.
 */
#include "connect/connector.h"

#include "base/debug.h"
#include "base/names.h"
#include "base/reap.h"
#include "connect/staging.h"
#include "plan/plan.h"
#include "prefix.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_WAIT_NS 500000000ull /* for a transport command to exit after its stream has ended */

enum { ERR_TAIL = 1024 };

struct connector_host {
    struct connector *connector;
    uint32_t index;
    const struct job_host *spec;
    bool remote, done, ended; /* done: handed over, failed or cancelled */
    struct transport_stream stream;
    char *const *argv; /* of a command transport */
    struct staging staging;
    struct loop_fd reader, writer, errors;
    struct buf out;                  /* to send: the script */
    const struct staging_file *file; /* and after it, a file */
    size_t file_at;
    struct loop_timer exit_timer;
    bool reaped;
    int status;
    char err[ERR_TAIL]; /* the end of the transport command's stderr */
    size_t err_len;
};

struct connector {
    struct loop *loop;
    const struct job *job;
    struct desc desc;
    struct connector_hooks hooks;
    FILE *verbose; /* NULL: not verbose */
    struct arena arena;
    const char *prefix;
    struct staging_bundle bundle;
    struct ssh_pool *ssh;
    struct connector_host *hosts;
    uint32_t nhosts;
    struct buf desc_bytes;
    const char *desc_root; /* the root that desc_bytes were encoded for; NULL: none yet */
};

/* ---- failing ---- */

static void connector_unwatch(struct connector_host *h)
{
    struct loop *loop = h->connector->loop;
    loop_unwatch(loop, &h->reader);
    loop_unwatch(loop, &h->writer);
    loop_timer_clear(loop, &h->exit_timer);
    h->done = true;
}

static void connector_close_stream(struct connector_host *h)
{
    if (h->stream.read_fd >= 0)
        close(h->stream.read_fd);
    if (h->stream.write_fd >= 0 && h->stream.write_fd != h->stream.read_fd)
        close(h->stream.write_fd);
    h->stream.read_fd = h->stream.write_fd = -1;
}

static void connector_drop(struct connector_host *h)
{
    connector_unwatch(h);
    connector_close_stream(h);
    if (h->stream.pid && !h->reaped)
        kill(h->stream.pid, SIGTERM);
}

static void connector_fail(struct connector_host *h, struct diag *d)
{
    if (h->done)
        return;
    debug_log(DEBUG_STAGE, "host %s: %s, after %u files: %s", h->spec->name.v,
              connector_host_state(h->connector, h->index), h->staging.sent, d->text);
    connector_drop(h);
    diag_wrap(d, "host %s", h->spec->name.v);
    d->loc = h->spec->name.loc;
    h->connector->hooks.failed(h->connector->hooks.ctx, h->index, d);
}

/* ---- stderr of the transport command ---- */

static void connector_read_stderr(struct connector_host *h)
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

static void connector_on_stderr(struct loop_fd *w, uint32_t events)
{
    struct connector_host *h = w->owner;
    connector_read_stderr(h);
    if (events & (EPOLLHUP | EPOLLERR))
        loop_unwatch(h->connector->loop, w);
}

/* The last line that is not empty. */
static const char *connector_last_line(const char *text, char *out, size_t size)
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

static void connector_exit_text(const struct connector_host *h, const char *what, char *out,
                                size_t size)
{
    if (!h->reaped)
        snprintf(out, size, "%s closed the connection", what);
    else if (WIFSIGNALED(h->status))
        snprintf(out, size, "%s was killed by signal %d (%s)", what, WTERMSIG(h->status),
                 signal_name(WTERMSIG(h->status)));
    else
        snprintf(out, size, "%s exited with code %d", what, WEXITSTATUS(h->status));
}

void connector_await_exit(struct connector *c, uint32_t host)
{
    struct connector_host *h = &c->hosts[host];
    if (h->argv && !h->reaped)
        h->reaped = reap_closed(h->stream.pid, &h->status);
}

bool connector_end_reason(struct connector *c, uint32_t host, char *out, size_t size)
{
    struct connector_host *h = &c->hosts[host];
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
        h->reaped = waitpid(h->stream.pid, &h->status, WNOHANG) == h->stream.pid;
    connector_read_stderr(h);
    connector_exit_text(h, h->argv[0], status, sizeof status);
    connector_last_line(h->err, line, sizeof line);
    snprintf(out, size, "%s%s%s", status, line[0] ? ": " : "", line);
    return true;
}

void connector_drain(struct connector *c, uint32_t host, uint64_t deadline_ns)
{
    if (c->hosts[host].stream.ssh)
        transport_ssh_drain(c->hosts[host].stream.ssh, deadline_ns);
}

/* The stream ended before the agent started. */
static void connector_fail_early(struct connector_host *h)
{
    struct diag d;
    char why[700];
    diag_init(&d);
    if (h->stream.ssh && transport_ssh_why(h->stream.ssh, &d)) {
        if (h->staging.last_line[0] && !d.hint[0])
            diag_hint(&d, "the last line it printed was: %.200s", h->staging.last_line);
        connector_fail(h, &d);
        return;
    }
    if (!connector_end_reason(h->connector, h->index, why, sizeof why))
        snprintf(why, sizeof why, "%s ended before collrun-agent started",
                 h->stream.ssh ? "its shell" : "the stream");
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    if (h->staging.last_line[0])
        diag_hint(&d, "the last line it printed was: %.200s", h->staging.last_line);
    connector_fail(h, &d);
}

static void connector_on_exit_timeout(struct loop_timer *t)
{
    connector_fail_early(t->owner);
}

static void connector_on_eof(struct connector_host *h)
{
    loop_unwatch(h->connector->loop, &h->reader);
    loop_unwatch(h->connector->loop, &h->writer);
    debug_log(DEBUG_STAGE, "host %s: the stream has ended before its agent runs", h->spec->name.v);
    h->ended = true;
    if (!h->argv || h->reaped)
        connector_fail_early(h);
    else
        loop_timer_set(h->connector->loop, &h->exit_timer, EXIT_WAIT_NS);
}

void connector_child_exited(struct connector *c, pid_t pid, int status)
{
    for (uint32_t i = 0; i < c->nhosts; i++) {
        struct connector_host *h = &c->hosts[i];
        if (h->stream.pid != pid || h->reaped)
            continue;
        h->reaped = true;
        h->status = status;
        if (h->ended && !h->done)
            connector_fail_early(h);
    }
}

/* ---- staging ---- */

static void connector_hand_over(struct connector_host *h)
{
    struct connector *c = h->connector;
    struct transport_stream stream = h->stream;
    debug_log(DEBUG_STAGE, "host %s: the agent runs; %u files, %zu bytes were sent, below \"%s\"",
              h->spec->name.v, h->staging.sent, (size_t)h->staging.sent_bytes, h->staging.root);
    connector_unwatch(h);
    h->stream.read_fd = h->stream.write_fd = -1; /* the agent's conn owns them now */
    if (c->verbose && h->staging.sent)
        fprintf(c->verbose, "collrun: host %s: sent %u file%s, %.1f MiB\n", h->spec->name.v,
                h->staging.sent, h->staging.sent == 1 ? "" : "s",
                (double)h->staging.sent_bytes / 1048576.0);
    else if (c->verbose && h->staging.mode == STAGING_AUTO)
        fprintf(c->verbose, "collrun: host %s: nothing to send\n", h->spec->name.v);
    c->hooks.ready(c->hooks.ctx, h->index, &stream, &h->staging.in);
    buf_clear(&h->staging.in);
}

/* Writes what is pending. False: a write failed; the cause shows when the stream is read. */
static bool connector_write(struct connector_host *h)
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

static void connector_flush(struct connector_host *h)
{
    struct loop *loop = h->connector->loop;
    bool waiting = connector_write(h) && (buf_pending(&h->out) || h->file);
    if (!waiting)
        loop_unwatch(loop, &h->writer);
    else if (h->writer.fd < 0)
        loop_watch(loop, &h->writer, h->stream.write_fd, EPOLLOUT);
}

static void connector_on_writable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    connector_flush(w->owner);
}

/* A host needs no byte of an empty file, and may ask for the next one at once. */
static void connector_on_bytes(struct connector_host *h, const void *bytes, size_t len)
{
    struct diag d;
    const struct staging_file *file = NULL;
    int step;
    diag_init(&d);
    for (; (step = staging_feed(&h->staging, bytes, len, &file, &d)) == STAGING_SEND; len = 0) {
        if (h->file) { /* it cannot have read that one, so the bytes would be mixed */
            diag_set(&d, COLLRUN_ERR_INVALID, "the host asks for a file before the end of another");
            connector_fail(h, &d);
            return;
        }
        debug_log(DEBUG_STAGE, "host %s needs %s, %zu bytes, SHA-256 %.12s", h->spec->name.v,
                  file->dest, file->len, file->sha);
        h->file = file;
        h->file_at = 0;
        connector_flush(h);
        if (h->file)
            return;
    }
    if (step == STAGING_AGENT)
        connector_hand_over(h);
    else if (step < 0)
        connector_fail(h, &d);
}

static void connector_on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct connector_host *h = w->owner;
    char bytes[16384];
    ssize_t n = read(h->stream.read_fd, bytes, sizeof bytes);
    if (n > 0)
        connector_on_bytes(h, bytes, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        connector_on_eof(h);
}

/* ---- starting ---- */

static int connector_open_stream(struct connector_host *h, enum staging_mode *mode, struct diag *d)
{
    struct connector *c = h->connector;
    bool bare = false;
    switch ((enum job_transport_kind)h->spec->transport.kind.v) {
    case JOB_TRANSPORT_LOCAL:
        *mode = STAGING_NONE;
        const char *agent = prefix_path(&c->arena, "libexec/collrun/collrun-agent", d);
        return agent ? transport_local_open(agent, &h->stream, d) : d->code;
    case JOB_TRANSPORT_SSH:
        return transport_ssh_open(c->ssh, h->spec, &h->stream, d);
    case JOB_TRANSPORT_SLURM:
    case JOB_TRANSPORT_COMMAND:
        break;
    }
    h->argv = transport_command_argv(h->spec, &c->arena, &bare);
    if (bare)
        *mode = STAGING_NONE;
    return transport_command_open(h->argv, h->spec->transport.text, &h->stream, d);
}

static void connector_watch(struct connector_host *h, struct loop_fd *w, int fd,
                            void (*ready)(struct loop_fd *, uint32_t))
{
    *w = (struct loop_fd){.fd = -1, .ready = ready, .owner = h};
    if (fd < 0)
        return;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (ready != connector_on_writable)
        loop_watch(h->connector->loop, w, fd, EPOLLIN);
}

static void connector_start_host(struct connector_host *h)
{
    struct connector *c = h->connector;
    struct diag d;
    diag_init(&d);
    enum staging_mode mode = c->job->stage.v == JOB_STAGE_NEVER ? STAGING_NEVER : STAGING_AUTO;
    if (connector_open_stream(h, &mode, &d) != COLLRUN_OK) {
        connector_fail(h, &d);
        return;
    }
    debug_log(DEBUG_STAGE, "host %s: transport %s, pid %d, stage: %s", h->spec->name.v,
              !h->remote      ? "local"
              : h->stream.ssh ? "ssh"
                              : h->argv[0],
              (int)h->stream.pid,
              mode == STAGING_AUTO    ? "auto"
              : mode == STAGING_NEVER ? "never"
                                      : "none");
    connector_watch(h, &h->errors, h->stream.err_fd, connector_on_stderr);
    staging_init(&h->staging, mode, &c->bundle, c->prefix);
    h->staging.text = h->stream.text;
    if (!h->remote) { /* the stream is the agent's from its first byte on */
        connector_hand_over(h);
        return;
    }
    connector_watch(h, &h->reader, h->stream.read_fd, connector_on_readable);
    /* The loop watches each direction of a socket separately, which takes two descriptors. */
    if (h->stream.write_fd == h->stream.read_fd)
        h->stream.write_fd = fcntl(h->stream.read_fd, F_DUPFD_CLOEXEC, 0);
    connector_watch(h, &h->writer, h->stream.write_fd, connector_on_writable);
    staging_script(&h->staging, &h->out);
    connector_flush(h);
}

void connector_start(struct connector *c)
{
    for (uint32_t i = 0; i < c->nhosts; i++) {
        if (!c->hosts[i].done)
            connector_start_host(&c->hosts[i]);
    }
}

void connector_cancel(struct connector *c, uint32_t host)
{
    struct connector_host *h = &c->hosts[host];
    if (!h->done)
        connector_drop(h);
}

/* ---- queries ---- */

bool connector_is_remote(const struct connector *c, uint32_t host)
{
    return c->hosts[host].remote;
}

const char *connector_host_state(const struct connector *c, uint32_t host)
{
    const struct connector_host *h = &c->hosts[host];
    if (h->file)
        return "sending files";
    if (h->staging.script_runs)
        return "looking for collrun-agent";
    const char *ssh = h->stream.ssh ? transport_ssh_state(h->stream.ssh) : NULL;
    return ssh ? ssh : "waiting for its shell to answer";
}

const char *connector_remote_path(struct connector *c, uint32_t host, const char *path)
{
    const char *root = c->hosts[host].staging.root;
    const char *there = *root ? staging_path(&c->bundle, path, root, &c->arena) : path;
    return there ? there : path;
}

void connector_set_interface(struct connector *c, const char *interface)
{
    c->desc.interface = interface;
    c->desc_root = NULL;
}

bool connector_choose_rdma(struct connector *c, bool every_host_has_rdma)
{
    c->desc_root = NULL;
    return plan_choose_rdma(&c->desc, every_host_has_rdma);
}

const struct buf *connector_host_desc(struct connector *c, uint32_t host)
{
    struct desc desc = c->desc;
    const char *root = c->hosts[host].staging.root;
    if (c->desc_root && strcmp(c->desc_root, root) == 0)
        return &c->desc_bytes;
    if (*root)
        staging_rewrite(&c->bundle, &c->desc, root, &c->arena, &desc);
    buf_clear(&c->desc_bytes);
    desc_encode(&desc, &c->desc_bytes);
    c->desc_root = root;
    return &c->desc_bytes;
}

/* ---- new and free ---- */

static int connector_init_hosts(struct connector *c, struct diag *d)
{
    bool ssh = false, stage = false;
    c->nhosts = c->desc.nhosts;
    c->hosts = arena_calloc(&c->arena, c->nhosts, sizeof *c->hosts);
    for (uint32_t i = 0; i < c->nhosts; i++) {
        struct connector_host *h = &c->hosts[i];
        *h = (struct connector_host){.connector = c, .index = i, .spec = &c->job->hosts.nodes[i]};
        h->stream = (struct transport_stream){.read_fd = -1, .write_fd = -1, .err_fd = -1};
        h->reader.fd = h->writer.fd = h->errors.fd = -1;
        h->exit_timer = (struct loop_timer){.fired = connector_on_exit_timeout, .owner = h};
        buf_init(&h->out);
        buf_init(&h->staging.in);
        h->remote = h->spec->transport.kind.v != JOB_TRANSPORT_LOCAL;
        ssh = ssh || h->spec->transport.kind.v == JOB_TRANSPORT_SSH;
        stage = stage || h->remote;
    }
    int rc = COLLRUN_OK;
    if (stage && c->job->stage.v == JOB_STAGE_AUTO)
        rc = staging_bundle_make(&c->bundle, &c->desc, c->prefix, &c->arena, d);
    if (rc == COLLRUN_OK && ssh) {
        c->ssh = ssh_pool_new(c->job, d);
        rc = c->ssh ? COLLRUN_OK : d->code;
    }
    return rc;
}

struct connector *connector_new(struct loop *loop, const struct job *job, const struct desc *desc,
                                const struct connector_hooks *hooks, FILE *verbose, struct diag *d)
{
    struct connector *c = xcalloc(1, sizeof *c);
    *c = (struct connector){
        .loop = loop, .job = job, .desc = *desc, .hooks = *hooks, .verbose = verbose};
    arena_init(&c->arena);
    buf_init(&c->desc_bytes);
    const char *top = prefix_path(&c->arena, ".", d);
    c->prefix = top ? arena_strndup(&c->arena, top, strlen(top) - 2) : NULL;
    if (!c->prefix || connector_init_hosts(c, d) != COLLRUN_OK) {
        connector_free(c);
        return NULL;
    }
    return c;
}

void connector_free(struct connector *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->hosts && i < c->nhosts; i++) {
        struct connector_host *h = &c->hosts[i];
        connector_cancel(c, i);
        loop_unwatch(c->loop, &h->errors);
        if (h->stream.err_fd >= 0)
            close(h->stream.err_fd);
        staging_fini(&h->staging);
        buf_fini(&h->out);
    }
    ssh_pool_free(c->ssh);
    staging_bundle_free(&c->bundle);
    buf_fini(&c->desc_bytes);
    arena_fini(&c->arena);
    free(c);
}

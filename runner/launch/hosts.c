/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a run: their streams, their end, their silence, and frames to their ranks. A frame
 * for several ranks crosses the stream to a host once; its agent fans it out. A host is lost when
 * its stream ends without a BYE, or when its agent, which sends a heartbeat every second, is
 * silent.
 */
#include "launch/supervise.h"

#include "base/reap.h"
#include "launch/muster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SECOND_NS 1000000000ull
/* Of an agent that sends a heartbeat every second. On this machine only a stopped or starved agent
 * is silent, so there is time; a connection that is cut should be told of soon. */
#define LOCAL_SILENCE_NS (15 * SECOND_NS)
#define REMOTE_SILENCE_NS (4 * SECOND_NS - SECOND_NS / 4)

/* ---- frames to ranks ---- */

void hosts_send_all(struct supervisor *s, uint16_t type, const void *payload, size_t len)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (conn_is_open(&s->hosts[h].conn))
            conn_send(&s->hosts[h].conn, type, WIRE_HOST, s->desc->attempt, payload, len);
    }
}

static void send_many(struct host *host, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload)
{
    struct supervisor *s = host->run;
    struct buf *out = conn_out(&host->conn);
    uint32_t here = 0, last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->desc->ranks[ranks[i]].host == host->index) {
            here++;
            last = ranks[i];
        }
    }
    if (!here)
        return;
    size_t len = buf_pending(payload);
    const void *bytes = payload->data + payload->start;
    if (here == 1) {
        conn_send(&host->conn, type, last, s->desc->attempt, bytes, len);
        return;
    }
    size_t mark = wire_begin(out, WIRE_MANY, WIRE_HOST, s->desc->attempt);
    buf_put_u32(out, here);
    for (uint32_t i = 0; i < n; i++) {
        if (s->desc->ranks[ranks[i]].host == host->index)
            buf_put_u32(out, ranks[i]);
    }
    buf_put_u16(out, type);
    buf_put(out, bytes, len);
    wire_end(out, mark);
    conn_flush(&host->conn);
}

void hosts_send_ranks(struct supervisor *s, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (conn_is_open(&s->hosts[h].conn))
            send_many(&s->hosts[h], ranks, n, type, payload);
    }
}

void hosts_tell_traffic(const struct supervisor *s)
{
    uint64_t messages = 0, bytes = 0;
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        messages += s->hosts[h].conn.sends + s->hosts[h].conn.received;
        bytes += s->hosts[h].conn.written;
    }
    fprintf(s->options->report->out,
            "collrun: %llu messages to and from %u host%s, %.1f KiB sent\n",
            (unsigned long long)messages, s->desc->nhosts, s->desc->nhosts == 1 ? "" : "s",
            (double)bytes / 1024.0);
}

/* ---- the end of a stream ---- */

static void host_lost(struct host *host, const char *how)
{
    if (!host->has_job) {
        muster_lost(host, how);
        return;
    }
    struct supervisor *s = host->run;
    struct diag d;
    char ranks[128];
    uint32_t n = 0, *list = calloc(s->desc->nranks, sizeof *list);
    host->lost = true;
    conn_close(&host->conn);
    for (uint32_t i = 0; i < s->desc->nranks; i++) {
        if (s->desc->ranks[i].host != host->index)
            continue;
        if (list)
            list[n++] = i;
        output_end_rank(s->output, i);
        rdv_rank_gone(s->rdv, i, "was lost with its host");
    }
    ranks_format(ranks, sizeof ranks, list, n);
    free(list);
    diag_set(&d, COLLRUN_ERR_PEER_FAILED, "host %s lost, with rank%s %s: %s",
             s->desc->hosts[host->index].name, n == 1 ? "" : "s", ranks, how);
    if (s->ladder < LADDER_QUIT)
        supervisor_trouble(s, CAUSE_HOST_LOST, 127, &d);
    supervisor_end_if_over(s);
}

/* The process that carried the stream tells more than the stream. */
static void describe_end(struct host *host, const struct diag *why, char *how, size_t size)
{
    struct supervisor *s = host->run;
    int status = host->pid_status;
    supervisor_note_stop(s);
    bool remote = reach_is_remote(s->reach, host->index);
    if (remote && s->stopped_ns > RUNNER_SILENCE_MS * 1000000ull &&
        now_ns() - s->resumed_ns < 5 * SECOND_NS) {
        snprintf(how, size, "collrun itself was stopped for %.0f s, so its agent there gave it up",
                 (double)s->stopped_ns / 1e9);
        return;
    }
    if (remote && reach_why(s->reach, host->index, how, size))
        return;
    if (host->pid && reap_closed(host->pid, &status))
        host->pid = 0;
    if (why->code)
        snprintf(how, size, "%.200s", why->text);
    else if (!host->pid && WIFSIGNALED(status))
        snprintf(how, size, "its collrun-agent was killed by signal %d (SIG%s)", WTERMSIG(status),
                 sigabbrev_np(WTERMSIG(status)));
    else if (!host->pid)
        snprintf(how, size, "its collrun-agent exited with code %d", WEXITSTATUS(status));
    else
        snprintf(how, size, "its collrun-agent closed the connection");
}

static void on_host_closed(struct conn *c, const struct diag *why)
{
    struct host *host = c->owner;
    char how[400];
    describe_end(host, why, how, sizeof how);
    host_lost(host, how);
}

void supervisor_child_ended(struct supervisor *s, pid_t pid, int status)
{
    if (s->reach)
        reach_child_ended(s->reach, pid, status);
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (s->hosts[h].pid == pid) {
            s->hosts[h].pid = 0;
            s->hosts[h].pid_status = status;
        }
    }
}

/* ---- its beginning ---- */

int supervisor_add_host(struct supervisor *s, uint32_t index, int read_fd, int write_fd, pid_t pid,
                        struct diag *d)
{
    struct host *host = &s->hosts[index];
    host->run = s;
    host->index = index;
    host->pid = pid;
    host->heard_ns = now_ns();
    host->conn.frame = supervisor_on_frame;
    host->conn.on_closed = on_host_closed;
    host->conn.owner = host;
    return conn_open(&host->conn, s->loop, read_fd, write_fd, d);
}

/* ---- silence ---- */

void supervisor_tell_alive(struct host *host, uint32_t limit_ms)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, limit_ms);
    if (conn_is_open(&host->conn))
        conn_send(&host->conn, WIRE_ALIVE, WIRE_HOST, host->run->desc->attempt, b.data, b.len);
    buf_fini(&b);
}

void host_check(struct host *host, uint64_t now)
{
    struct supervisor *s = host->run;
    bool remote = reach_is_remote(s->reach, host->index);
    uint64_t silence = now - host->heard_ns;
    char how[160];
    if (silence > (remote ? REMOTE_SILENCE_NS : LOCAL_SILENCE_NS)) {
        snprintf(how, sizeof how, "no sign of life for %.0f s%s", (double)silence / 1e9,
                 remote ? " (the connection is cut, or the host is frozen or overloaded)"
                        : " from its collrun-agent");
        host_lost(host, how);
    } else if (remote) {
        supervisor_tell_alive(host, RUNNER_SILENCE_MS);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_state.h"

#include "base/wire_fields.h"
#include "xalloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int run_state_init(struct run_state *run, const struct attempt *a, struct diag *d)
{
    const struct desc *desc = a->desc;
    *run = (struct run_state){.job = a->job,
                              .desc = desc,
                              .options = a->options,
                              .rundir = a->rundir,
                              .trace = a->trace,
                              .begin_ns = now_ns()};
    arena_init(&run->arena);
    run->hosts = arena_calloc(&run->arena, desc->nhosts, sizeof *run->hosts);
    run->ranks = arena_calloc(&run->arena, desc->nranks, sizeof *run->ranks);
    run->loop = loop_new();
    for (uint32_t w = 0; w < desc->nworkloads; w++)
        for (uint32_t i = 0; desc->workloads[w].command.n && i < desc->workloads[w].ranks.n; i++)
            run->ranks[desc->workloads[w].ranks.items[i]].command = true;
    return run->loop ? COLLRUN_OK : diag_sys(d, errno, "cannot make an epoll instance");
}

void run_state_fini(struct run_state *run)
{
    for (uint32_t i = 0; run->ranks && i < run->desc->nranks; i++)
        rank_state_fini(&run->ranks[i]);
    loop_free(run->loop);
    arena_fini(&run->arena);
}

void run_state_log(const struct run_state *run, const char *text)
{
    if (run->options->verbose)
        fprintf(run->options->report->out, "collrun: %.3f s: %s\n",
                (double)(now_ns() - run->begin_ns) / 1e9, text);
}

/* ---- hosts ---- */

/* No less: this process may be stopped for a few seconds without the loss of its hosts. */
enum { RUNNER_SILENCE_MIN_MS = 10000 };

uint32_t hosts_runner_silence_ms(const struct run_state *run)
{
    int64_t ms = run->job->timeouts.silence.v / 1000000;
    return ms > RUNNER_SILENCE_MIN_MS ? (uint32_t)ms : RUNNER_SILENCE_MIN_MS;
}

void hosts_send_all(struct run_state *run, uint16_t type, const struct buf *payload)
{
    const struct buf none = {0};
    for (uint32_t h = 0; h < run->desc->nhosts; h++)
        conn_send_buf(&run->hosts[h].conn, type, WIRE_HOST, run->desc->attempt,
                      payload ? payload : &none);
}

static void hosts_multicast(struct run_state *run, struct host *host, const uint32_t *ranks,
                            uint32_t n, uint16_t type, const struct buf *payload)
{
    uint32_t *here = xmalloc((n + 1) * sizeof *here), nhere = 0;
    for (uint32_t i = 0; i < n; i++)
        if (run->desc->ranks[ranks[i]].host == host->index)
            here[nhere++] = ranks[i];
    if (nhere == 1)
        conn_send_buf(&host->conn, type, here[0], run->desc->attempt, payload);
    if (nhere > 1) {
        struct buf *out = conn_out(&host->conn);
        const size_t mark = wire_begin(out, WIRE_MULTICAST, WIRE_HOST, run->desc->attempt);
        wire_put_multicast(out, &(struct wire_multicast){.ranks = {here, nhere},
                                                         .type = type,
                                                         .payload = {payload->data + payload->start,
                                                                     buf_pending(payload)}});
        conn_end(&host->conn, mark);
        conn_flush(&host->conn);
    }
    free(here);
}

void hosts_send_ranks(struct run_state *run, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload)
{
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        if (conn_is_open(&run->hosts[h].conn))
            hosts_multicast(run, &run->hosts[h], ranks, n, type, payload);
    }
}

static void hosts_send_signal_to(struct run_state *run, int sig, bool warning)
{
    struct buf b;
    buf_init(&b);
    wire_put_signal(&b, &(struct wire_signal){(uint32_t)sig, warning});
    hosts_send_all(run, WIRE_SIGNAL, &b);
    buf_fini(&b);
}

void hosts_send_signal(struct run_state *run, int sig)
{
    hosts_send_signal_to(run, sig, false);
}

void hosts_send_warning(struct run_state *run, int sig)
{
    hosts_send_signal_to(run, sig, true);
}

static void hosts_send_number(struct run_state *run, uint32_t host, uint16_t type, uint32_t number)
{
    unsigned char payload[4];
    for (int i = 0; i < 4; i++)
        payload[i] = (unsigned char)(number >> (8 * i));
    if (conn_is_open(&run->hosts[host].conn))
        conn_send(&run->hosts[host].conn, type, WIRE_HOST, run->desc->attempt, payload,
                  sizeof payload);
}

void hosts_send_credit(struct run_state *run, uint32_t host, uint32_t bytes)
{
    hosts_send_number(run, host, WIRE_CREDIT, bytes);
}

void hosts_send_keepalive(struct run_state *run, uint32_t host, uint32_t limit_ms)
{
    struct conn *conn = &run->hosts[host].conn;
    if (!conn_is_open(conn))
        return;
    struct buf b;
    buf_init(&b);
    wire_put_keepalive(&b, &(struct wire_keepalive){limit_ms, now_ns()});
    conn_send_buf(conn, WIRE_KEEPALIVE, WIRE_HOST, run->desc->attempt, &b);
    buf_fini(&b);
}

bool hosts_all_gone(const struct run_state *run)
{
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        if ((!run->hosts[h].bye && !run->hosts[h].lost) || run->hosts[h].exit_by_ns)
            return false;
    }
    return true;
}

void hosts_stop_loop_if_gone(struct run_state *run)
{
    if (hosts_all_gone(run))
        loop_stop(run->loop);
}

void hosts_close_all(struct run_state *run)
{
    for (uint32_t h = 0; run->hosts && h < run->desc->nhosts; h++)
        conn_close(&run->hosts[h].conn);
}

void hosts_log_traffic(const struct run_state *run)
{
    uint64_t messages = 0, bytes = 0;
    if (!run->options->verbose || !run->hosts)
        return;
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        messages += run->hosts[h].conn.sends + run->hosts[h].conn.received;
        bytes += run->hosts[h].conn.written;
    }
    fprintf(run->options->report->out,
            "collrun: %llu messages to and from %u host%s, %.1f KiB sent\n",
            (unsigned long long)messages, run->desc->nhosts, run->desc->nhosts == 1 ? "" : "s",
            (double)bytes / 1024.0);
}

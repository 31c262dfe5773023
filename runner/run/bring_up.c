/* SPDX-License-Identifier: Apache-2.0 */
#include "run/bring_up.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/wire_fields.h"
#include "build_id.h"
#include "connect/agent_log.h"
#include "report/json_value.h"
#include "report/output.h"
#include "run/run_state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- all hosts have answered ---- */

/* Ranks that share a machine use its loopback, with any transport. */
static bool bring_up_is_one_machine(const struct run_state *run)
{
    for (uint32_t h = 1; h < run->desc->nhosts; h++) {
        if (strcmp(run->hosts[h].machine, run->hosts[0].machine) != 0)
            return false;
    }
    return run->hosts[0].machine[0];
}

static bool bring_up_has_rdma(const struct run_state *run)
{
    for (uint32_t h = 0; h < run->desc->nhosts; h++)
        if (!run->hosts[h].rdma[0])
            return false;
    return true;
}

static void bring_up_send_job(struct bring_up *b, struct host *host, bool one_machine)
{
    uint32_t attempt = b->run->desc->attempt;
    const struct buf *desc = connector_host_desc(b->connector, host->index);
    struct buf *out = conn_out(&host->conn);
    size_t mark = wire_begin(out, WIRE_CREDIT, WIRE_HOST, attempt);
    wire_put_credit(out, &(struct wire_credit){OUTPUT_CREDIT});
    conn_end(&host->conn, mark);
    mark = wire_begin(out, WIRE_JOB, WIRE_HOST, attempt);
    wire_put_job(out, &(struct wire_job){.host = host->index,
                                         .engine = "",
                                         .one_machine = one_machine,
                                         .desc = {desc->data, desc->len}});
    conn_end(&host->conn, mark);
    conn_flush(&host->conn);
    debug_log(DEBUG_STAGE, "host %s gets the job: %zu bytes, interface %s%s",
              b->run->desc->hosts[host->index].name, desc->len, b->run->desc->interface,
              one_machine ? ", all hosts are one machine" : "");
    host->has_job = true;
}

static void bring_up_send_jobs(struct bring_up *b)
{
    struct run_state *run = b->run;
    bool one_machine = bring_up_is_one_machine(run);
    if (one_machine && strcmp(run->desc->interface, "default-route") == 0)
        connector_set_interface(b->connector, "loopback");
    run_state_log(run, "all hosts have answered");
    if (connector_choose_rdma(b->connector, bring_up_has_rdma(run)))
        run_state_log(run, "every host has an active RDMA device: `auto` takes the backend for it");
    for (uint32_t h = 0; h < run->desc->nhosts && b->stop->step == STOP_NONE; h++)
        bring_up_send_job(b, &run->hosts[h], one_machine);
}

/* ---- a host cannot be used ---- */

static void bring_up_report_first(struct bring_up *b)
{
    if (b->unreachable.n)
        stop_on_job_failure(b->stop, CAUSE_HOST_LOST, EXIT_HOST, &b->unreachable.items[0]);
}

static void bring_up_on_grace_over(struct loop_timer *t)
{
    bring_up_report_first(t->owner);
}

/* Called after every answer and every failure: decides once no host is pending. */
static void bring_up_check(struct bring_up *b)
{
    struct run_state *run = b->run;
    uint32_t pending = 0;
    if (b->stop->step != STOP_NONE)
        return;
    for (uint32_t h = 0; h < run->desc->nhosts; h++)
        pending += !run->hosts[h].lost && (!run->hosts[h].has_hello || run->hosts[h].ended);
    if (!pending && diag_list_count(&b->unreachable))
        bring_up_report_first(b);
    else if (!pending)
        bring_up_send_jobs(b);
    else if (diag_list_count(&b->unreachable) && !b->grace.at_ns)
        loop_timer_set(run->loop, &b->grace, (uint64_t)run->job->ssh.connect_timeout.v);
}

static void bring_up_on_failed(void *ctx, uint32_t index, const struct diag *d)
{
    struct bring_up *b = ctx;
    debug_log(DEBUG_STAGE, "host %s cannot be used, status %d: %s", b->run->desc->hosts[index].name,
              d->code, d->text);
    b->run->hosts[index].lost = true;
    diag_list_add(&b->unreachable, d);
    rundir_event(b->run->rundir, "host_unreachable",
                 json_pack("{s:s, s:o}", "host", b->run->desc->hosts[index].name, "error",
                           json_value_text(d->text)));
    bring_up_check(b);
}

static void bring_up_on_ready(void *ctx, uint32_t index, const struct transport_stream *stream,
                              const struct buf *early)
{
    struct bring_up *b = ctx;
    struct host *host = &b->run->hosts[index];
    struct diag d;
    diag_init(&d);
    if (b->open_stream(b->ctx, host, stream, &d) != COLLRUN_OK) {
        diag_wrap(&d, "host %s", b->run->desc->hosts[index].name);
        bring_up_on_failed(b, index, &d);
        return;
    }
    if (buf_pending(early))
        conn_feed(&host->conn, early->data + early->start, buf_pending(early));
}

void bring_up_on_lost(struct bring_up *b, struct host *host, int code, const char *how)
{
    struct diag d;
    conn_close(&host->conn);
    if (host->lost || host->bye)
        return;
    diag_set(&d, code, "host %s: %s", b->run->desc->hosts[host->index].name, how);
    d.loc = b->run->job->hosts.nodes[host->index].name.loc;
    bring_up_on_failed(b, host->index, &d);
}

/* ---- HELLO ---- */

static void bring_up_reject(struct bring_up *b, struct host *host, struct diag *d)
{
    d->loc = b->run->job->hosts.nodes[host->index].name.loc;
    conn_close(&host->conn);
    bring_up_on_failed(b, host->index, d);
}

static void bring_up_reject_build(struct bring_up *b, struct host *host, const char *build,
                                  uint32_t version)
{
    struct diag d;
    diag_set(
        &d, COLLRUN_ERR_UNAVAILABLE,
        "host %s has a different build of collrun-agent (%s, protocol %u; this is %s, protocol %d)",
        b->run->desc->hosts[host->index].name, build, version, COLLRUN_BUILD_ID, WIRE_VERSION);
    diag_hint(&d, "install the same build on that host, or set stage: auto");
    bring_up_reject(b, host, &d);
}

static void bring_up_reject_frame(struct bring_up *b, struct host *host)
{
    struct diag d;
    wire_malformed(&d, "HELLO frame of host %s", b->run->desc->hosts[host->index].name);
    bring_up_reject(b, host, &d);
}

void bring_up_on_hello(struct bring_up *b, struct host *host, const struct wire_frame *f)
{
    struct run_state *run = b->run;
    struct wire_hello hello;
    struct timespec now;
    if (host->has_hello)
        return;
    const bool good = wire_read_hello(f, &run->arena, &hello);
    /* A HELLO of another build may have other fields behind its name. */
    if (hello.build[0] && (strcmp(hello.magic, WIRE_MAGIC) != 0 || hello.version != WIRE_VERSION ||
                           strcmp(hello.build, COLLRUN_BUILD_ID) != 0)) {
        bring_up_reject_build(b, host, hello.build, hello.version);
        return;
    }
    if (!good) {
        bring_up_reject_frame(b, host);
        return;
    }
    host->machine = hello.machine;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t here_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    host->clock_offset_ns = (int64_t)(hello.realtime_ns - here_ns);
    host->rdma = hello.rdma;
    host->has_hello = true;
    debug_log(DEBUG_STAGE,
              "host %s: HELLO, build %s, protocol %u, machine %s, clock %+.6f s, RDMA "
              "\"%s\"",
              run->desc->hosts[host->index].name, hello.build, hello.version, host->machine,
              (double)host->clock_offset_ns / 1e9, host->rdma);
    bool remote = connector_is_remote(b->connector, host->index);
    agent_log_start(&host->conn, run->desc->hosts[host->index].name);
    hosts_send_keepalive(run, host->index, remote ? hosts_runner_silence_ms(run) : 0);
    rundir_event(run->rundir, "host",
                 json_pack("{s:s, s:f}", "host", run->desc->hosts[host->index].name,
                           "clock_offset_s", (double)host->clock_offset_ns / 1e9));
    bring_up_check(b);
}

/* ---- start and end ---- */

int bring_up_start(struct bring_up *b, struct diag *d)
{
    const struct connector_hooks hooks = {
        .ready = bring_up_on_ready, .failed = bring_up_on_failed, .ctx = b};
    struct run_state *run = b->run;
    diag_list_init(&b->unreachable);
    b->grace = (struct loop_timer){.fired = bring_up_on_grace_over, .owner = b};
    FILE *verbose = run->options->verbose ? run->options->report->out : NULL;
    b->connector = connector_new(run->loop, run->job, run->desc, &hooks, verbose, d);
    if (!b->connector)
        return d->code;
    connector_start(b->connector);
    return COLLRUN_OK;
}

void bring_up_fini(struct bring_up *b)
{
    if (!b->connector)
        return;
    connector_free(b->connector);
    b->connector = NULL;
    diag_list_fini(&b->unreachable);
}

void bring_up_cancel(struct bring_up *b)
{
    struct run_state *run = b->run;
    loop_timer_clear(run->loop, &b->grace);
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        struct host *host = &run->hosts[h];
        if (host->has_job || host->lost)
            continue;
        if (b->connector)
            connector_cancel(b->connector, h);
        conn_close(&host->conn);
        host->bye = true;
    }
    hosts_stop_loop_if_gone(run);
}

void bring_up_missing_text(const struct bring_up *b, char *out, size_t size)
{
    const struct run_state *run = b->run;
    size_t used = 0;
    uint32_t more = 0;
    out[0] = '\0';
    for (uint32_t h = 0; b->connector && h < run->desc->nhosts; h++) {
        if (run->hosts[h].has_hello || run->hosts[h].lost)
            continue;
        int n = snprintf(out + used, size - used, "%s%s (%s)", used ? ", " : "",
                         run->desc->hosts[h].name, connector_host_state(b->connector, h));
        if (n < 0 || (size_t)n >= size - used) {
            out[used] = '\0';
            more++;
            continue;
        }
        used += (size_t)n;
    }
    if (more && used + 24 < size)
        snprintf(out + used, size - used, " and %u more", more);
}

void bring_up_print_unreachable(const struct bring_up *b)
{
    const struct report *report = b->run->options->report;
    for (uint32_t i = 1; i < b->unreachable.n; i++) {
        struct diag d = b->unreachable.items[i];
        d.loc.file = d.loc.line && !d.loc.file ? b->run->job->file : d.loc.file;
        report_diag(report, &d);
    }
    if (b->unreachable.dropped)
        fprintf(report->out, "collrun: and %u more hosts\n", b->unreachable.dropped);
}

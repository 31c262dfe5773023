/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts as they come: a stream (reach.c), HELLO, and when the last one is there, JOB to all.
 */
#include "launch/muster.h"

#include "build_id.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- everybody is there ---- */

/* Ranks that share a machine meet on its loopback, however it was reached. */
static bool one_machine(const struct supervisor *s)
{
    for (uint32_t h = 1; h < s->desc->nhosts; h++) {
        if (strcmp(s->hosts[h].machine, s->hosts[0].machine) != 0)
            return false;
    }
    return s->hosts[0].machine[0];
}

static void send_job(struct host *host, bool together)
{
    struct supervisor *s = host->run;
    const struct buf *desc = reach_desc(s->reach, host->index);
    struct diag d;
    if (!desc) {
        diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job's description");
        supervisor_trouble(s, CAUSE_LAUNCH, 125, &d);
        return;
    }
    struct buf *out = conn_out(&host->conn);
    size_t mark = wire_begin(out, WIRE_CREDIT, WIRE_HOST, s->desc->attempt);
    buf_put_u32(out, OUTPUT_CREDIT);
    wire_end(out, mark);
    mark = wire_begin(out, WIRE_JOB, WIRE_HOST, s->desc->attempt);
    buf_put_u32(out, host->index);
    buf_put_str(out, "");
    buf_put_u8(out, together);
    buf_put_blob(out, desc->data, desc->len);
    wire_end(out, mark);
    conn_flush(&host->conn);
    host->has_job = true;
}

static void go(struct supervisor *s)
{
    bool together = one_machine(s);
    if (together && strcmp(s->desc->interface, "default-route") == 0)
        reach_set_interface(s->reach, "loopback");
    if (s->options->verbose)
        fprintf(s->options->report->out, "collrun: %.3f s: all hosts have answered\n",
                (double)(now_ns() - s->live.begin_ns) / 1e9);
    for (uint32_t h = 0; h < s->desc->nhosts && s->ladder == LADDER_NONE; h++)
        send_job(&s->hosts[h], together);
}

/* ---- or not ---- */

static void give_up_on_missing(struct supervisor *s)
{
    if (s->unreached.n)
        supervisor_trouble(s, CAUSE_HOST_LOST, 127, &s->unreached.items[0]);
}

static void on_patience_over(struct loop_timer *t)
{
    give_up_on_missing(t->owner);
}

static void settle(struct supervisor *s)
{
    uint32_t missing = 0;
    if (s->ladder != LADDER_NONE)
        return;
    for (uint32_t h = 0; h < s->desc->nhosts; h++)
        missing += !s->hosts[h].greeted && !s->hosts[h].lost;
    if (!missing && s->unreached.n)
        give_up_on_missing(s);
    else if (!missing)
        go(s);
    else if (s->unreached.n && !s->patience.at_ns)
        loop_timer_set(s->loop, &s->patience, (uint64_t)s->job->ssh.connect_timeout.v);
}

static void on_failed(void *ctx, uint32_t index, const struct diag *d)
{
    struct supervisor *s = ctx;
    s->hosts[index].lost = true;
    diag_list_add(&s->unreached, d);
    rundir_event(s->rundir, "host_unreachable",
                 json_pack("{s:s, s:s}", "host", s->desc->hosts[index].name, "error", d->text));
    settle(s);
}

static void on_ready(void *ctx, uint32_t index, const struct transport_stream *stream,
                     const struct buf *early)
{
    struct supervisor *s = ctx;
    struct diag d;
    diag_init(&d);
    if (supervisor_add_host(s, index, stream->read_fd, stream->write_fd, stream->pid, &d) !=
        COLLRUN_OK) {
        diag_wrap(&d, "host %s", s->desc->hosts[index].name);
        on_failed(s, index, &d);
        return;
    }
    if (buf_pending(early))
        conn_feed(&s->hosts[index].conn, early->data + early->start, buf_pending(early));
}

/* ---- HELLO ---- */

static void refuse_build(struct host *host, const char *build, uint32_t version)
{
    struct supervisor *s = host->run;
    const char *name = s->desc->hosts[host->index].name;
    struct diag d;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE,
             "host %s has another build of collrun-agent (%s, protocol %u; here %s, protocol %d)",
             name, build, version, COLLRUN_BUILD_ID, WIRE_VERSION);
    diag_hint(&d, "install the same build there, or say stage: auto");
    d.loc = s->job->hosts.nodes[host->index].name.loc;
    conn_close(&host->conn);
    on_failed(s, host->index, &d);
}

void muster_hello(struct host *host, const struct wire_frame *f)
{
    struct supervisor *s = host->run;
    struct reader r;
    struct timespec now;
    reader_init(&r, f->payload, f->len);
    const char *magic = read_str(&r, &s->arena);
    uint32_t version = read_u32(&r);
    const char *build = read_str(&r, &s->arena);
    if (host->greeted)
        return;
    if (strcmp(magic, WIRE_MAGIC) != 0 || version != WIRE_VERSION ||
        strcmp(build, COLLRUN_BUILD_ID) != 0) {
        refuse_build(host, build, version);
        return;
    }
    read_str(&r, &s->arena); /* its own name */
    read_u32(&r);            /* pid */
    read_u32(&r);            /* cpus */
    host->machine = read_str(&r, &s->arena);
    clock_gettime(CLOCK_REALTIME, &now);
    host->clock_offset_ns =
        (int64_t)read_u64(&r) - ((int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec);
    host->greeted = true;
    supervisor_tell_alive(host, reach_is_remote(s->reach, host->index) ? RUNNER_SILENCE_MS : 0);
    rundir_event(s->rundir, "host",
                 json_pack("{s:s, s:f}", "host", s->desc->hosts[host->index].name, "clock_offset_s",
                           (double)host->clock_offset_ns / 1e9));
    settle(s);
}

void muster_lost(struct host *host, const char *how)
{
    struct supervisor *s = host->run;
    struct diag d;
    conn_close(&host->conn);
    if (host->lost || host->bye)
        return;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s", s->desc->hosts[host->index].name, how);
    d.loc = s->job->hosts.nodes[host->index].name.loc;
    on_failed(s, host->index, &d);
}

/* ---- begin and end ---- */

int muster_begin(struct supervisor *s, struct diag *d)
{
    const struct reach_hooks hooks = {.ready = on_ready, .failed = on_failed, .ctx = s};
    diag_list_init(&s->unreached);
    s->patience = (struct loop_timer){.fired = on_patience_over, .owner = s};
    FILE *verbose = s->options->verbose ? s->options->report->out : NULL;
    s->reach = reach_new(s->loop, s->job, s->desc, &hooks, verbose, d);
    if (!s->reach)
        return d->code;
    reach_start(s->reach);
    return COLLRUN_OK;
}

void muster_end(struct supervisor *s)
{
    reach_free(s->reach);
    s->reach = NULL;
    diag_list_fini(&s->unreached);
}

void muster_give_up(struct supervisor *s)
{
    loop_timer_clear(s->loop, &s->patience);
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        struct host *host = &s->hosts[h];
        if (host->has_job || host->lost)
            continue;
        if (s->reach)
            reach_give_up(s->reach, h);
        conn_close(&host->conn);
        host->bye = true;
    }
    if (supervisor_over(s))
        loop_stop(s->loop);
}

void muster_late(const struct supervisor *s, char *out, size_t size)
{
    size_t used = 0;
    uint32_t more = 0;
    out[0] = '\0';
    for (uint32_t h = 0; s->reach && h < s->desc->nhosts; h++) {
        if (s->hosts[h].greeted || s->hosts[h].lost)
            continue;
        int n = snprintf(out + used, size - used, "%s%s (%s)", used ? ", " : "",
                         s->desc->hosts[h].name, reach_phase(s->reach, h));
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

void muster_report(const struct supervisor *s, const struct report *report)
{
    for (uint32_t i = 1; i < s->unreached.n; i++) {
        struct diag d = s->unreached.items[i];
        d.loc.file = d.loc.line && !d.loc.file ? s->job->file : d.loc.file;
        report_diag(report, &d);
    }
    if (s->unreached.dropped)
        fprintf(report->out, "collrun: and %u more hosts\n", s->unreached.dropped);
}

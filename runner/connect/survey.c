/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/survey.h"

#include "base/exit_codes.h"
#include "base/wire_fields.h"
#include "build_id.h"
#include "connect/agent_log.h"

#include <collrun/types.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void survey_report(struct survey *s, struct diag *d, struct diag_loc loc, int exit_code)
{
    if (!d->loc.line)
        d->loc = loc;
    d->loc.file = d->loc.line && !d->loc.file ? s->job->file : d->loc.file;
    report_diag(s->report, d);
    if (exit_code > s->exit_code)
        s->exit_code = exit_code;
}

static const char *survey_name(const struct survey_host *h)
{
    return h->survey->desc->hosts[h->index].name;
}

static void survey_drop(struct survey_host *h, bool other_build)
{
    h->lost = true;
    conn_close(&h->conn);
    h->survey->hooks.on_lost(h->survey->hooks.ctx, h, other_build);
}

/* ---- HELLO ---- */

static void survey_refuse_build(struct survey_host *h)
{
    struct survey *s = h->survey;
    struct diag d;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE,
             "host %s has a different build of collrun-agent (%s; this is %s)", survey_name(h),
             h->build, COLLRUN_BUILD_ID);
    diag_hint(&d, "install the same build on that host, or set stage: auto");
    survey_report(s, &d, s->job->hosts.nodes[h->index].name.loc, EXIT_HOST);
    survey_drop(h, true);
}

/* So that the agent ends if this process does not. */
static void survey_send_keepalive(struct survey_host *h)
{
    struct buf b;
    buf_init(&b);
    wire_put_keepalive(&b, &(struct wire_keepalive){
                               .limit_ms = (uint32_t)(h->survey->job->timeouts.start.v / 1000000)});
    conn_send_buf(&h->conn, WIRE_KEEPALIVE, WIRE_HOST, 0, &b);
    buf_fini(&b);
}

static void survey_on_hello(struct survey_host *h, const struct wire_frame *f)
{
    struct survey *s = h->survey;
    struct wire_hello hello;
    struct timespec now;
    /* A HELLO of another build may have other fields behind its name. */
    const bool good = wire_read_hello(f, &s->arena, &hello);
    snprintf(h->build, sizeof h->build, "%s", hello.build);
    if (!good || hello.version != WIRE_VERSION || strcmp(h->build, COLLRUN_BUILD_ID) != 0) {
        survey_refuse_build(h);
        return;
    }
    snprintf(h->machine, sizeof h->machine, "%s", hello.machine);
    snprintf(h->rdma, sizeof h->rdma, "%s", hello.rdma);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t here = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    h->clock_offset_ns = (int64_t)(hello.realtime_ns - here);
    h->reached_ns = now_ns() - s->begin_ns;
    h->answered = true;
    survey_send_keepalive(h);
    agent_log_start(&h->conn, survey_name(h));
    s->hooks.on_hello(s->hooks.ctx, h);
}

bool survey_all_answered(const struct survey *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->hosts[i].lost && !s->hosts[i].answered)
            return false;
    return true;
}

static bool survey_is_one_machine(const struct survey *s)
{
    for (uint32_t i = 1; i < s->n; i++)
        if (strcmp(s->hosts[i].machine, s->hosts[0].machine) != 0)
            return false;
    return s->hosts[0].machine[0];
}

static bool survey_has_rdma(const struct survey *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->hosts[i].rdma[0])
            return false;
    return true;
}

bool survey_choose_network(struct survey *s)
{
    const bool one_machine = survey_is_one_machine(s);
    connector_choose_rdma(s->connector, survey_has_rdma(s));
    if (one_machine && strcmp(s->desc->interface, "default-route") == 0)
        connector_set_interface(s->connector, "loopback");
    return one_machine;
}

/* ---- streams ---- */

static void survey_on_frame(struct conn *c, const struct wire_frame *f)
{
    struct survey_host *h = c->owner;
    if (f->type == WIRE_HELLO && !h->answered)
        survey_on_hello(h, f);
    else if (f->type == WIRE_DEBUG_LINES)
        agent_log_relay(f);
    else if (h->answered)
        h->survey->hooks.on_frame(h->survey->hooks.ctx, h, f);
}

static void survey_on_failed(void *ctx, uint32_t host, const struct diag *why)
{
    struct survey *s = ctx;
    struct diag d = *why;
    survey_report(s, &d, s->job->hosts.nodes[host].name.loc, EXIT_HOST);
    survey_drop(&s->hosts[host], false);
}

static void survey_on_closed(struct conn *c, const struct diag *why)
{
    struct survey_host *h = c->owner;
    struct diag d;
    char how[400];
    const bool nonsense = why->code == COLLRUN_ERR_INVALID;
    if (!nonsense)
        connector_await_exit(h->survey->connector, h->index);
    if (nonsense || !connector_end_reason(h->survey->connector, h->index, how, sizeof how))
        snprintf(how, sizeof how, "%.390s", why->code ? why->text : "its collrun-agent exited");
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s", survey_name(h), how);
    survey_on_failed(h->survey, h->index, &d);
}

static void survey_on_ready(void *ctx, uint32_t host, const struct transport_stream *stream,
                            const struct buf *early)
{
    struct survey *s = ctx;
    struct survey_host *h = &s->hosts[host];
    struct diag d;
    diag_init(&d);
    h->conn = (struct conn){.peer = survey_name(h),
                            .frame = survey_on_frame,
                            .on_closed = survey_on_closed,
                            .owner = h,
                            .reads_text = stream->text};
    if (conn_open(&h->conn, s->loop, stream->read_fd, stream->write_fd, &d) != COLLRUN_OK)
        survey_on_failed(s, host, &d);
    else if (buf_pending(early))
        conn_feed(&h->conn, early->data + early->start, buf_pending(early));
}

static void survey_on_time_out(struct loop_timer *t)
{
    struct survey *s = t->owner;
    for (uint32_t i = 0; i < s->n; i++) {
        struct survey_host *h = &s->hosts[i];
        struct diag d;
        if (h->lost || !s->hooks.owes(s->hooks.ctx, h))
            continue;
        diag_set(&d, COLLRUN_ERR_TIMEOUT, "host %s did not answer in time (%s)", survey_name(h),
                 h->answered ? "examining it" : connector_host_state(s->connector, i));
        survey_report(s, &d, s->job->timeouts.start.loc, EXIT_HOST);
    }
    survey_stop(s);
}

/* ---- the whole ---- */

int survey_init(struct survey *s, bool verbose, struct diag *d)
{
    const struct connector_hooks hooks = {
        .ready = survey_on_ready, .failed = survey_on_failed, .ctx = s};
    arena_init(&s->arena);
    s->begin_ns = now_ns();
    s->n = s->desc->nhosts;
    s->hosts = arena_calloc(&s->arena, s->n, sizeof *s->hosts);
    s->loop = loop_new();
    if (!s->loop)
        return diag_sys(d, errno, "cannot make an epoll instance");
    for (uint32_t i = 0; i < s->n; i++) {
        s->hosts[i].survey = s;
        s->hosts[i].index = i;
    }
    s->limit = (struct loop_timer){.fired = survey_on_time_out, .owner = s};
    s->connector = connector_new(s->loop, s->job, s->desc, &hooks, verbose ? stderr : NULL, d);
    return s->connector ? COLLRUN_OK : d->code;
}

void survey_fini(struct survey *s)
{
    for (uint32_t i = 0; s->hosts && i < s->n; i++)
        conn_close(&s->hosts[i].conn);
    connector_free(s->connector);
    loop_free(s->loop);
    arena_fini(&s->arena);
}

void survey_stop(struct survey *s)
{
    s->stopped = true;
    loop_stop(s->loop);
}

void survey_run(struct survey *s)
{
    signal(SIGPIPE, SIG_IGN);
    loop_timer_set(s->loop, &s->limit, (uint64_t)s->job->timeouts.start.v);
    connector_start(s->connector);
    if (!s->stopped)
        loop_run(s->loop);
}

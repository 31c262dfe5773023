/* SPDX-License-Identifier: Apache-2.0
 *
 * Three rounds with all hosts at once: HELLO (build, clock), EXAMINE (interface, backends, plugins,
 * programs, devices), PROBE (each host connects to the others, at most to the next sixteen). A host
 * that fails a round is left out of the next.
 */
#include "connect/doctor.h"

#include "base/conn.h"
#include "base/exit_codes.h"
#include "base/parse.h"
#include "build_id.h"
#include "connect/connector.h"
#include "connect/doctor_items.h"

#include <collrun/types.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

enum { COLUMNS = 9, CELL = 160, PROBED_MAX = 16 };

struct doctor_host {
    struct doctor *doctor;
    uint32_t index;
    struct conn conn;
    bool answered, lost, examined, probed;
    char machine[160], address[64], rdma[96];
    uint16_t port;
    char cells[COLUMNS][CELL];
};

struct doctor {
    struct loop *loop;
    struct loop_timer limit;
    const struct job *job;
    const struct desc *desc;
    const struct report *report;
    struct connector *connector;
    struct arena arena;
    struct doctor_host *hosts;
    uint32_t n;
    int exit_code;
    uint64_t begin_ns;
};

enum column { HOST, REACHED, VERSION, CLOCK, INTERFACE, REACHABLE, DEVICES, BACKENDS, PLUGINS };
static const char *const titles[COLUMNS] = {"host",    "reached",   "version",
                                            "clock",   "interface", "reachable",
                                            "devices", "backends",  "workloads"};

static void doctor_send_examine(struct doctor *doc);
static void doctor_send_probes(struct doctor *doc);

/* ---- reports and cells ---- */

static void doctor_report(struct doctor_host *p, struct diag *d, struct diag_loc loc, int exit_code)
{
    struct doctor *doc = p->doctor;
    if (!d->loc.line)
        d->loc = loc;
    d->loc.file = d->loc.line && !d->loc.file ? doc->job->file : d->loc.file;
    report_diag(doc->report, d);
    if (exit_code > doc->exit_code)
        doc->exit_code = exit_code;
}

static void doctor_set_cell(struct doctor_host *p, enum column c, const char *text)
{
    snprintf(p->cells[c], CELL, "%s", text);
}

/* "gloo 1.0 (Gloo 0.5), shm (no)" */
static void doctor_append_cell(struct doctor_host *p, enum column c, const char *name,
                               const char *what)
{
    size_t len = strlen(p->cells[c]);
    snprintf(p->cells[c] + len, CELL - len, "%s%s%s%s", len ? ", " : "", name, *what ? " " : "",
             what);
}

/* ---- rounds ---- */

static bool doctor_all(const struct doctor *doc, bool (*done)(const struct doctor_host *))
{
    for (uint32_t i = 0; i < doc->n; i++) {
        if (!doc->hosts[i].lost && !done(&doc->hosts[i]))
            return false;
    }
    return true;
}

static bool doctor_has_answered(const struct doctor_host *p)
{
    return p->answered;
}

static bool doctor_is_examined(const struct doctor_host *p)
{
    return p->examined;
}

static bool doctor_is_probed(const struct doctor_host *p)
{
    return p->probed;
}

/* Called after every event; starts the next round once all hosts have finished the last one. */
static void doctor_advance(struct doctor *doc)
{
    bool begun = false, probing = false;
    for (uint32_t i = 0; i < doc->n; i++) {
        begun = begun || doc->hosts[i].examined;
        probing = probing || doc->hosts[i].probed;
    }
    if (doctor_all(doc, doctor_is_probed))
        loop_stop(doc->loop);
    else if (!probing && doctor_all(doc, doctor_is_examined))
        doctor_send_probes(doc);
    else if (!begun && doctor_all(doc, doctor_has_answered))
        doctor_send_examine(doc);
}

static void doctor_drop_host(struct doctor_host *p)
{
    p->lost = true;
    conn_close(&p->conn);
    doctor_advance(p->doctor);
}

/* ---- HELLO ---- */

static void doctor_on_hello(struct doctor_host *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct reader r;
    struct diag d;
    struct timespec now;
    struct buf b;
    char text[CELL];
    reader_init(&r, f->payload, f->len);
    read_str(&r, &doc->arena);
    uint32_t version = read_u32(&r);
    const char *build = read_str(&r, &doc->arena);
    if (version != WIRE_VERSION || strcmp(build, COLLRUN_BUILD_ID) != 0) {
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE,
                 "host %s has a different build of collrun-agent (%s; this is %s)",
                 doc->desc->hosts[p->index].name, build, COLLRUN_BUILD_ID);
        diag_hint(&d, "install the same build on that host, or set stage: auto");
        doctor_set_cell(p, REACHED, "build differs");
        doctor_set_cell(p, VERSION, build);
        doctor_report(p, &d, doc->job->hosts.nodes[p->index].name.loc, EXIT_HOST);
        doctor_drop_host(p);
        return;
    }
    read_str(&r, &doc->arena);
    read_u32(&r);
    read_u32(&r);
    snprintf(p->machine, sizeof p->machine, "%s", read_str(&r, &doc->arena));
    uint64_t there = read_u64(&r);
    snprintf(p->rdma, sizeof p->rdma, "%s", read_str(&r, &doc->arena));
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t here = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(text, sizeof text, "%.2f s", (double)(now_ns() - doc->begin_ns) / 1e9);
    doctor_set_cell(p, REACHED, text);
    doctor_set_cell(p, CLOCK, format_offset((int64_t)(there - here), text));
    snprintf(text, sizeof text, "%s %s", COLLRUN_VERSION, build);
    doctor_set_cell(p, VERSION, text);
    p->answered = true;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)(doc->job->timeouts.start.v / 1000000));
    conn_send(&p->conn, WIRE_KEEPALIVE, WIRE_HOST, 0, b.data, b.len);
    buf_fini(&b);
    doctor_advance(doc);
}

/* ---- EXAMINE ---- */

static bool doctor_is_one_machine(const struct doctor *doc)
{
    for (uint32_t i = 1; i < doc->n; i++) {
        if (strcmp(doc->hosts[i].machine, doc->hosts[0].machine) != 0)
            return false;
    }
    return doc->hosts[0].machine[0];
}

static void doctor_put_plugin(struct buf *out, const struct doctor *doc, const char *kind,
                              const char *path, uint32_t host)
{
    char text[4200];
    snprintf(text, sizeof text, "%s:%s", kind, connector_remote_path(doc->connector, host, path));
    buf_put_str(out, text);
}

/* The backends that declare the kinds of memory, whose devices the host lists. */
static void doctor_put_kinds(struct buf *out, const struct doctor *doc, uint32_t host)
{
    const struct desc *desc = doc->desc;
    buf_put_u32(out, desc->nkinds);
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        const struct desc_kind *kind = &desc->kinds[i];
        const char *path = desc->backends[kind->backend].path;
        buf_put_str(out, connector_remote_path(doc->connector, host, path));
        buf_put_str(out, kind->mask);
        buf_put_str(out, kind->title);
    }
}

/* The backends that the groups use, then the plugins of workloads. */
static void doctor_put_plugins(struct buf *out, const struct doctor *doc, uint32_t host)
{
    const struct desc *desc = doc->desc;
    buf_put_u32(out, doctor_items_count_plugins(desc));
    for (uint32_t k = 0; k < desc->nbackends; k++)
        if (!desc->backends[k].unused)
            doctor_put_plugin(out, doc, "backend", desc->backends[k].path, host);
    for (uint32_t k = 0; k < desc->nworkloads; k++)
        if (!desc->workloads[k].command.n)
            doctor_put_plugin(out, doc, "workload", desc->workloads[k].plugin, host);
}

static bool doctor_has_rdma(const struct doctor *doc)
{
    for (uint32_t i = 0; i < doc->n; i++)
        if (!doc->hosts[i].rdma[0])
            return false;
    return true;
}

static void doctor_send_examine(struct doctor *doc)
{
    connector_choose_rdma(doc->connector, doctor_has_rdma(doc));
    bool one_machine = doctor_is_one_machine(doc);
    const struct desc *desc = doc->desc;
    const char *interface =
        one_machine && strcmp(desc->interface, "default-route") == 0 ? "loopback" : desc->interface;
    for (uint32_t i = 0; i < doc->n; i++) {
        struct doctor_host *p = &doc->hosts[i];
        if (p->lost)
            continue;
        struct buf b;
        buf_init(&b);
        buf_put_str(&b, interface);
        buf_put_u8(&b, one_machine);
        doctor_put_kinds(&b, doc, i);
        doctor_put_plugins(&b, doc, i);
        doctor_items_put_commands(&b, connector_host_desc(doc->connector, i), i, &doc->arena);
        conn_send(&p->conn, WIRE_EXAMINE, WIRE_HOST, 0, b.data, b.len);
        buf_fini(&b);
    }
}

/* The description of one plugin: a line of JSON, or nothing if its process crashed or hung. */
static void doctor_on_plugin(struct doctor_host *p, uint32_t k, const char *text, size_t len)
{
    const struct desc *desc = p->doctor->desc;
    uint32_t nbackends = doctor_items_count_backends(desc);
    bool backend = k < nbackends;
    const struct desc_backend *b = backend ? doctor_items_backend(desc, k) : NULL;
    const struct desc_workload *w = backend ? NULL : doctor_items_workload(desc, k - nbackends);
    const char *name = backend ? b->name : w->name;
    struct diag_loc loc = backend ? b->loc : w->loc;
    json_t *root = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
    const char *error = json_string_value(json_object_get(root, "error"));
    if (!root)
        error = "the process that loads it crashes or hangs";
    else if (!error && backend && !json_is_true(json_object_get(root, "available")))
        error = json_string_value(json_object_get(root, "reason"));
    bool good = !error && (!backend || json_is_true(json_object_get(root, "available")));
    const char *version = backend ? json_string_value(json_object_get(root, "version")) : NULL;
    doctor_append_cell(p, backend ? BACKENDS : PLUGINS, name,
                       !good     ? "(no)"
                       : version ? version
                                 : "");
    if (!good) {
        struct diag d;
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s %s: %s", desc->hosts[p->index].name,
                 backend ? "backend" : "workload", name, error ? error : "not available");
        doctor_report(p, &d, loc, EXIT_LOAD);
    }
    json_decref(root);
}

static void doctor_on_command(struct doctor_host *p, const struct desc_workload *w,
                              const char *error)
{
    struct diag d;
    doctor_append_cell(p, PLUGINS, w->name, *error ? "(no)" : "");
    if (!*error)
        return;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: command of %s: %s",
             p->doctor->desc->hosts[p->index].name, w->name, error);
    doctor_report(p, &d, w->loc, EXIT_LOAD);
}

/* The host must have every device that the plan gives to its ranks. */
static void doctor_check_devices(struct doctor_host *p, uint32_t kind, uint32_t have,
                                 const char *text)
{
    const struct desc *desc = p->doctor->desc;
    uint32_t need = 0;
    struct diag d;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        const struct desc_rank *r = &desc->ranks[rank];
        for (uint32_t i = 0; r->host == p->index && i < r->ndevices; i++)
            if (r->devices[i].kind == kind && r->devices[i].index >= need)
                need = r->devices[i].index + 1;
    }
    if (need <= have)
        return;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: its ranks need %u %ss, but it has %s",
             desc->hosts[p->index].name, need, desc->kinds[kind].title, text);
    doctor_report(p, &d, desc->hosts[p->index].devices_loc, EXIT_JOB);
}

static void doctor_on_devices(struct doctor_host *p, struct reader *r)
{
    uint32_t n = read_count(r, 8);
    for (uint32_t kind = 0; kind < n && kind < p->doctor->desc->nkinds; kind++) {
        uint32_t have = read_u32(r);
        const char *text = read_str(r, &p->doctor->arena);
        if (have)
            doctor_append_cell(p, DEVICES, text, "");
        doctor_check_devices(p, kind, have, text);
    }
    if (!p->cells[DEVICES][0])
        doctor_set_cell(p, DEVICES, "none");
}

static void doctor_on_examined(struct doctor_host *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct reader r;
    struct diag d;
    char text[CELL];
    reader_init(&r, f->payload, f->len);
    snprintf(p->address, sizeof p->address, "%s", read_str(&r, &doc->arena));
    const char *interface = read_str(&r, &doc->arena);
    p->port = read_u16(&r);
    wire_read_diag(&r, &doc->arena, &d);
    if (d.code != COLLRUN_OK) {
        diag_wrap(&d, "host %s", doc->desc->hosts[p->index].name);
        doctor_set_cell(p, INTERFACE, "no");
        doctor_report(p, &d, doc->job->network.interface.loc, EXIT_JOB);
    } else {
        snprintf(text, sizeof text, "%s %s", interface, p->address);
        doctor_set_cell(p, INTERFACE, text);
        if (p->rdma[0])
            doctor_append_cell(p, INTERFACE, p->rdma, "");
    }
    doctor_on_devices(p, &r);
    uint32_t n = read_count(&r, 4);
    for (uint32_t k = 0; k < n && k < doctor_items_count_plugins(doc->desc); k++) {
        size_t len;
        const void *line = read_blob(&r, &len);
        doctor_on_plugin(p, k, line ? line : "", len);
    }
    n = read_count(&r, 4);
    for (uint32_t k = doctor_items_next_command(doc->desc, p->index, 0);
         n-- && k < doc->desc->nworkloads;
         k = doctor_items_next_command(doc->desc, p->index, k + 1))
        doctor_on_command(p, &doc->desc->workloads[k], read_str(&r, &doc->arena));
    p->examined = true;
    doctor_advance(doc);
}

/* ---- PROBE ---- */

static uint32_t doctor_probe_target(const struct doctor *doc, uint32_t host, uint32_t i)
{
    return (host + 1 + i) % doc->n;
}

static uint32_t doctor_probe_count(const struct doctor *doc)
{
    return doc->n - 1 < PROBED_MAX ? doc->n - 1 : PROBED_MAX;
}

static void doctor_send_probes(struct doctor *doc)
{
    for (uint32_t h = 0; h < doc->n; h++) {
        struct doctor_host *p = &doc->hosts[h];
        if (p->lost)
            continue;
        struct buf b;
        buf_init(&b);
        buf_put_u32(&b, doctor_probe_count(doc));
        for (uint32_t i = 0; i < doctor_probe_count(doc); i++) {
            const struct doctor_host *other = &doc->hosts[doctor_probe_target(doc, h, i)];
            buf_put_str(&b, other->address);
            buf_put_u16(&b, other->lost ? 0 : other->port);
        }
        conn_send(&p->conn, WIRE_PROBE, WIRE_HOST, 0, b.data, b.len);
        buf_fini(&b);
    }
}

static void doctor_on_probed(struct doctor_host *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, 4);
    for (uint32_t i = 0; i < n && i < doctor_probe_count(doc); i++) {
        const char *why = read_str(&r, &doc->arena);
        struct doctor_host *other = &doc->hosts[doctor_probe_target(doc, p->index, i)];
        struct diag d;
        if (!*why)
            continue;
        doctor_set_cell(other, REACHABLE, "no");
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s cannot connect to host %s at %s: %s",
                 doc->desc->hosts[p->index].name, doc->desc->hosts[other->index].name,
                 other->address, why);
        diag_hint(&d, "network.interface selects another network");
        doctor_report(p, &d, doc->job->network.interface.loc, EXIT_HOST);
    }
    p->probed = true;
    doctor_advance(doc);
}

/* ---- streams ---- */

static void doctor_on_frame(struct conn *c, const struct wire_frame *f)
{
    struct doctor_host *p = c->owner;
    if (f->type == WIRE_HELLO && !p->answered)
        doctor_on_hello(p, f);
    else if (f->type == WIRE_EXAMINED && !p->examined)
        doctor_on_examined(p, f);
    else if (f->type == WIRE_PROBED && !p->probed)
        doctor_on_probed(p, f);
}

static void doctor_on_failed(void *ctx, uint32_t host, const struct diag *why)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host];
    struct diag d = *why;
    doctor_set_cell(p, REACHED, "no");
    doctor_report(p, &d, doc->job->hosts.nodes[host].name.loc, EXIT_HOST);
    doctor_drop_host(p);
}

static void doctor_on_closed(struct conn *c, const struct diag *why)
{
    struct doctor_host *p = c->owner;
    struct diag d;
    char how[400];
    if (!connector_end_reason(p->doctor->connector, p->index, how, sizeof how))
        snprintf(how, sizeof how, "%.390s", why->code ? why->text : "its collrun-agent exited");
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s", p->doctor->desc->hosts[p->index].name,
             how);
    doctor_on_failed(p->doctor, p->index, &d);
}

static void doctor_on_ready(void *ctx, uint32_t host, const struct transport_stream *stream,
                            const struct buf *early)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host];
    struct diag d;
    diag_init(&d);
    p->conn = (struct conn){.frame = doctor_on_frame, .on_closed = doctor_on_closed, .owner = p};
    if (conn_open(&p->conn, doc->loop, stream->read_fd, stream->write_fd, &d) != COLLRUN_OK)
        doctor_on_failed(doc, host, &d);
    else if (buf_pending(early))
        conn_feed(&p->conn, early->data + early->start, buf_pending(early));
}

static void doctor_on_time_out(struct loop_timer *t)
{
    struct doctor *doc = t->owner;
    for (uint32_t i = 0; i < doc->n; i++) {
        struct doctor_host *p = &doc->hosts[i];
        struct diag d;
        if (p->probed || p->lost)
            continue;
        diag_set(&d, COLLRUN_ERR_TIMEOUT, "host %s did not answer in time (%s)",
                 doc->desc->hosts[i].name,
                 p->answered ? "examining it" : connector_host_state(doc->connector, i));
        doctor_set_cell(p, REACHED, p->answered ? p->cells[REACHED] : "no");
        doctor_report(p, &d, doc->job->timeouts.start.loc, EXIT_HOST);
    }
    loop_stop(doc->loop);
}

/* ---- the table ---- */

static void doctor_print_row(const char *const *cells, const size_t *widths)
{
    for (unsigned c = 0; c < COLUMNS; c++)
        printf("%-*s%s", c + 1 < COLUMNS ? (int)widths[c] : 0, cells[c],
               c + 1 < COLUMNS ? "  " : "\n");
}

static void doctor_print_table(const struct doctor *doc)
{
    size_t widths[COLUMNS];
    for (unsigned c = 0; c < COLUMNS; c++) {
        widths[c] = strlen(titles[c]);
        for (uint32_t i = 0; i < doc->n; i++) {
            size_t len = strlen(doc->hosts[i].cells[c]);
            widths[c] = len > widths[c] ? len : widths[c];
        }
    }
    doctor_print_row(titles, widths);
    for (uint32_t i = 0; i < doc->n; i++) {
        const char *cells[COLUMNS];
        for (unsigned c = 0; c < COLUMNS; c++)
            cells[c] = doc->hosts[i].cells[c][0] ? doc->hosts[i].cells[c] : "-";
        doctor_print_row(cells, widths);
    }
}

/* ---- all rounds ---- */

static int doctor_init(struct doctor *doc, bool verbose, struct diag *d)
{
    const struct connector_hooks hooks = {
        .ready = doctor_on_ready, .failed = doctor_on_failed, .ctx = doc};
    arena_init(&doc->arena);
    doc->n = doc->desc->nhosts;
    doc->hosts = arena_calloc(&doc->arena, doc->n, sizeof *doc->hosts);
    doc->loop = loop_new();
    if (!doc->hosts || !doc->loop)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < doc->n; i++) {
        doc->hosts[i].doctor = doc;
        doc->hosts[i].index = i;
        doctor_set_cell(&doc->hosts[i], HOST, doc->desc->hosts[i].name);
        if (doc->n > 1)
            doctor_set_cell(&doc->hosts[i], REACHABLE, "yes");
    }
    doc->limit = (struct loop_timer){.fired = doctor_on_time_out, .owner = doc};
    doc->connector =
        connector_new(doc->loop, doc->job, doc->desc, &hooks, verbose ? stderr : NULL, d);
    return doc->connector ? COLLRUN_OK : d->code;
}

static void doctor_fini(struct doctor *doc)
{
    for (uint32_t i = 0; doc->hosts && i < doc->n; i++)
        conn_close(&doc->hosts[i].conn);
    connector_free(doc->connector);
    loop_free(doc->loop);
    arena_fini(&doc->arena);
}

int doctor_run(const struct job *job, const struct desc *desc, const struct report *report,
               bool verbose)
{
    struct doctor doc = {.job = job, .desc = desc, .report = report, .begin_ns = now_ns()};
    struct diag d;
    diag_init(&d);
    signal(SIGPIPE, SIG_IGN);
    if (doctor_init(&doc, verbose, &d) != COLLRUN_OK) {
        report_diag(report, &d);
        doctor_fini(&doc);
        return EXIT_INTERNAL;
    }
    loop_timer_set(doc.loop, &doc.limit, (uint64_t)job->timeouts.start.v);
    connector_start(doc.connector);
    if (!doctor_all(&doc, doctor_is_probed))
        loop_run(doc.loop);
    for (uint32_t i = 0; i < doc.n; i++) {
        if (doc.hosts[i].lost || !doc.hosts[i].port)
            doctor_set_cell(&doc.hosts[i], REACHABLE, "-");
    }
    doctor_print_table(&doc);
    doctor_fini(&doc);
    return doc.exit_code;
}

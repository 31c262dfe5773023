/* SPDX-License-Identifier: Apache-2.0
 *
 * Three rounds with all hosts at once: HELLO (build, clock), EXAMINE (interface, backends, plugins,
 * GPUs), PROBE (each host connects to every other one, or to the next sixteen where there are
 * more). A host that fails a round sits out the next.
 */
#include "launch/doctor.h"

#include "base/conn.h"
#include "base/parse.h"
#include "build_id.h"
#include "launch/reach.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

enum { COLUMNS = 9, CELL = 160, PROBED_MAX = 16 };

struct patient {
    struct doctor *doctor;
    uint32_t index;
    struct conn conn;
    bool here, lost, examined, probed;
    char machine[160], address[64];
    uint16_t port;
    char cells[COLUMNS][CELL];
};

struct doctor {
    struct loop *loop;
    struct loop_timer limit;
    const struct job *job;
    const struct desc *desc;
    const struct report *report;
    struct reach *reach;
    struct arena arena;
    struct patient *hosts;
    uint32_t n;
    int exit_code;
    uint64_t begin_ns;
};

enum column { HOST, REACHED, VERSION, CLOCK, INTERFACE, REACHABLE, GPUS, BACKENDS, PLUGINS };
static const char *const titles[COLUMNS] = {"host",  "reached",   "version",
                                            "clock", "interface", "reachable",
                                            "gpus",  "backends",  "workloads"};

static void begin_examination(struct doctor *doc);
static void begin_probes(struct doctor *doc);

/* ---- problems ---- */

static void problem(struct patient *p, struct diag *d, struct diag_loc loc, int exit_code)
{
    struct doctor *doc = p->doctor;
    if (!d->loc.line)
        d->loc = loc;
    d->loc.file = d->loc.line && !d->loc.file ? doc->job->file : d->loc.file;
    report_diag(doc->report, d);
    if (exit_code > doc->exit_code)
        doc->exit_code = exit_code;
}

static void cell(struct patient *p, enum column c, const char *text)
{
    snprintf(p->cells[c], CELL, "%s", text);
}

/* "gloo 1.0 (Gloo 0.5), shm (no)" */
static void append(struct patient *p, enum column c, const char *name, const char *what)
{
    size_t len = strlen(p->cells[c]);
    snprintf(p->cells[c] + len, CELL - len, "%s%s%s%s", len ? ", " : "", name, *what ? " " : "",
             what);
}

/* ---- rounds ---- */

static bool all(const struct doctor *doc, bool (*done)(const struct patient *))
{
    for (uint32_t i = 0; i < doc->n; i++) {
        if (!doc->hosts[i].lost && !done(&doc->hosts[i]))
            return false;
    }
    return true;
}

static bool is_here(const struct patient *p)
{
    return p->here;
}

static bool is_examined(const struct patient *p)
{
    return p->examined;
}

static bool is_probed(const struct patient *p)
{
    return p->probed;
}

/* Called after every event; moves on when the slowest has. */
static void advance(struct doctor *doc)
{
    bool begun = false, probing = false;
    for (uint32_t i = 0; i < doc->n; i++) {
        begun = begun || doc->hosts[i].examined;
        probing = probing || doc->hosts[i].probed;
    }
    if (all(doc, is_probed))
        loop_stop(doc->loop);
    else if (!probing && all(doc, is_examined))
        begin_probes(doc);
    else if (!begun && all(doc, is_here))
        begin_examination(doc);
}

static void lose(struct patient *p)
{
    p->lost = true;
    conn_close(&p->conn);
    advance(p->doctor);
}

/* ---- HELLO ---- */

static void on_hello(struct patient *p, const struct wire_frame *f)
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
                 "host %s has another build of collrun-agent (%s; here %s)",
                 doc->desc->hosts[p->index].name, build, COLLRUN_BUILD_ID);
        diag_hint(&d, "install the same build there, or say stage: auto");
        cell(p, REACHED, "build differs");
        cell(p, VERSION, build);
        problem(p, &d, doc->job->hosts.nodes[p->index].name.loc, 127);
        lose(p);
        return;
    }
    read_str(&r, &doc->arena);
    read_u32(&r);
    read_u32(&r);
    snprintf(p->machine, sizeof p->machine, "%s", read_str(&r, &doc->arena));
    uint64_t there = read_u64(&r);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t here = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(text, sizeof text, "%.2f s", (double)(now_ns() - doc->begin_ns) / 1e9);
    cell(p, REACHED, text);
    cell(p, CLOCK, format_offset((int64_t)(there - here), text));
    snprintf(text, sizeof text, "%s %s", COLLRUN_VERSION, build);
    cell(p, VERSION, text);
    p->here = true;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)(doc->job->timeouts.start.v / 1000000));
    conn_send(&p->conn, WIRE_ALIVE, WIRE_HOST, 0, b.data, b.len);
    buf_fini(&b);
    advance(doc);
}

/* ---- EXAMINE ---- */

static bool one_machine(const struct doctor *doc)
{
    for (uint32_t i = 1; i < doc->n; i++) {
        if (strcmp(doc->hosts[i].machine, doc->hosts[0].machine) != 0)
            return false;
    }
    return doc->hosts[0].machine[0];
}

static void put_plugin(struct buf *out, const struct doctor *doc, const char *kind,
                       const char *path, uint32_t host)
{
    char text[4200];
    snprintf(text, sizeof text, "%s:%s", kind, reach_path(doc->reach, host, path));
    buf_put_str(out, text);
}

static void begin_examination(struct doctor *doc)
{
    bool together = one_machine(doc);
    const struct desc *desc = doc->desc;
    const char *interface =
        together && strcmp(desc->interface, "default-route") == 0 ? "loopback" : desc->interface;
    for (uint32_t i = 0; i < doc->n; i++) {
        struct patient *p = &doc->hosts[i];
        if (p->lost)
            continue;
        struct buf b;
        buf_init(&b);
        buf_put_str(&b, interface);
        buf_put_u8(&b, together);
        buf_put_u32(&b, desc->nbackends + desc->nworkloads);
        for (uint32_t k = 0; k < desc->nbackends; k++)
            put_plugin(&b, doc, "backend", desc->backends[k].path, i);
        for (uint32_t k = 0; k < desc->nworkloads; k++)
            put_plugin(&b, doc, "workload", desc->workloads[k].plugin, i);
        conn_send(&p->conn, WIRE_EXAMINE, WIRE_HOST, 0, b.data, b.len);
        buf_fini(&b);
    }
}

/* One plugin's answer: a line of JSON, or nothing when it ended the process that loaded it. */
static void take_plugin(struct patient *p, uint32_t k, const char *text, size_t len)
{
    const struct desc *desc = p->doctor->desc;
    bool backend = k < desc->nbackends;
    const char *name = backend ? desc->backends[k].name : desc->workloads[k - desc->nbackends].name;
    struct diag_loc loc =
        backend ? desc->backends[k].loc : desc->workloads[k - desc->nbackends].loc;
    json_t *root = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
    const char *error = json_string_value(json_object_get(root, "error"));
    if (!root)
        error = "it ends or hangs the process that loads it";
    else if (!error && backend && !json_is_true(json_object_get(root, "available")))
        error = json_string_value(json_object_get(root, "reason"));
    bool good = !error && (!backend || json_is_true(json_object_get(root, "available")));
    const char *version = backend ? json_string_value(json_object_get(root, "version")) : NULL;
    append(p, backend ? BACKENDS : PLUGINS, name, !good ? "(no)" : version ? version : "");
    if (!good) {
        struct diag d;
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s %s: %s", desc->hosts[p->index].name,
                 backend ? "backend" : "workload", name, error ? error : "not available");
        problem(p, &d, loc, 126);
    }
    json_decref(root);
}

/* The host has to have every GPU that the plan gives to its ranks. */
static void take_gpus(struct patient *p, struct reader *r)
{
    const struct desc *desc = p->doctor->desc;
    uint32_t have = read_u32(r), need = 0;
    const char *words = read_str(r, &p->doctor->arena);
    cell(p, GPUS, have ? words : "0");
    for (uint32_t rank = 0; rank < desc->nranks; rank++)
        for (uint32_t i = 0; desc->ranks[rank].host == p->index && i < desc->ranks[rank].ngpus; i++)
            if (desc->ranks[rank].gpus[i].index >= need)
                need = desc->ranks[rank].gpus[i].index + 1;
    if (need <= have)
        return;
    struct diag d;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: its ranks need %u GPUs, and it has %s",
             desc->hosts[p->index].name, need, words);
    problem(p, &d, desc->hosts[p->index].gpus_loc, 2);
}

static void on_examined(struct patient *p, const struct wire_frame *f)
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
        cell(p, INTERFACE, "no");
        problem(p, &d, doc->job->interface.loc, 2);
    } else {
        snprintf(text, sizeof text, "%s %s", interface, p->address);
        cell(p, INTERFACE, text);
    }
    take_gpus(p, &r);
    uint32_t n = read_count(&r, 4);
    for (uint32_t k = 0; k < n && k < doc->desc->nbackends + doc->desc->nworkloads; k++) {
        size_t len;
        const void *line = read_blob(&r, &len);
        take_plugin(p, k, line ? line : "", len);
    }
    p->examined = true;
    advance(doc);
}

/* ---- PROBE ---- */

static uint32_t probed_by(const struct doctor *doc, uint32_t host, uint32_t i)
{
    return (host + 1 + i) % doc->n;
}

static uint32_t probes(const struct doctor *doc)
{
    return doc->n - 1 < PROBED_MAX ? doc->n - 1 : PROBED_MAX;
}

static void begin_probes(struct doctor *doc)
{
    for (uint32_t h = 0; h < doc->n; h++) {
        struct patient *p = &doc->hosts[h];
        if (p->lost)
            continue;
        struct buf b;
        buf_init(&b);
        buf_put_u32(&b, probes(doc));
        for (uint32_t i = 0; i < probes(doc); i++) {
            const struct patient *other = &doc->hosts[probed_by(doc, h, i)];
            buf_put_str(&b, other->address);
            buf_put_u16(&b, other->lost ? 0 : other->port);
        }
        conn_send(&p->conn, WIRE_PROBE, WIRE_HOST, 0, b.data, b.len);
        buf_fini(&b);
    }
}

static void on_probed(struct patient *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, 4);
    for (uint32_t i = 0; i < n && i < probes(doc); i++) {
        const char *why = read_str(&r, &doc->arena);
        struct patient *other = &doc->hosts[probed_by(doc, p->index, i)];
        struct diag d;
        if (!*why)
            continue;
        cell(other, REACHABLE, "no");
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s does not reach host %s at %s: %s",
                 doc->desc->hosts[p->index].name, doc->desc->hosts[other->index].name,
                 other->address, why);
        diag_hint(&d, "network.interface chooses another way");
        problem(p, &d, doc->job->interface.loc, 127);
    }
    p->probed = true;
    advance(doc);
}

/* ---- streams ---- */

static void on_frame(struct conn *c, const struct wire_frame *f)
{
    struct patient *p = c->owner;
    if (f->type == WIRE_HELLO && !p->here)
        on_hello(p, f);
    else if (f->type == WIRE_EXAMINED && !p->examined)
        on_examined(p, f);
    else if (f->type == WIRE_PROBED && !p->probed)
        on_probed(p, f);
}

static void on_failed(void *ctx, uint32_t host, const struct diag *why)
{
    struct doctor *doc = ctx;
    struct patient *p = &doc->hosts[host];
    struct diag d = *why;
    cell(p, REACHED, "no");
    problem(p, &d, doc->job->hosts.nodes[host].name.loc, 127);
    lose(p);
}

static void on_closed(struct conn *c, const struct diag *why)
{
    struct patient *p = c->owner;
    struct diag d;
    char how[400];
    if (!reach_why(p->doctor->reach, p->index, how, sizeof how))
        snprintf(how, sizeof how, "%.390s", why->code ? why->text : "its collrun-agent has ended");
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "host %s: %s", p->doctor->desc->hosts[p->index].name,
             how);
    on_failed(p->doctor, p->index, &d);
}

static void on_ready(void *ctx, uint32_t host, const struct transport_stream *stream,
                     const struct buf *early)
{
    struct doctor *doc = ctx;
    struct patient *p = &doc->hosts[host];
    struct diag d;
    diag_init(&d);
    p->conn = (struct conn){.frame = on_frame, .on_closed = on_closed, .owner = p};
    if (conn_open(&p->conn, doc->loop, stream->read_fd, stream->write_fd, &d) != COLLRUN_OK)
        on_failed(doc, host, &d);
    else if (buf_pending(early))
        conn_feed(&p->conn, early->data + early->start, buf_pending(early));
}

static void on_limit(struct loop_timer *t)
{
    struct doctor *doc = t->owner;
    for (uint32_t i = 0; i < doc->n; i++) {
        struct patient *p = &doc->hosts[i];
        struct diag d;
        if (p->probed || p->lost)
            continue;
        diag_set(&d, COLLRUN_ERR_TIMEOUT, "host %s has not answered in time (%s)",
                 doc->desc->hosts[i].name, p->here ? "examining it" : reach_phase(doc->reach, i));
        cell(p, REACHED, p->here ? p->cells[REACHED] : "no");
        problem(p, &d, doc->job->timeouts.start.loc, 127);
    }
    loop_stop(doc->loop);
}

/* ---- the table ---- */

static void print_row(const char *const *cells, const size_t *widths)
{
    for (unsigned c = 0; c < COLUMNS; c++)
        printf("%-*s%s", c + 1 < COLUMNS ? (int)widths[c] : 0, cells[c],
               c + 1 < COLUMNS ? "  " : "\n");
}

static void print_table(const struct doctor *doc)
{
    size_t widths[COLUMNS];
    for (unsigned c = 0; c < COLUMNS; c++) {
        widths[c] = strlen(titles[c]);
        for (uint32_t i = 0; i < doc->n; i++) {
            size_t len = strlen(doc->hosts[i].cells[c]);
            widths[c] = len > widths[c] ? len : widths[c];
        }
    }
    print_row(titles, widths);
    for (uint32_t i = 0; i < doc->n; i++) {
        const char *cells[COLUMNS];
        for (unsigned c = 0; c < COLUMNS; c++)
            cells[c] = doc->hosts[i].cells[c][0] ? doc->hosts[i].cells[c] : "-";
        print_row(cells, widths);
    }
}

/* ---- all of it ---- */

static int doctor_init(struct doctor *doc, bool verbose, struct diag *d)
{
    const struct reach_hooks hooks = {.ready = on_ready, .failed = on_failed, .ctx = doc};
    arena_init(&doc->arena);
    doc->n = doc->desc->nhosts;
    doc->hosts = arena_calloc(&doc->arena, doc->n, sizeof *doc->hosts);
    doc->loop = loop_new();
    if (!doc->hosts || !doc->loop)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < doc->n; i++) {
        doc->hosts[i].doctor = doc;
        doc->hosts[i].index = i;
        cell(&doc->hosts[i], HOST, doc->desc->hosts[i].name);
        if (doc->n > 1)
            cell(&doc->hosts[i], REACHABLE, "yes");
    }
    doc->limit = (struct loop_timer){.fired = on_limit, .owner = doc};
    doc->reach = reach_new(doc->loop, doc->job, doc->desc, &hooks, verbose ? stderr : NULL, d);
    return doc->reach ? COLLRUN_OK : d->code;
}

static void doctor_fini(struct doctor *doc)
{
    for (uint32_t i = 0; doc->hosts && i < doc->n; i++)
        conn_close(&doc->hosts[i].conn);
    reach_free(doc->reach);
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
        return 125;
    }
    loop_timer_set(doc.loop, &doc.limit, (uint64_t)job->timeouts.start.v);
    reach_start(doc.reach);
    if (!all(&doc, is_probed))
        loop_run(doc.loop);
    for (uint32_t i = 0; i < doc.n; i++) {
        if (doc.hosts[i].lost || !doc.hosts[i].port)
            cell(&doc.hosts[i], REACHABLE, "-");
    }
    print_table(&doc);
    doctor_fini(&doc);
    return doc.exit_code;
}

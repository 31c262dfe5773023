/* SPDX-License-Identifier: Apache-2.0
 *
 * Three rounds with all hosts at once: HELLO (build, clock), EXAMINE (interface, backends, plugins,
 * programs, devices), PROBE (each host connects to the others, at most to the next sixteen). A host
 * that fails a round is left out of the next.
 */
#include "connect/doctor.h"

#include "base/exit_codes.h"
#include "base/parse.h"
#include "base/wire_fields.h"
#include "connect/survey.h"

#include <collrun/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* ---- what hosts examine ---- */

static uint32_t doctor_items_count_backends(const struct desc *desc)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < desc->nbackends; k++)
        n += !desc->backends[k].unused;
    return n;
}

/* The count includes the backends. */
static uint32_t doctor_items_count_plugins(const struct desc *desc)
{
    uint32_t n = doctor_items_count_backends(desc);
    for (uint32_t k = 0; k < desc->nworkloads; k++)
        n += !desc->workloads[k].command.n;
    return n;
}

/* The backend number `k` of those that the groups use. */
static const struct desc_backend *doctor_items_backend(const struct desc *desc, uint32_t k)
{
    const struct desc_backend *b = desc->backends;
    while (b->unused || k--)
        b++;
    return b;
}

/* The workload number `k` of those that have a plugin. */
static const struct desc_workload *doctor_items_workload(const struct desc *desc, uint32_t k)
{
    const struct desc_workload *w = desc->workloads;
    while (w->command.n || k--)
        w++;
    return w;
}

/* ---- commands ---- */

/* The index of the next command, from `first` on, that a rank of the host runs; nworkloads: there
 * is none. */
static uint32_t doctor_items_next_command(const struct desc *desc, uint32_t host, uint32_t first)
{
    for (uint32_t i = first; i < desc->nworkloads; i++) {
        const struct desc_workload *w = &desc->workloads[i];
        for (uint32_t k = 0; w->command.n && k < w->ranks.n; k++)
            if (desc->ranks[w->ranks.items[k]].host == host)
                return i;
    }
    return desc->nworkloads;
}

static const char *doctor_items_find(const struct desc_kvs *pairs, const char *key)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->items[i].key, key) == 0)
            return pairs->items[i].value;
    return NULL;
}

/* PATH as job.yaml sets it; "": as the host has it. */
static const char *doctor_items_path(const struct desc *desc, const struct desc_workload *w)
{
    const struct desc_kvs *const places[] = {&w->env, &desc->env_set, &desc->env_pass};
    const char *path = NULL;
    for (size_t i = 0; !path && i < sizeof places / sizeof *places; i++)
        path = doctor_items_find(places[i], "PATH");
    return path ? path : "";
}

/* The working directory as the agent enters it (agent/command.c); "": that of the agent. */
static const char *doctor_items_folder(const struct desc *desc, const struct desc_workload *w,
                                       uint32_t host, struct arena *arena)
{
    const char *top = desc->hosts[host].workdir;
    if (w->workdir[0] == '/' || !w->workdir[0])
        return w->workdir[0] ? w->workdir : top;
    return arena_printf(arena, "%s/%s", top[0] ? top : w->folder, w->workdir);
}

/* The commands of a host. `bytes`: the encoded description for this host. */
static struct wire_list_command doctor_items_commands(const struct buf *bytes, uint32_t host,
                                                      struct arena *arena)
{
    struct desc desc = {0};
    struct diag d;
    uint32_t n = 0;
    diag_init(&d);
    if (!bytes || !buf_pending(bytes) ||
        desc_decode(arena, &desc, bytes->data + bytes->start, buf_pending(bytes), &d) != COLLRUN_OK)
        desc = (struct desc){0};
    struct wire_item_command *items = arena_calloc(arena, desc.nworkloads, sizeof *items);
    for (uint32_t i = doctor_items_next_command(&desc, host, 0); i < desc.nworkloads;
         i = doctor_items_next_command(&desc, host, i + 1)) {
        const struct desc_workload *w = &desc.workloads[i];
        const char *program = w->command.items[0], *path = doctor_items_path(&desc, w);
        /* A template in PATH has no value before there is a rank. */
        bool unknown = !strchr(program, '/') && strchr(path, '{');
        items[n++] =
            (struct wire_item_command){.program = unknown ? "" : program,
                                       .path = path,
                                       .folder = doctor_items_folder(&desc, w, host, arena)};
    }
    return (struct wire_list_command){items, n};
}

enum { COLUMNS = 9, CELL = 160, PROBED_MAX = 16 };

struct doctor_host {
    struct doctor *doctor;
    struct survey_host *at;
    uint32_t index;
    bool examined, probed;
    char address[64];
    uint16_t port;
    char cells[COLUMNS][CELL];
};

struct doctor {
    struct survey survey;
    const struct job *job;
    const struct desc *desc;
    struct arena arena;
    struct doctor_host *hosts;
    uint32_t n;
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
    survey_report(&p->doctor->survey, d, loc, exit_code);
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
        if (!doc->hosts[i].at->lost && !done(&doc->hosts[i]))
            return false;
    }
    return true;
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
        survey_stop(&doc->survey);
    else if (!probing && doctor_all(doc, doctor_is_examined))
        doctor_send_probes(doc);
    else if (!begun && survey_all_answered(&doc->survey))
        doctor_send_examine(doc);
}

/* ---- HELLO ---- */

static void doctor_on_hello(void *ctx, struct survey_host *host)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host->index];
    char text[CELL];
    snprintf(text, sizeof text, "%.2f s", (double)host->reached_ns / 1e9);
    doctor_set_cell(p, REACHED, text);
    /* This machine has one clock: what was measured is how busy its CPUs are. */
    bool here = doc->job->hosts.nodes[host->index].transport.kind.v == JOB_TRANSPORT_LOCAL;
    doctor_set_cell(p, CLOCK, format_offset(here ? 0 : host->clock_offset_ns, text));
    snprintf(text, sizeof text, "%s %s", COLLRUN_VERSION, host->build);
    doctor_set_cell(p, VERSION, text);
    doctor_advance(doc);
}

static void doctor_on_lost(void *ctx, struct survey_host *host, bool other_build)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host->index];
    doctor_set_cell(p, REACHED, other_build ? "build differs" : "no");
    if (other_build)
        doctor_set_cell(p, VERSION, host->build);
    doctor_advance(doc);
}

/* ---- EXAMINE ---- */

/* The backends that declare the kinds of memory, whose devices the host lists. */
static struct wire_list_kind doctor_kinds(struct doctor *doc, uint32_t host)
{
    const struct desc *desc = doc->desc;
    struct wire_item_kind *items = arena_calloc(&doc->arena, desc->nkinds, sizeof *items);
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        const struct desc_kind *kind = &desc->kinds[i];
        const char *path = desc->backends[kind->backend].path;
        const char *remote = connector_remote_path(doc->survey.connector, host, path);
        items[i] =
            (struct wire_item_kind){arena_strdup(&doc->arena, remote), kind->mask, kind->title};
    }
    return (struct wire_list_kind){items, desc->nkinds};
}

static const char *doctor_plugin(struct doctor *doc, const char *kind, const char *path,
                                 uint32_t host)
{
    return arena_printf(&doc->arena, "%s:%s", kind,
                        connector_remote_path(doc->survey.connector, host, path));
}

/* The backends that the groups use, then the plugins of workloads. */
static struct wire_list_text doctor_plugins(struct doctor *doc, uint32_t host)
{
    const struct desc *desc = doc->desc;
    struct wire_item_text *items =
        arena_calloc(&doc->arena, doctor_items_count_plugins(desc), sizeof *items);
    uint32_t n = 0;
    for (uint32_t k = 0; k < desc->nbackends; k++)
        if (!desc->backends[k].unused)
            items[n++].text = doctor_plugin(doc, "backend", desc->backends[k].path, host);
    for (uint32_t k = 0; k < desc->nworkloads; k++)
        if (!desc->workloads[k].command.n)
            items[n++].text = doctor_plugin(doc, "workload", desc->workloads[k].plugin, host);
    return (struct wire_list_text){items, n};
}

static void doctor_send_examine(struct doctor *doc)
{
    const bool one_machine = survey_choose_network(&doc->survey);
    const struct desc *desc = doc->desc;
    const char *interface =
        one_machine && strcmp(desc->interface, "default-route") == 0 ? "loopback" : desc->interface;
    for (uint32_t i = 0; i < doc->n; i++) {
        struct doctor_host *p = &doc->hosts[i];
        if (p->at->lost)
            continue;
        struct buf b;
        buf_init(&b);
        wire_put_examine(
            &b, &(struct wire_examine){
                    .interface = interface,
                    .one_machine = one_machine,
                    .kinds = doctor_kinds(doc, i),
                    .plugins = doctor_plugins(doc, i),
                    .commands = doctor_items_commands(connector_host_desc(doc->survey.connector, i),
                                                      i, &doc->arena)});
        conn_send_buf(&p->at->conn, WIRE_EXAMINE, WIRE_HOST, 0, &b);
        buf_fini(&b);
    }
}

/* The description of one plugin: a line of JSON, or nothing if its process crashed or hung. */
static void doctor_on_plugin(struct doctor_host *p, uint32_t k, struct wire_blob text)
{
    const struct desc *desc = p->doctor->desc;
    uint32_t nbackends = doctor_items_count_backends(desc);
    bool backend = k < nbackends;
    const struct desc_backend *b = backend ? doctor_items_backend(desc, k) : NULL;
    const struct desc_workload *w = backend ? NULL : doctor_items_workload(desc, k - nbackends);
    const char *name = backend ? b->name : w->name;
    struct diag_loc loc = backend ? b->loc : w->loc;
    json_t *root = json_loadb(text.data, text.len, JSON_DISABLE_EOF_CHECK, NULL);
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

static void doctor_on_devices(struct doctor_host *p, const struct wire_list_pool *pools)
{
    for (uint32_t kind = 0; kind < pools->n && kind < p->doctor->desc->nkinds; kind++) {
        const struct wire_item_pool *pool = &pools->items[kind];
        if (pool->n)
            doctor_append_cell(p, DEVICES, pool->text, "");
        doctor_check_devices(p, kind, pool->n, pool->text);
    }
    if (!p->cells[DEVICES][0])
        doctor_set_cell(p, DEVICES, "none");
}

static void doctor_on_examined(struct doctor_host *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct wire_examined e;
    char text[CELL];
    if (!wire_read_examined(f, &doc->arena, &e)) {
        e = (struct wire_examined){.address = "", .interface = ""};
        wire_malformed(&e.error, "EXAMINED frame");
    }
    snprintf(p->address, sizeof p->address, "%s", e.address);
    p->port = e.port;
    if (e.error.code != COLLRUN_OK) {
        diag_wrap(&e.error, "host %s", doc->desc->hosts[p->index].name);
        doctor_set_cell(p, INTERFACE, "no");
        doctor_report(p, &e.error, doc->job->network.interface.loc, EXIT_JOB);
    } else {
        snprintf(text, sizeof text, "%s %s", e.interface, p->address);
        doctor_set_cell(p, INTERFACE, text);
        if (p->at->rdma[0])
            doctor_append_cell(p, INTERFACE, p->at->rdma, "");
    }
    doctor_on_devices(p, &e.pools);
    for (uint32_t k = 0; k < e.plugins.n && k < doctor_items_count_plugins(doc->desc); k++)
        doctor_on_plugin(p, k, e.plugins.items[k].json);
    uint32_t command = doctor_items_next_command(doc->desc, p->index, 0);
    for (uint32_t i = 0; i < e.commands.n && command < doc->desc->nworkloads; i++) {
        doctor_on_command(p, &doc->desc->workloads[command], e.commands.items[i].text);
        command = doctor_items_next_command(doc->desc, p->index, command + 1);
    }
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
        if (p->at->lost)
            continue;
        struct wire_item_peer peers[PROBED_MAX];
        struct buf b;
        for (uint32_t i = 0; i < doctor_probe_count(doc); i++) {
            const struct doctor_host *other = &doc->hosts[doctor_probe_target(doc, h, i)];
            peers[i] = (struct wire_item_peer){other->address, other->at->lost ? 0 : other->port};
        }
        buf_init(&b);
        wire_put_probe(&b, &(struct wire_probe){.peers = {peers, doctor_probe_count(doc)}});
        conn_send_buf(&p->at->conn, WIRE_PROBE, WIRE_HOST, 0, &b);
        buf_fini(&b);
    }
}

static void doctor_on_probed(struct doctor_host *p, const struct wire_frame *f)
{
    struct doctor *doc = p->doctor;
    struct wire_probed probed;
    const uint32_t n = wire_read_probed(f, &doc->arena, &probed) ? probed.peers.n : 0;
    for (uint32_t i = 0; i < n && i < doctor_probe_count(doc); i++) {
        const char *why = probed.peers.items[i].text;
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

static void doctor_on_frame(void *ctx, struct survey_host *host, const struct wire_frame *f)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host->index];
    if (f->type == WIRE_EXAMINED && !p->examined)
        doctor_on_examined(p, f);
    else if (f->type == WIRE_PROBED && !p->probed)
        doctor_on_probed(p, f);
}

static bool doctor_owes(void *ctx, const struct survey_host *host)
{
    struct doctor *doc = ctx;
    struct doctor_host *p = &doc->hosts[host->index];
    if (!host->answered)
        doctor_set_cell(p, REACHED, "no");
    return !p->probed;
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
    int rc = survey_init(&doc->survey, verbose, d);
    if (rc != COLLRUN_OK)
        return rc;
    doc->n = doc->survey.n;
    doc->hosts = arena_calloc(&doc->arena, doc->n, sizeof *doc->hosts);
    for (uint32_t i = 0; i < doc->n; i++) {
        doc->hosts[i].doctor = doc;
        doc->hosts[i].at = &doc->survey.hosts[i];
        doc->hosts[i].index = i;
        doctor_set_cell(&doc->hosts[i], HOST, doc->desc->hosts[i].name);
        if (doc->n > 1)
            doctor_set_cell(&doc->hosts[i], REACHABLE, "yes");
    }
    return COLLRUN_OK;
}

static void doctor_fini(struct doctor *doc)
{
    survey_fini(&doc->survey);
    arena_fini(&doc->arena);
}

/* A restart may put a spare host in the place of a lost one: it is examined as a host without
 * ranks. The nodes of `job` go on with the spares. */
static void doctor_add_spares(struct job *job, struct desc *desc, struct arena *arena)
{
    const uint32_t n = job->hosts.n + job->hosts.nspares;
    struct desc_host *hosts = arena_calloc(arena, n, sizeof *hosts);
    memcpy(hosts, desc->hosts, desc->nhosts * sizeof *hosts);
    for (uint32_t h = desc->nhosts; h < n; h++) {
        hosts[h].name = job->hosts.nodes[h].name.v;
        hosts[h].workdir = job->hosts.nodes[h].workdir.v ? job->hosts.nodes[h].workdir.v : "";
        hosts[h].workdir_loc = job->hosts.nodes[h].workdir.loc;
    }
    job->hosts.n = desc->nhosts = n;
    desc->hosts = hosts;
}

int doctor_run(const struct job *job, const struct desc *desc, const struct report *report,
               bool verbose)
{
    struct job all = *job;
    struct desc everywhere = *desc;
    struct doctor doc = {.survey = {.job = &all,
                                    .desc = &everywhere,
                                    .report = report,
                                    .hooks = {.on_hello = doctor_on_hello,
                                              .on_frame = doctor_on_frame,
                                              .on_lost = doctor_on_lost,
                                              .owes = doctor_owes,
                                              .ctx = &doc}},
                         .job = &all,
                         .desc = &everywhere};
    struct diag d;
    diag_init(&d);
    arena_init(&doc.arena);
    doctor_add_spares(&all, &everywhere, &doc.arena);
    if (doctor_init(&doc, verbose, &d) != COLLRUN_OK) {
        report_diag(report, &d);
        doctor_fini(&doc);
        return EXIT_INTERNAL;
    }
    survey_run(&doc.survey);
    for (uint32_t i = 0; i < doc.n; i++) {
        if (doc.hosts[i].at->lost || !doc.hosts[i].port)
            doctor_set_cell(&doc.hosts[i], REACHABLE, "-");
    }
    doctor_print_table(&doc);
    doctor_fini(&doc);
    return doc.survey.exit_code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing: one function per object. Reading: missing members have their defaults; members of a
 * wrong type are errors.
 */
#include "report/evidence_json.h"

#include "diagnose/cuts.h"
#include "diagnose/from_records.h"
#include "diagnose/verdict.h"
#include "report/json_value.h"
#include "report/result.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVIDENCE_VERSION = 1, EVIDENCE_MOST_RANKS = 1 << 20 };

/* ---- writing ---- */

static json_t *evidence_hex(const struct rank_frame *f)
{
    static const char digits[] = "0123456789abcdef";
    char *text = xmalloc(2 * f->len + 1);
    const unsigned char *bytes = f->bytes;
    for (size_t i = 0; i < f->len; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *hex = json_stringn(text, 2 * f->len);
    free(text);
    return hex;
}

static json_t *evidence_failed(const struct rank_state *r)
{
    const char *file = r->failure.loc.file ? r->failure.loc.file : "";
    return json_pack("{s:i, s:o, s:o, s:i, s:i, s:I, s:o, s:I, s:o, s:i, s:i, s:i}", "code",
                     r->failure.code, "text", json_value_text(r->failure.text), "hint",
                     json_value_text(r->failure.hint), "subject", (int)r->subject, "phase",
                     (int)r->failed_phase, "workload", (json_int_t)r->workload, "group",
                     json_value_text(r->group), "operation", (json_int_t)r->operation, "file",
                     json_value_text(file), "line", (int)r->failure.loc.line, "column",
                     (int)r->failure.loc.column, "width", (int)r->failure.loc.width);
}

static json_t *evidence_forming(const struct rank_forming *f)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < f->n; i++)
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:I}", "kind", (int)f->items[i].kind,
                                              "group", json_value_text(f->items[i].name), "ranks",
                                              ranks_json_list(&f->items[i].members), "since_ns",
                                              (json_int_t)f->items[i].since_ns));
    return list;
}

static json_t *evidence_warnings(const struct rank_state *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->nwarnings; i++)
        json_array_append_new(list, json_value_text(r->warnings[i]));
    return list;
}

static void evidence_put_flags(json_t *o, const struct rank_state *r)
{
    json_object_set_new(o, "stop_requested", json_boolean(r->stop_requested));
    json_object_set_new(o, "finalizing", json_boolean(r->part >= PART_FINALIZING));
    json_object_set_new(o, "over", json_boolean(r->over));
    json_object_set_new(o, "disturbed", json_boolean(r->disturbed));
    json_object_set_new(o, "killed", json_boolean(r->killed));
    json_object_set_new(o, "host_lost", json_boolean(r->end == RANK_LOST));
    json_object_set_new(o, "command", json_boolean(r->command));
    json_object_set_new(o, "member", json_boolean(r->part >= PART_JOINING));
    json_object_set_new(o, "formed", json_boolean(r->part >= PART_MEMBER));
    json_object_set_new(o, "attached_ns", json_integer((json_int_t)r->attached_ns));
    json_object_set_new(o, "left_early", json_boolean(r->departure == DEPARTURE_EARLY));
    json_object_set_new(o, "dismissed", json_boolean(r->dismissed));
    json_object_set_new(o, "detached", json_boolean(r->detached != NULL));
    json_object_set_new(o, "overdue", json_boolean(r->failed == FAILURE_OVERDUE));
    json_object_set_new(o, "left_out", json_boolean(r->left_out));
}

static json_t *evidence_rank(const struct evidence *e, uint32_t rank)
{
    const struct rank_state *r = &e->ranks[rank];
    char file[32];
    json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:I}", "rank", (int)rank, "host",
                          (int)e->desc->ranks[rank].host, "pid", (int)r->pid, "phase",
                          (int)r->phase, "failure_phase", (int)r->first_failure_phase, "failure_ns",
                          (json_int_t)r->first_failure_ns);
    evidence_put_flags(o, r);
    if (r->why.status)
        json_object_set_new(o, "why",
                            json_pack("{s:i, s:I, s:o, s:o}", "status", r->why.status, "number",
                                      (json_int_t)r->why.number, "group",
                                      json_value_text(r->why.group), "text",
                                      json_value_text(r->why.text)));
    if (r->end == RANK_EXITED)
        json_object_set_new(o, "wait_status", json_integer(r->status));
    json_object_set_new(o, "memory", json_string(r->memory));
    json_object_set_new(o, "last_words", json_value_text(r->last_words));
    json_object_set_new(o, "max_rss", json_integer((json_int_t)r->max_rss));
    if (r->place.address)
        json_object_set_new(o, "place",
                            json_pack("{s:I, s:o}", "address", (json_int_t)r->place.address, "text",
                                      json_value_text(r->place.place)));
    if (r->failed)
        json_object_set_new(o, "failed", evidence_failed(r));
    if (r->status_frame.len)
        json_object_set_new(o, "status", evidence_hex(&r->status_frame));
    if (r->waits_frame.len)
        json_object_set_new(o, "waits", evidence_hex(&r->waits_frame));
    if (r->doing[0])
        json_object_set_new(o, "doing", json_value_text(r->doing));
    if (r->address[0])
        json_object_set_new(o, "address", json_value_text(r->address));
    if (r->network[0])
        json_object_set_new(o, "network", json_value_text(r->network));
    if (r->forming.n)
        json_object_set_new(o, "waits_outside", evidence_forming(&r->forming));
    struct forming_wait last = r->forming.last;
    if (last.members.n)
        json_object_set_new(o, "waited_outside",
                            evidence_forming(&(struct rank_forming){.items = &last, .n = 1}));
    if (r->nwarnings)
        json_object_set_new(o, "warnings", evidence_warnings(r));
    if (r->exception)
        json_object_set_new(o, "exception", evidence_hex(&r->exception_frame));
    snprintf(file, sizeof file, "rank-%u.record", rank);
    if (r->record_bytes)
        json_object_set_new(o, "record", json_string(file));
    return o;
}

/* What a proof by cuts says; the cuts themselves are not kept. */
static json_t *evidence_proof(const struct cuts_proof *p)
{
    json_t *waits = json_array();
    for (uint32_t i = 0; i < p->waits.n; i++) {
        const struct graph_wait *w = &p->waits.waits[i];
        json_t *o = json_pack("{s:i, s:o, s:I, s:i, s:o}", "rank", (int)w->rank, "group",
                              json_value_text(w->group), "number", (json_int_t)w->number, "kind",
                              (int)w->kind, "for", ranks_json_list(&w->waited_for));
        if (o && w->call)
            json_object_set_new(o, "call", json_value_text(w->call));
        json_array_append_new(waits, o);
    }
    json_t *order = json_null();
    if (p->minority.ranks.n)
        order = json_pack("{s:o, s:o, s:I, s:I, s:o}", "first", json_value_text(p->minority.first),
                          "later", json_value_text(p->minority.later), "first_number",
                          (json_int_t)p->minority.first_number, "later_number",
                          (json_int_t)p->minority.later_number, "ranks",
                          ranks_json_list(&p->minority.ranks));
    return json_pack("{s:i, s:o, s:i, s:b, s:o, s:o}", "shape", (int)p->shape, "core",
                     ranks_json_list(&p->core), "missing", (int)p->missing, "sleeps",
                     (int)p->missing_sleeps, "waits", waits, "order", order);
}

static json_t *evidence_failure(const struct job_failure *job)
{
    json_t *o = json_pack("{s:i, s:i, s:I, s:i, s:o, s:o}", "class", (int)job->class, "exit_code",
                          job->exit_code, "ns", (json_int_t)job->ns, "code", job->diag.code, "text",
                          json_value_text(job->diag.text), "hint", json_value_text(job->diag.hint));
    if (o && job->limit_ns)
        json_object_set_new(o, "limit_ns", json_integer((json_int_t)job->limit_ns));
    if (o && job->group) {
        json_object_set_new(o, "group", json_value_text(job->group));
        json_object_set_new(o, "number", json_integer((json_int_t)job->number));
        json_object_set_new(o, "extra", json_boolean(job->extra));
        json_object_set_new(o, "culprits", ranks_json_list(&job->culprits));
        json_object_set_new(o, "suspects", ranks_json_list(&job->suspects));
    }
    if (o && job->proof)
        json_object_set_new(o, "proof", evidence_proof(job->proof));
    return o;
}

json_t *evidence_json(const struct evidence *e)
{
    const struct desc *desc = e->desc;
    json_t *hosts = json_array(), *workloads = json_array(), *groups = json_array(),
           *ranks = json_array();
    for (uint32_t i = 0; i < desc->nhosts; i++)
        json_array_append_new(hosts, json_string(desc->hosts[i].name));
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        json_array_append_new(workloads,
                              json_pack("{s:s, s:o, s:I}", "name", desc->workloads[i].name, "ranks",
                                        ranks_json_list(&desc->workloads[i].ranks), "timeout_ns",
                                        (json_int_t)desc->workloads[i].timeout_ns));
    for (uint32_t i = 0; i < desc->ngroups; i++)
        json_array_append_new(groups, json_pack("{s:s, s:o}", "name", desc->groups[i].name, "ranks",
                                                ranks_json_list(&desc->groups[i].ranks)));
    for (uint32_t i = 0; i < desc->nranks; i++)
        json_array_append_new(ranks, evidence_rank(e, i));
    json_t *o =
        json_pack("{s:i, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "version", EVIDENCE_VERSION, "job",
                  desc->job_name, "run_id", desc->run_id, "attempt", (int)desc->attempt, "hosts",
                  hosts, "workloads", workloads, "groups", groups, "ranks", ranks);
    if (o && e->job.class != CAUSE_NONE)
        json_object_set_new(o, "failure", evidence_failure(&e->job));
    return o;
}

/* ---- reading ---- */

struct evidence_reader {
    struct evidence_files *f;
    const char *folder, *below; /* the run directory; "diag/", or "" where it is that folder */
    struct diag *d;
};

static const char *evidence_text(const json_t *o, const char *key, struct arena *arena)
{
    const char *text = json_string_value(json_object_get(o, key));
    return arena_strdup(arena, text ? text : "");
}

/* An integer from 0 to `most`; 0 if it is missing or out of range. */
static uint64_t evidence_number(const json_t *o, const char *key, uint64_t most)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 && (uint64_t)n <= most ? (uint64_t)n : 0;
}

static void evidence_read_place(const json_t *o, struct rank_state *r, struct arena *arena)
{
    r->place = (struct stacks_site){evidence_number(o, "address", UINT64_MAX),
                                    evidence_text(o, "text", arena)};
}

static struct desc_ranks evidence_ranks(const json_t *list, struct evidence_files *f)
{
    struct desc_ranks ranks = {arena_calloc(&f->arena, json_array_size(list), sizeof(uint32_t)), 0};
    for (size_t i = 0; ranks.items && i < json_array_size(list); i++) {
        json_int_t rank = json_integer_value(json_array_get(list, i));
        if (rank >= 0 && rank < (json_int_t)f->desc.nranks)
            ranks.items[ranks.n++] = (uint32_t)rank;
    }
    return ranks;
}

static int evidence_nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* NULL: there is none, or it is not hexadecimal. */
static unsigned char *evidence_bytes(const json_t *hex, struct arena *arena, size_t *len)
{
    const char *text = json_string_value(hex);
    *len = text ? strlen(text) / 2 : 0;
    unsigned char *bytes = text ? arena_alloc(arena, *len) : NULL;
    for (size_t i = 0; bytes && i < *len; i++) {
        int high = evidence_nibble(text[2 * i]), low = evidence_nibble(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return NULL;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return bytes;
}

static int evidence_bad(const struct evidence_reader *r, uint32_t rank, const char *what)
{
    return diag_set(r->d, COLLRUN_ERR_INVALID, "%s/%sevidence.json: rank %u: malformed %s",
                    r->folder, r->below, rank, what);
}

static int evidence_read_record(const struct evidence_reader *r, uint32_t rank, const char *name)
{
    char file[300];
    struct stat st;
    snprintf(file, sizeof file, "%s%.255s", r->below, name);
    FILE *in = strchr(name, '/') ? NULL : run_file_open(r->folder, file, r->d);
    if (!in)
        return strchr(name, '/') ? evidence_bad(r, rank, "record") : r->d->code;
    size_t len = fstat(fileno(in), &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
    void *bytes = xmalloc(len + 1);
    bool good = fread(bytes, 1, len, in) == len;
    good = good && rank_record_set(&r->f->ranks[rank], bytes, len);
    free(bytes);
    fclose(in);
    return good ? COLLRUN_OK
                : diag_set(r->d, COLLRUN_ERR_INVALID, "%s/%s is not a record of collrun", r->folder,
                           file);
}

static void evidence_read_failed(const json_t *o, struct rank_state *r, struct arena *arena)
{
    rank_set_failure(r, FAILURE_REPORTED);
    r->failure.code = (int)json_integer_value(json_object_get(o, "code"));
    snprintf(r->failure.text, sizeof r->failure.text, "%s", evidence_text(o, "text", arena));
    snprintf(r->failure.hint, sizeof r->failure.hint, "%s", evidence_text(o, "hint", arena));
    r->subject = (enum wire_subject)evidence_number(o, "subject", WIRE_SUBJECT_WORKLOAD);
    r->failed_phase = (enum wire_phase)evidence_number(o, "phase", WIRE_PHASE_FINI);
    snprintf(r->group, sizeof r->group, "%s", evidence_text(o, "group", arena));
    r->operation = evidence_number(o, "operation", UINT64_MAX);
    const char *file = evidence_text(o, "file", arena);
    r->failure.loc = (struct diag_loc){file && *file ? file : NULL,
                                       (uint32_t)evidence_number(o, "line", UINT32_MAX),
                                       (uint32_t)evidence_number(o, "column", UINT32_MAX),
                                       (uint32_t)evidence_number(o, "width", UINT32_MAX)};
    if (json_object_get(o, "workload"))
        r->workload = (uint32_t)evidence_number(o, "workload", UINT32_MAX);
}

/* False: malformed. */
static bool evidence_read_forming(struct evidence_files *f, const json_t *list,
                                  struct rank_forming *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const json_int_t kind = json_integer_value(json_object_get(o, "kind"));
        struct forming_wait w = {.members = evidence_ranks(json_object_get(o, "ranks"), f),
                                 .since_ns = evidence_number(o, "since_ns", UINT64_MAX)};
        if (kind < 0 || kind >= WIRE_FORMING_KINDS)
            return false;
        w.kind = (enum wire_forming)kind;
        snprintf(w.name, sizeof w.name, "%s", evidence_text(o, "group", &f->arena));
        rank_forming_add(out, &w);
    }
    return true;
}

/* The last one that ended, as a list of one. */
static bool evidence_read_formed(struct evidence_files *f, const json_t *list,
                                 struct rank_forming *out)
{
    struct rank_forming ended = {0};
    const bool good = evidence_read_forming(f, list, &ended);
    if (good && ended.n && !out->last.members.items) {
        out->last = ended.items[0];
        ended.items[0].members.items = NULL;
    }
    rank_forming_fini(&ended);
    return good;
}

static void evidence_read_why(const json_t *o, struct rank_state *r, struct arena *arena)
{
    struct record_view_failure why = {.status =
                                          (int)json_integer_value(json_object_get(o, "status")),
                                      .number = evidence_number(o, "number", UINT64_MAX)};
    snprintf(why.group, sizeof why.group, "%s", evidence_text(o, "group", arena));
    snprintf(why.text, sizeof why.text, "%s", evidence_text(o, "text", arena));
    rank_set_why(r, &why);
}

static void evidence_read_states(const json_t *o, struct rank_state *r)
{
    r->part = json_is_true(json_object_get(o, "finalizing")) ? PART_FINALIZING
              : json_is_true(json_object_get(o, "formed"))   ? PART_MEMBER
              : json_is_true(json_object_get(o, "member"))   ? PART_JOINING
                                                             : PART_OUTSIDE;
    r->end = json_is_integer(json_object_get(o, "wait_status")) ? RANK_EXITED
             : json_is_true(json_object_get(o, "host_lost"))    ? RANK_LOST
                                                                : RANK_LIVES;
    if (json_is_true(json_object_get(o, "left_early")))
        r->departure = DEPARTURE_EARLY;
}

static int evidence_read_rank(const struct evidence_reader *reader, uint32_t rank, const json_t *o)
{
    struct evidence_files *f = reader->f;
    struct rank_state *r = &f->ranks[rank];
    size_t len;
    diag_init(&r->failure);
    r->workload = UINT32_MAX;
    f->desc.ranks[rank].host = (uint32_t)evidence_number(o, "host", f->desc.nhosts - 1);
    r->pid = (pid_t)evidence_number(o, "pid", INT32_MAX);
    r->phase = json_object_get(o, "phase")
                   ? (enum rank_phase)evidence_number(o, "phase", PHASE_FINISHING)
                   : PHASE_RUNNING;
    r->first_failure_phase = (enum rank_phase)evidence_number(o, "failure_phase", PHASE_FINISHING);
    r->first_failure_ns = evidence_number(o, "failure_ns", UINT64_MAX);
    evidence_read_states(o, r);
    r->stop_requested = json_is_true(json_object_get(o, "stop_requested"));
    r->over = json_is_true(json_object_get(o, "over"));
    r->disturbed = json_is_true(json_object_get(o, "disturbed"));
    r->killed = json_is_true(json_object_get(o, "killed"));
    r->command = json_is_true(json_object_get(o, "command"));
    r->attached_ns = evidence_number(o, "attached_ns", UINT64_MAX);
    r->dismissed = json_is_true(json_object_get(o, "dismissed"));
    r->detached = json_is_true(json_object_get(o, "detached")) ? "" : NULL;
    if (json_is_true(json_object_get(o, "overdue")))
        rank_set_failure(r, FAILURE_OVERDUE);
    r->left_out = json_is_true(json_object_get(o, "left_out"));
    r->status = (int)json_integer_value(json_object_get(o, "wait_status"));
    snprintf(r->memory, sizeof r->memory, "%s", evidence_text(o, "memory", &f->arena));
    snprintf(r->last_words, sizeof r->last_words, "%s", evidence_text(o, "last_words", &f->arena));
    snprintf(r->doing, sizeof r->doing, "%s", evidence_text(o, "doing", &f->arena));
    snprintf(r->address, sizeof r->address, "%s", evidence_text(o, "address", &f->arena));
    snprintf(r->network, sizeof r->network, "%s", evidence_text(o, "network", &f->arena));
    r->max_rss = evidence_number(o, "max_rss", UINT64_MAX);
    if (json_object_get(o, "failed"))
        evidence_read_failed(json_object_get(o, "failed"), r, &f->arena);
    if (json_object_get(o, "place"))
        evidence_read_place(json_object_get(o, "place"), r, &f->arena);
    if (json_object_get(o, "why"))
        evidence_read_why(json_object_get(o, "why"), r, &f->arena);
    const unsigned char *bytes = evidence_bytes(json_object_get(o, "status"), &f->arena, &len);
    if (json_object_get(o, "status") && (!bytes || !rank_read_status(r, bytes, len)))
        return evidence_bad(reader, rank, "status");
    bytes = evidence_bytes(json_object_get(o, "waits"), &f->arena, &len);
    if (json_object_get(o, "waits") && (!bytes || !rank_read_waits(r, bytes, len)))
        return evidence_bad(reader, rank, "waits");
    if (!evidence_read_forming(f, json_object_get(o, "waits_outside"), &r->forming) ||
        !evidence_read_formed(f, json_object_get(o, "waited_outside"), &r->forming))
        return evidence_bad(reader, rank, "waits_outside");
    bytes = evidence_bytes(json_object_get(o, "exception"), &f->arena, &len);
    if (json_object_get(o, "exception") && (!bytes || !rank_read_exception(r, bytes, len)))
        return evidence_bad(reader, rank, "exception");
    const json_t *warnings = json_object_get(o, "warnings");
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const char *text = json_string_value(json_array_get(warnings, i));
        if (!text || !rank_add_warning(r, text))
            return evidence_bad(reader, rank, "warnings");
    }
    const char *record = json_string_value(json_object_get(o, "record"));
    return record ? evidence_read_record(reader, rank, record) : COLLRUN_OK;
}

static void evidence_read_hosts(struct evidence_files *f, const json_t *o)
{
    const json_t *hosts = json_object_get(o, "hosts");
    size_t n = json_array_size(hosts);
    f->desc.nhosts = n ? (uint32_t)n : 1;
    f->desc.hosts = arena_calloc(&f->arena, f->desc.nhosts, sizeof *f->desc.hosts);
    for (uint32_t i = 0; i < f->desc.nhosts; i++) {
        const char *name = json_string_value(json_array_get(hosts, i));
        f->desc.hosts[i].name = arena_strdup(&f->arena, name ? name : "?");
    }
}

static void evidence_read_names(struct evidence_files *f, const json_t *o)
{
    const json_t *groups = json_object_get(o, "groups"),
                 *workloads = json_object_get(o, "workloads");
    f->desc.groups = arena_calloc(&f->arena, json_array_size(groups), sizeof *f->desc.groups);
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *g = json_array_get(groups, i);
        f->desc.groups[f->desc.ngroups++] =
            (struct desc_group){.name = evidence_text(g, "name", &f->arena),
                                .ranks = evidence_ranks(json_object_get(g, "ranks"), f)};
    }
    f->desc.workloads =
        arena_calloc(&f->arena, json_array_size(workloads), sizeof *f->desc.workloads);
    for (size_t i = 0; i < json_array_size(workloads); i++) {
        const json_t *w = json_array_get(workloads, i);
        f->desc.workloads[f->desc.nworkloads++] =
            (struct desc_workload){.name = evidence_text(w, "name", &f->arena),
                                   .ranks = evidence_ranks(json_object_get(w, "ranks"), f),
                                   .timeout_ns = evidence_number(w, "timeout_ns", UINT64_MAX)};
    }
}

static void evidence_read_proof(struct evidence_files *f, const json_t *o)
{
    const json_t *list = json_object_get(o, "waits");
    struct cuts_proof *p = arena_calloc(&f->arena, 1, sizeof *p);
    struct graph_wait *waits = arena_calloc(&f->arena, json_array_size(list), sizeof *waits);
    uint32_t n = 0;
    if (!json_is_object(o) || !p || !waits)
        return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *w = json_array_get(list, i);
        struct graph_wait *to = &waits[n];
        *to = (struct graph_wait){
            .rank = (uint32_t)evidence_number(w, "rank", f->desc.nranks ? f->desc.nranks - 1 : 0),
            .group = evidence_text(w, "group", &f->arena),
            .number = evidence_number(w, "number", UINT64_MAX),
            .kind = (uint8_t)evidence_number(w, "kind", UINT8_MAX),
            .call = json_object_get(w, "call") ? evidence_text(w, "call", &f->arena) : NULL,
            .waited_for = evidence_ranks(json_object_get(w, "for"), f)};
        n += to->waited_for.n > 0;
    }
    p->shape = (enum proof_shape)evidence_number(o, "shape", PROOF_MISSING);
    p->core = evidence_ranks(json_object_get(o, "core"), f);
    p->missing = (uint32_t)evidence_number(o, "missing", f->desc.nranks ? f->desc.nranks - 1 : 0);
    p->missing_sleeps = json_is_true(json_object_get(o, "sleeps"));
    p->waits = (struct graph){waits, n, f->desc.nranks};
    const json_t *order = json_object_get(o, "order");
    p->minority =
        (struct cuts_order){.first = evidence_text(order, "first", &f->arena),
                            .later = evidence_text(order, "later", &f->arena),
                            .first_number = evidence_number(order, "first_number", UINT64_MAX),
                            .later_number = evidence_number(order, "later_number", UINT64_MAX),
                            .ranks = evidence_ranks(json_object_get(order, "ranks"), f)};
    if (p->core.n && n)
        f->evidence.job.proof = p;
}

static void evidence_read_failure(struct evidence_files *f, const json_t *o)
{
    struct job_failure *job = &f->evidence.job;
    *job = (struct job_failure){.class = CAUSE_NONE};
    diag_init(&job->diag);
    if (!json_is_object(o))
        return;
    job->class = (enum cause_class)evidence_number(o, "class", CAUSE_NONE);
    job->exit_code = (int)evidence_number(o, "exit_code", 255);
    job->ns = evidence_number(o, "ns", UINT64_MAX);
    job->limit_ns = evidence_number(o, "limit_ns", UINT64_MAX);
    job->diag.code = (int)json_integer_value(json_object_get(o, "code"));
    snprintf(job->diag.text, sizeof job->diag.text, "%s", evidence_text(o, "text", &f->arena));
    snprintf(job->diag.hint, sizeof job->diag.hint, "%s", evidence_text(o, "hint", &f->arena));
    evidence_read_proof(f, json_object_get(o, "proof"));
    if (!json_object_get(o, "group"))
        return;
    job->group = evidence_text(o, "group", &f->arena);
    job->number = evidence_number(o, "number", UINT64_MAX);
    job->extra = json_is_true(json_object_get(o, "extra"));
    job->culprits = evidence_ranks(json_object_get(o, "culprits"), f);
    job->suspects = evidence_ranks(json_object_get(o, "suspects"), f);
}

static int evidence_read_all(const struct evidence_reader *r, const json_t *o)
{
    struct evidence_files *f = r->f;
    const json_t *ranks = json_object_get(o, "ranks");
    if (json_integer_value(json_object_get(o, "version")) != EVIDENCE_VERSION)
        return diag_set(r->d, COLLRUN_ERR_INVALID, "%s/%sevidence.json: not version %d", r->folder,
                        r->below, EVIDENCE_VERSION);
    if (!json_array_size(ranks) || json_array_size(ranks) > EVIDENCE_MOST_RANKS)
        return diag_set(r->d, COLLRUN_ERR_INVALID, "%s/%sevidence.json: no ranks", r->folder,
                        r->below);
    f->desc.nranks = (uint32_t)json_array_size(ranks);
    f->desc.job_name = evidence_text(o, "job", &f->arena);
    f->desc.run_id = evidence_text(o, "run_id", &f->arena);
    f->desc.attempt = (uint32_t)evidence_number(o, "attempt", UINT32_MAX);
    f->desc.ranks = arena_calloc(&f->arena, f->desc.nranks, sizeof *f->desc.ranks);
    f->ranks = arena_calloc(&f->arena, f->desc.nranks, sizeof *f->ranks);
    evidence_read_hosts(f, o);
    evidence_read_names(f, o);
    evidence_read_failure(f, json_object_get(o, "failure"));
    f->evidence.desc = &f->desc;
    f->evidence.ranks = f->ranks;
    for (uint32_t i = 0; i < f->desc.nranks; i++) {
        int rc = evidence_read_rank(r, i, json_array_get(ranks, i));
        if (rc != COLLRUN_OK)
            return rc;
    }
    from_records_complete(&f->desc, f->ranks, &f->evidence.job, &f->arena);
    return COLLRUN_OK;
}

int evidence_read(struct evidence_files *f, const char *folder, bool below, struct diag *d)
{
    const struct evidence_reader r = {f, folder, below ? "diag/" : "", d};
    json_error_t e;
    *f = (struct evidence_files){0};
    arena_init(&f->arena);
    FILE *in = run_file_open(folder, below ? "diag/evidence.json" : "evidence.json", d);
    if (!in)
        return d->code;
    json_t *o = json_loadf(in, JSON_REJECT_DUPLICATES, &e);
    fclose(in);
    if (!o)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s/%sevidence.json:%d: %s", folder, r.below,
                        e.line, e.text);
    int rc = evidence_read_all(&r, o);
    json_decref(o);
    return rc;
}

void evidence_files_fini(struct evidence_files *f)
{
    for (uint32_t i = 0; f->ranks && i < f->desc.nranks; i++)
        rank_state_fini(&f->ranks[i]);
    arena_fini(&f->arena);
}

/* ---- files of a run directory ---- */

/* Opens one part of the path after the other, none of which may be a link. */
static int run_file_walk(const char *folder, const char *name)
{
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0) {
        char part[NAME_MAX + 1];
        size_t len = strcspn(name, "/");
        bool last = !name[len];
        int flags = O_NOFOLLOW | O_CLOEXEC |
                    (last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY);
        int below = -1, err = EINVAL;
        if (len > 0 && len <= NAME_MAX && !(len == 2 && memcmp(name, "..", 2) == 0)) {
            memcpy(part, name, len);
            part[len] = '\0';
            below = openat(at, part, flags);
            err = errno == ENOTDIR ? ELOOP : errno; /* a link, where a folder is wanted */
        }
        close(at);
        errno = err;
        if (below < 0 || last)
            return below;
        name += len + 1;
        at = below;
    }
    return -1;
}

static void run_file_refuse(const char *folder, const char *name, int err, struct diag *d)
{
    if (err == ELOOP) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s/%s is a link, below a link, or no regular file",
                 folder, name);
        diag_hint(d, "links may lead to private files, so collrun does not follow them; copy the "
                     "file if it is of this run");
        d->sys_errno = ELOOP;
    } else {
        diag_sys(d, err, "cannot read %s/%s", folder, name);
    }
}

FILE *run_file_open(const char *folder, const char *name, struct diag *d)
{
    struct stat st;
    int fd = run_file_walk(folder, name);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        FILE *in = fdopen(fd, "r");
        if (in)
            return in;
    } else if (fd >= 0) {
        errno = ELOOP;
    }
    run_file_refuse(folder, name, errno, d);
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* ---- collrun diag ---- */

enum { LINES_SHOWN = 20 };

static void diag_command_print_json(const struct verdict *v, FILE *out)
{
    json_t *o = verdict_json(v);
    json_dumpf(o, out, JSON_INDENT(2));
    fputc('\n', out);
    json_decref(o);
}

/* The last lines of the log of each rank (base/debug.h), as its record has them. */
static void diag_command_print_log(const struct evidence *e, FILE *out)
{
    char line[RECORD_VIEW_LINE];
    for (uint32_t rank = 0; rank < e->desc->nranks; rank++) {
        const struct rank_state *r = &e->ranks[rank];
        uint32_t n = 0;
        while (r->record_bytes && n < LINES_SHOWN && record_view_line(&r->record, n, line))
            n++;
        if (n)
            fprintf(out, "collrun: the last lines of the log of rank %u:\n", rank);
        for (; n; n--)
            if (record_view_line(&r->record, n - 1, line))
                fprintf(out, "  | %s\n", line);
    }
}

static void diag_command_print(const struct evidence *e, const struct verdict *v,
                               const struct report *report)
{
    char others[1024];
    if (v->class == CAUSE_NONE) {
        fprintf(report->out, "collrun: no failure\n");
        return;
    }
    report_diag(report, &v->diag);
    verdict_other_ranks(e, v, others, sizeof others);
    if (others[0])
        report_line(report, others);
    diag_command_print_log(e, report->out);
}

/* True: the evidence was derived from records, and nothing in them is wrong. */
static bool diag_command_is_clean(const struct evidence *e, const struct verdict *v)
{
    return v->class == CAUSE_TIMEOUT && !e->job.diag.text[0] && !v->nwaits && v->rank == WIRE_HOST;
}

static bool diag_command_has(const char *folder, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%.3900s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* The folder has no diag/evidence.json, and no evidence.json that can be read. */
static void diag_command_no_evidence(const char *folder, struct diag *d)
{
    struct stat st;
    if (diag_command_has(folder, "evidence.json"))
        return;
    if (stat(folder, &st) < 0) {
        diag_sys(d, errno, "cannot read the run directory %s", folder);
    } else if (!S_ISDIR(st.st_mode)) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory, but a file", folder);
    } else if (diag_command_has(folder, "result.json")) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s has no diag/evidence.json: the run has not failed",
                 folder);
        diag_hint(d, "%s/result.json has its verdict", folder);
        return;
    } else {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory: it has no diag/evidence.json",
                 folder);
    }
    diag_hint(d,
              "logging.dir in job.yaml names the run directory; collrun writes diag/evidence.json "
              "to it when an attempt fails");
}

int diag_command(const char *folder, bool json, const struct report *report, struct diag *d)
{
    struct evidence_files files;
    struct verdict v;
    struct arena arena;
    bool below = diag_command_has(folder, "diag/evidence.json");
    int rc = evidence_read(&files, folder, below, d);
    if (rc == COLLRUN_ERR_SYSTEM && !below)
        diag_command_no_evidence(folder, d);
    arena_init(&arena);
    if (rc == COLLRUN_OK) {
        verdict_find(&files.evidence, &arena, &v);
        if (diag_command_is_clean(&files.evidence, &v))
            verdict_init(&v, CAUSE_NONE, 0, NULL);
        if (json)
            diag_command_print_json(&v, report->out);
        else
            diag_command_print(&files.evidence, &v, report);
    }
    arena_fini(&arena);
    evidence_files_fini(&files);
    return rc;
}

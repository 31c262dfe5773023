/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/ranks.h"

#include "base/quote.h"
#include "base/wire_fields.h"
#include "xalloc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rank_advance_part(struct rank_state *rank, enum rank_part part)
{
    const bool moves = part > rank->part;
    if (moves)
        rank->part = part;
    return moves;
}

bool rank_set_end(struct rank_state *rank, enum rank_end end)
{
    const bool moves = rank->end == RANK_LIVES && end != RANK_LIVES;
    if (moves)
        rank->end = end;
    return moves;
}

bool rank_set_failure(struct rank_state *rank, enum rank_failure failure)
{
    const bool moves = rank->failed == FAILURE_NONE && failure != FAILURE_NONE;
    if (moves)
        rank->failed = failure;
    return moves;
}

bool rank_advance_departure(struct rank_state *rank, enum rank_departure departure)
{
    const bool moves = departure > rank->departure;
    if (moves)
        rank->departure = departure;
    return moves;
}

static void rank_keep(struct rank_frame *f, const void *bytes, size_t len)
{
    void *copy = xmalloc(len + 1);
    memcpy(copy, bytes, len);
    free(f->bytes);
    *f = (struct rank_frame){copy, len};
}

bool rank_read_status(struct rank_state *rank, const void *bytes, size_t len)
{
    rank_keep(&rank->status_frame, bytes, len);
    return snapshot_read(&rank->snapshot,
                         &(struct wire_frame){.type = WIRE_STATUS, .payload = bytes, .len = len});
}

bool rank_read_waits(struct rank_state *rank, const void *bytes, size_t len)
{
    rank_keep(&rank->waits_frame, bytes, len);
    return wait_report_read(
        &rank->wait_report,
        &(struct wire_frame){.type = WIRE_WAIT_REPORT, .payload = bytes, .len = len});
}

static void rank_copy(const char *text, char *out, size_t size)
{
    snprintf(out, size, "%s", text);
    if (strlen(text) >= size)
        utf8_mark_cut(out, size);
}

bool rank_read_exception(struct rank_state *rank, const void *bytes, size_t len)
{
    const struct wire_frame f = {.type = WIRE_EXCEPTION, .payload = bytes, .len = len};
    struct wire_exception read;
    struct rank_exception e;
    struct arena arena;
    arena_init(&arena);
    const bool good = wire_read_exception(&f, &arena, &read);
    if (good) {
        rank_copy(read.type, e.type, sizeof e.type);
        rank_copy(read.text, e.text, sizeof e.text);
        rank_copy(read.file, e.file, sizeof e.file);
        rank_copy(read.thread, e.thread, sizeof e.thread);
        e.line = read.line;
    }
    arena_fini(&arena);
    if (!good)
        return false;
    if (rank->exception && (!rank->exception->thread[0] || e.thread[0]))
        return true;
    if (!rank->exception)
        rank->exception = xmalloc(sizeof *rank->exception);
    rank_keep(&rank->exception_frame, bytes, len);
    *rank->exception = e;
    return true;
}

bool rank_add_warning(struct rank_state *rank, const char *text)
{
    if (rank->nwarnings == RANK_WARNINGS)
        return false;
    rank->warnings = xrealloc(rank->warnings, rank->nwarnings + 1, sizeof *rank->warnings);
    rank->warnings[rank->nwarnings++] = xstrdup(text);
    return true;
}

const char *rank_exception_text(const struct rank_exception *e, char *out, size_t size)
{
    const char *slash = strrchr(e->file, '/');
    char place[300] = "";
    if (e->file[0])
        snprintf(place, sizeof place, " (%s:%u)", slash ? slash + 1 : e->file, e->line);
    if (strstr(e->text, place)) /* of an exception that contains others */
        place[0] = '\0';
    snprintf(out, size, "%s%s%.200s%s", e->type, e->text[0] ? ": " : "", e->text, place);
    return out;
}

bool rank_record_set(struct rank_state *rank, const void *bytes, size_t len)
{
    rank_record_fini(rank);
    rank->record_bytes = xmalloc(len + 1); /* aligned, as a reader of records needs it */
    memcpy(rank->record_bytes, bytes, len);
    rank->record_len = len;
    if (record_view_init(&rank->record, rank->record_bytes, len, NULL) == COLLRUN_OK)
        return true;
    rank_record_fini(rank);
    return false;
}

void rank_record_fini(struct rank_state *rank)
{
    free(rank->record_bytes);
    rank->record_bytes = NULL;
    rank->record_len = 0;
}

void rank_state_fini(struct rank_state *rank)
{
    snapshot_fini(&rank->snapshot);
    wait_report_fini(&rank->wait_report);
    stacks_fini(&rank->stacks);
    rank_forming_fini(&rank->forming);
    usage_fini(&rank->usage);
    rank_record_fini(rank);
    free(rank->status_frame.bytes);
    free(rank->waits_frame.bytes);
    free(rank->exception_frame.bytes);
    free(rank->exception);
    for (uint32_t i = 0; i < rank->nwarnings; i++)
        free(rank->warnings[i]);
    free(rank->warnings);
}

void rank_set_why(struct rank_state *rank, const struct record_view_failure *why)
{
    rank->why = *why;
    if (rank->failed && rank->group[0])
        return;
    memcpy(rank->group, why->group, sizeof rank->group);
    rank->operation = why->number;
}

const char *rank_failed_text(const struct rank_state *rank)
{
    return rank->why.status ? rank->why.text : rank->failure.text;
}

bool rank_has_ended(const struct rank_state *rank)
{
    return rank->part >= PART_FINALIZING || rank->phase >= PHASE_DONE;
}

bool rank_is_gone(const struct rank_state *rank)
{
    return rank->end == RANK_EXITED && (!rank->stop_requested || rank->phase == PHASE_FINISHING);
}

bool rank_is_awaited(const struct rank_state *rank, const struct forming_wait *f)
{
    if (rank_is_gone(rank) || rank_forming_find(&rank->forming, f))
        return false;
    /* A rank of plugins calls nothing more only once its background workloads have ended, too. */
    if (f->kind == WIRE_FORMING_FINALIZE)
        return rank->part < PART_FINALIZING && rank->phase < PHASE_IDLE;
    return f->kind != WIRE_FORMING_CREATE || !snapshot_has_group(&rank->snapshot, f->name);
}

/* The oldest wait that is no operation; NULL: none. */
static const struct forming_wait *rank_forming_oldest(const struct rank_state *r)
{
    const struct forming_wait *oldest = NULL;
    for (uint32_t i = 0; i < r->forming.n; i++) {
        const struct forming_wait *f = &r->forming.items[i];
        oldest = !oldest || f->since_ns < oldest->since_ns ? f : oldest;
    }
    return oldest;
}

void rank_describe(const struct rank_state *rank, char *out, size_t size)
{
    const struct forming_wait *f = rank_forming_oldest(rank);
    char what[192] = "collrun_init";
    bool init = rank->command && rank->part == PART_JOINING;
    if (snapshot_inside(&rank->snapshot, what, sizeof what) || init)
        snprintf(out, size, "in %s", what);
    else if (f)
        snprintf(out, size, "in %s", forming_text(f->kind, f->name, what, sizeof what));
    else
        snprintf(out, size, "outside any collective");
    const char *state = rank->snapshot.state == 'T'   ? ", stopped by a signal"
                        : rank->snapshot.state == 'D' ? ", waiting for the kernel"
                                                      : "";
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s", state);
}

bool rank_age(const struct rank_state *rank, uint64_t now_ns, uint64_t *age_ns, bool *inside)
{
    const struct forming_wait *f = rank_forming_oldest(rank);
    char what[192];
    *inside = snapshot_inside(&rank->snapshot, what, sizeof what);
    if (*inside || !f)
        return snapshot_age(&rank->snapshot, age_ns);
    *inside = true;
    *age_ns = f->since_ns < now_ns ? now_ns - f->since_ns : 0;
    return true;
}

void rank_doing(const struct rank_state *rank, char *out, size_t size)
{
    const struct stacks_thread *t = stacks_main(&rank->stacks, rank->command);
    char doing[320];
    if (!t) {
        rank_describe(rank, out, size);
        return;
    }
    stacks_describe(t, doing, sizeof doing);
    const char *place = stacks_place(t);
    snprintf(out, size, "%s%s%s%s", place ? "in " : "", place ? place : "", place ? ", " : "",
             doing);
}

void rank_set_doing(struct rank_state *rank)
{
    if (rank->stacks.received && stacks_main(&rank->stacks, rank->command))
        rank_doing(rank, rank->doing, sizeof rank->doing);
}

const char *rank_phase_text(const struct rank_state *rank, enum rank_phase phase)
{
    static const char *const of_commands[] = {
        [PHASE_WAITING] = "not started", [PHASE_SPAWNED] = "starting its program",
        [PHASE_ATTACHED] = "running",    [PHASE_READY] = "running",
        [PHASE_RUNNING] = "running",     [PHASE_DONE] = "running",
        [PHASE_IDLE] = "running",        [PHASE_FINISHING] = "done",
    };
    static const char *const texts[] = {
        [PHASE_WAITING] = "not started",
        [PHASE_SPAWNED] = "loading its plugins",
        [PHASE_ATTACHED] = "forming its groups or in a workload's init",
        [PHASE_READY] = "ready",
        [PHASE_RUNNING] = "running",
        [PHASE_DONE] = "done",
        [PHASE_IDLE] = "idle",
        [PHASE_FINISHING] = "closing its groups",
    };
    return rank->command ? of_commands[phase] : texts[phase];
}

void rank_forget_look(struct rank_state *rank)
{
    stacks_fini(&rank->stacks);
}

/* ---- usage ---- */

enum { USAGE_GROUP_LEN = 24 }; /* bytes of a group, at least */
#define USAGE_CPU_NS 900000000ull

static void usage_set_cpu(struct rank_usage *u, uint64_t cpu_us, uint64_t now_ns)
{
    uint64_t ns = now_ns - u->before_ns;
    u->cpu_us = cpu_us;
    if (u->before_ns && ns < USAGE_CPU_NS)
        return;
    bool grown = u->before_ns && cpu_us >= u->before_us;
    u->cpu = grown ? (double)(cpu_us - u->before_us) * 1e3 / (double)ns : -1;
    u->before_us = cpu_us;
    u->before_ns = now_ns;
}

bool usage_read(struct rank_usage *u, const struct wire_frame *f, uint64_t now_ns)
{
    struct reader r;
    size_t len;
    reader_init(&r, f->payload, f->len);
    uint64_t cpu_us = read_u64(&r), memory = read_u64(&r);
    uint32_t n = read_count(&r, USAGE_GROUP_LEN);
    struct usage_group *groups = xcalloc(n + 1u, sizeof *groups);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = read_blob(&r, &len);
        snprintf(groups[i].name, sizeof groups[i].name, "%.*s", (int)len, name ? name : "");
        groups[i].operations = read_u32(&r);
        groups[i].sum_ns = read_u64(&r);
        groups[i].longest_ns = read_u64(&r);
    }
    if (!reader_done(&r)) {
        free(groups);
        return false;
    }
    free(u->groups);
    u->groups = groups;
    u->n = n;
    u->memory = memory;
    usage_set_cpu(u, cpu_us, now_ns);
    return true;
}

void usage_fini(struct rank_usage *u)
{
    free(u->groups);
    *u = (struct rank_usage){0};
}

/* ---- forming ---- */

const char *forming_text(enum wire_forming kind, const char *name, char *out, size_t size)
{
    static const char *const texts[] = {[WIRE_FORMING_CREATE] = "the creation of group ",
                                        [WIRE_FORMING_SPLIT] = "the split of group ",
                                        [WIRE_FORMING_SHRINK] = "the shrink of group ",
                                        [WIRE_FORMING_FINALIZE] = "collrun_finalize"};
    snprintf(out, size, "%s%s", texts[kind], kind == WIRE_FORMING_FINALIZE ? "" : name);
    return out;
}

bool forming_is_same(const struct forming_wait *a, const struct forming_wait *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0 && a->members.n == b->members.n &&
           memcmp(a->members.items, b->members.items, a->members.n * sizeof(uint32_t)) == 0;
}

const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (forming_is_same(&f->items[i], like))
            return &f->items[i];
    }
    return NULL;
}

static void rank_forming_remove(struct rank_forming *f, const struct forming_wait *like)
{
    const struct forming_wait *found = rank_forming_find(f, like);
    if (!found)
        return;
    uint32_t at = (uint32_t)(found - f->items);
    free(f->last.members.items);
    f->last = f->items[at];
    f->items[at] = f->items[--f->n];
}

void rank_forming_add(struct rank_forming *f, const struct forming_wait *w)
{
    const size_t len = w->members.n * sizeof(uint32_t);
    uint32_t *members = xmalloc(len);
    f->items = xrealloc(f->items, f->n + 1, sizeof *f->items);
    if (len)
        memcpy(members, w->members.items, len);
    f->items[f->n] = *w;
    f->items[f->n++].members.items = members;
}

bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns)
{
    struct reader r;
    struct forming_wait w = {0};
    size_t len;
    reader_init(&r, frame->payload, frame->len);
    bool waits = read_u8(&r);
    const uint8_t kind = read_u8(&r);
    w.kind = (enum wire_forming)kind;
    const char *name = read_blob(&r, &len);
    snprintf(w.name, sizeof w.name, "%.*s", (int)len, name ? name : "");
    uint64_t age = read_u64(&r);
    w.since_ns = age < now_ns ? now_ns - age : 1;
    uint32_t n = read_count(&r, sizeof(uint32_t));
    w.members.items = xcalloc(n, sizeof(uint32_t));
    for (; w.members.n < n; w.members.n++)
        w.members.items[w.members.n] = read_u32(&r);
    bool good = reader_done(&r) && kind < WIRE_FORMING_KINDS;
    if (good && waits)
        rank_forming_add(f, &w);
    else if (good)
        rank_forming_remove(f, &w);
    free(w.members.items);
    return good;
}

void rank_forming_fini(struct rank_forming *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        free(f->items[i].members.items);
    free(f->items);
    free(f->last.members.items);
    *f = (struct rank_forming){0};
}

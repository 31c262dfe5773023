/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/mismatch.h"

#include "base/call_text.h"
#include "base/mpi_names.h"
#include "base/names.h"
#include "diagnose/align.h"
#include "diagnose/blame.h"

#include <stdio.h>
#include <string.h>

/* The group's slot for collectives or messages with this number as its current operation. */
static const struct group_snapshot *mismatch_group(const struct rank_state *r, const char *group,
                                                   uint64_t number)
{
    for (uint32_t i = 0; i < r->snapshot.n; i++) {
        const struct group_snapshot *g = &r->snapshot.groups[i];
        if (strcmp(g->name, group) == 0 && g->started == number && kind_is_collective(g->kind))
            return g;
    }
    return NULL;
}

/* The rank's call of a collective, by its record; `scope`, which is unique in the job, may be NULL.
 */
static bool mismatch_find_op(const struct rank_state *r, const char *group, const char *scope,
                             uint64_t number, struct record_view_op *op)
{
    struct record_view_group g;
    if (!r->record_bytes)
        return false;
    for (uint64_t i = record_view_end(&r->record); i-- > record_view_first(&r->record);) {
        if (record_view_op(&r->record, i, op) && op->is_current && op->number == number &&
            record_view_group(&r->record, op->slot, &g) && !g.messages &&
            (scope ? strcmp(g.scope, scope) == 0 : strcmp(g.name, group) == 0))
            return true;
    }
    return false;
}

static bool mismatch_recorded_call(const struct rank_state *r, const char *group, uint64_t number,
                                   struct align_call *out)
{
    struct record_view_op op;
    if (!mismatch_find_op(r, group, NULL, number, &op))
        return false;
    *out = align_call_of(&op);
    return true;
}

static bool mismatch_call_of(const struct rank_state *r, const char *group, uint64_t number,
                             struct align_call *out)
{
    const struct group_snapshot *g = mismatch_group(r, group, number);
    if (g && g->op != OP_USER)
        *out = (struct align_call){.kind = g->kind,
                                   .dtype = g->dtype,
                                   .op = g->op,
                                   .function = g->function,
                                   .root = g->root_or_peer,
                                   .count = g->count};
    return (g && g->op != OP_USER) || mismatch_recorded_call(r, group, number, out);
}

/* Without records of all: the calls that are known. False: they do not differ. */
static bool mismatch_current_calls(const struct evidence *e, const struct verdict *v,
                                   struct arena *arena, struct align_difference *d)
{
    struct align_call *calls = arena_calloc(arena, e->desc->nranks, sizeof *calls);
    uint32_t *class_of = arena_calloc(arena, e->desc->nranks, sizeof *class_of);
    *d = (struct align_difference){.group = v->group,
                                   .number = v->number,
                                   .ranks = blame_new_list(e, arena),
                                   .wrong = blame_new_list(e, arena),
                                   .suspects = blame_new_list(e, arena),
                                   .calls = calls,
                                   .class_of = class_of};
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (mismatch_call_of(&e->ranks[i], v->group, v->number, &calls[d->ranks.n]))
            d->ranks.items[d->ranks.n++] = i;
    }
    d->majority = align_vote(calls, d->ranks.n, class_of);
    uint32_t base = d->majority < d->ranks.n ? d->majority : 0;
    struct desc_ranks *list = d->majority < d->ranks.n ? &d->wrong : &d->suspects;
    for (uint32_t i = 0; i < d->ranks.n; i++) {
        const char *field = align_field(&calls[base], &calls[i]);
        d->field = d->field ? d->field : field;
        if (field || d->majority == d->ranks.n)
            list->items[list->n++] = d->ranks.items[i];
    }
    return d->field != NULL;
}

/* `r`: a rank that has made the call. */
static const char *mismatch_call_text(const struct rank_state *r, const struct align_call *c,
                                      struct arena *arena)
{
    char name[RECORD_VIEW_USER_OP];
    const struct collrun_user_op op = {.size = sizeof op, .name = name};
    bool named = r->record_bytes && record_view_user_op(&r->record, c->user_op, name);
    const struct collrun_call call = {.size = sizeof call,
                                      .user_op = named ? &op : NULL,
                                      .kind = (enum collrun_kind)c->kind,
                                      .count = c->count,
                                      .dtype = (enum collrun_dtype)c->dtype,
                                      .op = (enum collrun_op)c->op,
                                      .root = c->root,
                                      .peer = c->root};
    char text[CALL_TEXT_LEN];
    if (c->function)
        mpi_call_text(&(struct mpi_call){c->function, c->dtype, c->op, c->root, 0, c->count}, text,
                      sizeof text);
    else
        call_text(&call, text, sizeof text);
    return arena_strdup(arena, text);
}

/* One place stands for all ranks that have made the call; only calls of MPI have one. */
static void mismatch_set_site(const struct evidence *e, const struct align_difference *d,
                              struct verdict_call *call)
{
    for (uint32_t i = 0; i < call->ranks.n && !call->site; i++) {
        call->rank = call->ranks.items[i];
        struct record_view_op op;
        const bool known =
            mismatch_find_op(&e->ranks[call->rank], d->group, d->scope, d->number, &op);
        call->site = known && op.function ? op.site : 0;
    }
}

/* Sets v->calls. */
static void mismatch_list_calls(const struct evidence *e, const struct align_difference *d,
                                struct arena *arena, struct verdict *v)
{
    struct verdict_call *calls = arena_calloc(arena, d->ranks.n, sizeof *calls);
    for (uint32_t i = 0; i < d->ranks.n; i++) {
        if (d->class_of[i] != i)
            continue;
        struct verdict_call *call = &calls[v->ncalls];
        *call = (struct verdict_call){
            .ranks = blame_new_list(e, arena),
            .call = mismatch_call_text(&e->ranks[d->ranks.items[i]], &d->calls[i], arena)};
        for (uint32_t k = i; k < d->ranks.n; k++) {
            if (d->class_of[k] == i)
                call->ranks.items[call->ranks.n++] = d->ranks.items[k];
        }
        mismatch_set_site(e, d, call);
        v->ncalls++;
    }
    v->calls = calls;
}

/* The two calls of a pair of ranks whose counts differ. */
static void mismatch_list_counts(const struct evidence *e, const struct align_difference *d,
                                 struct arena *arena, struct verdict *v)
{
    const struct align_counts *c = &d->counts;
    struct verdict_call *calls = arena_calloc(arena, 2, sizeof *calls);
    uint32_t *ranks = arena_calloc(arena, 2, sizeof *ranks);
    const char *call = mismatch_call_text(&e->ranks[c->sender], &d->calls[0], arena);
    ranks[0] = c->sender;
    ranks[1] = c->receiver;
    calls[0] =
        (struct verdict_call){.ranks = {&ranks[0], 1},
                              .call = arena_printf(arena, "%s: %llu elements to rank %u", call,
                                                   (unsigned long long)c->sent, c->receiver)};
    calls[1] =
        (struct verdict_call){.ranks = {&ranks[1], 1},
                              .call = arena_printf(arena, "%s: %llu elements from rank %u", call,
                                                   (unsigned long long)c->expected, c->sender)};
    v->calls = calls;
    v->ncalls = 2;
}

/* "rank 1 (node1, pid 4711): allreduce world#17: " */
static void mismatch_begin_text(const struct evidence *e, struct verdict *v)
{
    char ranks[200], line[400];
    v->diag.text[0] = '\0';
    if (v->culprits.n) {
        cause_ranks_text(e->desc, e->ranks, &v->culprits, ranks, sizeof ranks);
        snprintf(line, sizeof line, "%s: ", ranks);
        blame_append(&v->diag, line);
    }
    snprintf(line, sizeof line, "%s%s%s#%llu: ", v->kind ? v->kind : "", v->kind ? " " : "",
             v->group, (unsigned long long)v->number);
    blame_append(&v->diag, line);
}

void mismatch_append_calls(const struct evidence *e, const struct verdict *v, struct diag *d)
{
    for (uint32_t i = 0; i < v->ncalls; i++) {
        char ranks[200], line[640];
        const struct verdict_call *c = &v->calls[i];
        const struct stacks_site *site = &e->ranks[c->rank].place;
        const bool resolved = c->site && site->address == c->site;
        char python[RECORD_VIEW_PATH];
        const bool placed =
            resolved || (c->site && e->ranks[c->rank].record_bytes &&
                         record_view_python_site(&e->ranks[c->rank].record, c->site, python));
        snprintf(line, sizeof line, "%s%s call%s %s%s%s", i ? ", " : "",
                 blame_ranks_text(&c->ranks, ranks, sizeof ranks), c->ranks.n == 1 ? "s" : "",
                 c->call, placed ? " at " : "",
                 resolved ? site->place
                 : placed ? python
                          : "");
        blame_append(d, line);
    }
}

static void mismatch_add_counts(const struct align_difference *d, struct diag *out)
{
    char line[200];
    const struct align_counts *c = &d->counts;
    snprintf(line, sizeof line, "rank %u sends %llu elements to rank %u, which expects %llu",
             c->sender, (unsigned long long)c->sent, c->receiver, (unsigned long long)c->expected);
    blame_append(out, line);
}

/* What happened, and since when results may be wrong. */
static void mismatch_end_text(const struct align_difference *d, struct verdict *v)
{
    static const char *const edits[] = {
        [ALIGN_ARGUMENT] = "",
        [ALIGN_EXTRA] = "; without this call, its next calls are those of the others",
        [ALIGN_LEFT_OUT] = "; it has left out one call, and its next calls are those of the others",
        [ALIGN_SWAPPED] = "; it makes this call and the next one in the other order"};
    char line[160];
    if (v->culprits.n == 1)
        blame_append(&v->diag, edits[d->edit]);
    if (!d->completed)
        return;
    snprintf(line, sizeof line, "; results of %s may be wrong since operation %llu", v->group,
             (unsigned long long)d->number);
    blame_append(&v->diag, line);
}

/* The kind that is right; without a majority, the one that all calls have. */
static const char *mismatch_kind(const struct align_difference *d)
{
    bool equal = true;
    for (uint32_t i = 1; i < d->ranks.n; i++)
        equal = equal && d->calls[i].kind == d->calls[0].kind &&
                d->calls[i].function == d->calls[0].function;
    if (d->majority == d->ranks.n && !equal)
        return NULL;
    const struct align_call *right = &d->calls[d->majority < d->ranks.n ? d->majority : 0];
    if (!d->ranks.n)
        return NULL;
    return right->function ? mpi_function_name(right->function)
                           : kind_name((enum collrun_kind)right->kind);
}

static void mismatch_difference(const struct evidence *e, const struct align_difference *d,
                                struct arena *arena, struct verdict *v)
{
    bool counts = strcmp(d->field, "counts") == 0;
    v->class = CAUSE_MISMATCH;
    v->group = d->group;
    v->number = d->number;
    v->field = d->field;
    v->culprits = d->wrong;
    v->suspects = d->suspects;
    v->kind = mismatch_kind(d);
    if (v->culprits.n)
        v->rank = v->culprits.items[0];
    mismatch_begin_text(e, v);
    if (counts) {
        mismatch_list_counts(e, d, arena, v);
        mismatch_add_counts(d, &v->diag);
    } else {
        mismatch_list_calls(e, d, arena, v);
        mismatch_append_calls(e, v, &v->diag);
    }
    mismatch_end_text(d, v);
}

/* Reads "rank 3" or "rank 1 (world rank 3)" at *text, and moves behind it. False: neither. */
static bool mismatch_read_rank(const char **text, uint32_t nranks, uint32_t *rank)
{
    int len = 0;
    if (sscanf(*text, "rank %u%n", rank, &len) != 1)
        return false;
    *text += len;
    len = 0;
    if (sscanf(*text, " (world rank %u)%n", rank, &len) == 1 && len)
        *text += len;
    return *rank < nranks;
}

/* The message of the engine names two ranks (core/error.h): those of a message, or of counts
 * that differ. It also has their calls: "rank 0 calls A, rank 1 calls B". */
static void mismatch_read_text(const struct evidence *e, const char *text, struct arena *arena,
                               struct verdict *v)
{
    struct verdict_call *calls = arena_calloc(arena, 2, sizeof *calls);
    uint32_t *ranks = arena_calloc(arena, 2, sizeof *ranks), n = 0;
    for (const char *at = strstr(text, "rank "); at && n < 2;) {
        const char *begin = at, *next;
        if (!mismatch_read_rank(&at, e->desc->nranks, &ranks[n])) {
            at = strstr(begin + 1, "rank ");
            continue;
        }
        next = strstr(at, ", rank ");
        if (strncmp(at, " calls ", 7) == 0) {
            at += 7;
            calls[v->ncalls++] = (struct verdict_call){
                .ranks = {&ranks[n], 1},
                .call = arena_strndup(arena, at, next ? (size_t)(next - at) : strcspn(at, ";"))};
        }
        n++;
        at = strstr(at, "rank ");
    }
    if (n < 2 || ranks[0] == ranks[1])
        return;
    v->calls = calls;
    v->suspects = blame_new_list(e, arena);
    if (!v->suspects.items)
        return;
    v->suspects.items[0] = ranks[0] < ranks[1] ? ranks[0] : ranks[1];
    v->suspects.items[1] = ranks[0] < ranks[1] ? ranks[1] : ranks[0];
    v->suspects.n = 2;
}

/* Which of the two calls of a message differs: the first thing behind the parenthesis is the count,
 * then the type. */
static const char *mismatch_message_field(const struct verdict *v)
{
    const char *a = v->ncalls == 2 ? strstr(v->calls[0].call, " x ") : NULL;
    const char *b = v->ncalls == 2 ? strstr(v->calls[1].call, " x ") : NULL;
    if (!a || !b)
        return NULL;
    size_t len = strcspn(a, ",)");
    return len == strcspn(b, ",)") && strncmp(a, b, len) == 0 ? "count" : "dtype";
}

static struct desc_ranks mismatch_copy(const struct evidence *e, const struct desc_ranks *ranks,
                                       struct arena *arena)
{
    struct desc_ranks list = blame_new_list(e, arena);
    for (uint32_t i = 0; i < ranks->n; i++)
        list.items[list.n++] = ranks->items[i];
    return list;
}

/* Sets kind, field and calls of an operation that only some ranks have called. */
static void mismatch_set_extra(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct align_difference d;
    v->field = "kind";
    mismatch_current_calls(e, v, arena, &d);
    if (!d.ranks.n)
        return;
    v->kind = mismatch_kind(&d);
    mismatch_list_calls(e, &d, arena, v);
}

void mismatch_blame_extra(const struct evidence *e, const struct desc_ranks *ended,
                          struct arena *arena, struct verdict *v)
{
    char ranks[200], line[280];
    v->class = CAUSE_MISMATCH;
    v->rank = v->culprits.items[0];
    mismatch_set_extra(e, arena, v);
    mismatch_begin_text(e, v);
    mismatch_append_calls(e, v, &v->diag);
    snprintf(line, sizeof line, "%s%s %s ended without it", v->ncalls ? ", " : "",
             blame_ranks_text(ended, ranks, sizeof ranks), ended->n == 1 ? "has" : "have");
    blame_append(&v->diag, line);
}

/* The slot of a rank's collectives in the group of this scope. */
static bool mismatch_group_record(const struct rank_state *r, const char *scope,
                                  struct record_view_group *out)
{
    const uint32_t n = r->record_bytes ? record_view_ngroups(&r->record) : 0;
    for (uint32_t slot = 0; slot < n; slot++) {
        if (record_view_group(&r->record, slot, out) && !out->messages &&
            strcmp(out->scope, scope) == 0)
            return true;
    }
    return false;
}

/* The rank has called collrun_group_destroy before any error: all groups that are open when a job
 * ends have one, or their ranks have ended. */
static bool mismatch_has_destroyed(const struct rank_state *r, const struct record_view_group *g)
{
    return !g->messages && !g->open && !g->status && !rank_has_ended(r) && !rank_is_gone(r);
}

struct mismatch_destroyed {
    struct desc_ranks closers, callers; /* after the call `number` - 1, and of the call `number` */
    uint64_t number;
    bool failed; /* a call of `number` or later did not complete */
};

static void mismatch_collect_destroyed(const struct evidence *e, const struct record_view_group *g,
                                       struct arena *arena, struct mismatch_destroyed *d)
{
    struct record_view_group own;
    *d = (struct mismatch_destroyed){blame_new_list(e, arena), blame_new_list(e, arena),
                                     g->started + 1, false};
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (!mismatch_group_record(&e->ranks[i], g->scope, &own))
            continue;
        if (own.started >= d->number) {
            d->callers.items[d->callers.n++] = i;
            d->failed = d->failed || own.done < d->number || own.status;
        } else if (mismatch_has_destroyed(&e->ranks[i], &own)) {
            d->closers.items[d->closers.n++] = i;
        }
    }
}

/* "rank 1 (here, pid 7): allreduce sub#2: rank 1 has destroyed sub after sub#1, ranks 0 and 2-3
 * call allreduce(8 x float32, sum)". Members that have done neither could have done either, so only
 * more than half of all members are a majority. */
static void mismatch_blame_destroyed(const struct evidence *e, const struct record_view_group *g,
                                     const struct mismatch_destroyed *d, struct arena *arena,
                                     struct verdict *v)
{
    char ranks[200], line[400];
    v->class = CAUSE_MISMATCH;
    v->group = arena_strdup(arena, g->name);
    v->number = d->number;
    v->culprits = v->suspects = (struct desc_ranks){NULL, 0};
    if (d->callers.n * 2 > g->members)
        v->culprits = d->closers;
    else if (d->closers.n * 2 > g->members)
        v->culprits = d->callers;
    else
        v->suspects = blame_new_list(e, arena);
    for (uint32_t i = 0; v->suspects.items && i < e->desc->nranks; i++) {
        if (blame_has(&d->closers, i) || blame_has(&d->callers, i))
            v->suspects.items[v->suspects.n++] = i;
    }
    if (v->culprits.n)
        v->rank = v->culprits.items[0];
    mismatch_set_extra(e, arena, v);
    mismatch_begin_text(e, v);
    snprintf(line, sizeof line, "%s %s destroyed %s after %s#%llu, ",
             blame_ranks_text(&d->closers, ranks, sizeof ranks), d->closers.n == 1 ? "has" : "have",
             g->name, g->name, (unsigned long long)g->started);
    blame_append(&v->diag, line);
    mismatch_append_calls(e, v, &v->diag);
    if (!v->ncalls) {
        snprintf(line, sizeof line, "%s %s gone on",
                 blame_ranks_text(&d->callers, ranks, sizeof ranks),
                 d->callers.n == 1 ? "has" : "have");
        blame_append(&v->diag, line);
    }
    v->diag.hint[0] = '\0';
    diag_hint(&v->diag, "all members of a group must call the same collectives before they "
                        "destroy it");
}

bool mismatch_find_destroyed(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct record_view_group g;
    struct mismatch_destroyed d;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_state *r = &e->ranks[i];
        const uint32_t n = r->record_bytes ? record_view_ngroups(&r->record) : 0;
        for (uint32_t slot = 0; slot < n; slot++) {
            if (!record_view_group(&r->record, slot, &g) || !mismatch_has_destroyed(r, &g) ||
                (v->group && strcmp(v->group, g.name) != 0))
                continue;
            mismatch_collect_destroyed(e, &g, arena, &d);
            if (!d.failed)
                continue;
            mismatch_blame_destroyed(e, &g, &d, arena, v);
            return true;
        }
    }
    return false;
}

/* The i-th group that the rank waits to be formed. The last one of a rank that got a time-out
 * counts: it has ended by that. NULL: no more. */
static const struct forming_wait *mismatch_forming(const struct rank_state *r, uint32_t i)
{
    const bool expired = (r->failed && r->failure.code == COLLRUN_ERR_TIMEOUT) ||
                         r->why.status == COLLRUN_ERR_TIMEOUT;
    if (i < r->forming.n)
        return &r->forming.items[i];
    return i == r->forming.n && expired && r->forming.last.members.n ? &r->forming.last : NULL;
}

static bool mismatch_is_forming(const struct rank_state *r, const struct forming_wait *like)
{
    const struct forming_wait *f;
    for (uint32_t i = 0; (f = mismatch_forming(r, i)); i++) {
        if (forming_is_same(f, like))
            return true;
    }
    return false;
}

/* What `other`, which `rank` waits for in `f`, waits for instead, and in vain since `rank` is a
 * member of it. `f` if it waits for that, too; NULL: neither. */
static const struct forming_wait *mismatch_forming_instead(const struct evidence *e, uint32_t rank,
                                                           const struct forming_wait *f,
                                                           uint32_t other)
{
    const struct forming_wait *g;
    if (mismatch_is_forming(&e->ranks[other], f))
        return f;
    for (uint32_t i = 0; (g = mismatch_forming(&e->ranks[other], i)); i++) {
        if (g->kind != WIRE_FORMING_FINALIZE && blame_has(&g->members, rank) &&
            !mismatch_is_forming(&e->ranks[rank], g))
            return g;
    }
    return NULL;
}

/* "collrun_group_create("sub", ranks 2, 1 and 0)" */
static const char *mismatch_forming_text(const struct forming_wait *f, struct arena *arena)
{
    char ranks[200];
    if (f->kind != WIRE_FORMING_CREATE)
        return arena_printf(arena, "collrun_group_%s(%s)",
                            f->kind == WIRE_FORMING_SPLIT ? "split" : "shrink", f->name);
    return arena_printf(arena, "collrun_group_create(\"%s\", %s)", f->name,
                        blame_ranks_text(&f->members, ranks, sizeof ranks));
}

/* The collective that a rank waits in, in the group of this name; NULL: none. */
static const char *mismatch_collective_text(const struct rank_state *r, const char *group,
                                            struct arena *arena)
{
    const struct wait_report *w = &r->wait_report;
    for (uint32_t i = 0; i < w->nitems; i++) {
        const struct wait_report_group *g = wait_report_group(w, w->items[i].scope);
        const struct collrun_call call = {.kind = (enum collrun_kind)w->items[i].kind,
                                          .count = w->items[i].count,
                                          .dtype = (enum collrun_dtype)w->items[i].dtype,
                                          .op = (enum collrun_op)w->items[i].op,
                                          .root = -1};
        char text[CALL_TEXT_LEN];
        if (!g || strcmp(g->name, group) != 0 || !kind_is_known(call.kind) ||
            !kind_is_collective(call.kind))
            continue;
        call_text(&call, text, sizeof text);
        return arena_strdup(arena, text);
    }
    return NULL;
}

/* What a member of a group that is being formed waits in. */
struct mismatch_joining {
    const struct forming_wait *forming; /* NULL: a collective of the group that others split */
    const char *text;                   /* NULL: in neither */
};

static struct mismatch_joining mismatch_joining(const struct evidence *e, uint32_t rank,
                                                const struct forming_wait *f, uint32_t other,
                                                struct arena *arena)
{
    const struct forming_wait *g = mismatch_forming_instead(e, rank, f, other);
    return (struct mismatch_joining){
        g, g ? mismatch_forming_text(g, arena)
           : f->kind == WIRE_FORMING_SPLIT
               ? mismatch_collective_text(&e->ranks[other], f->name, arena)
               : NULL};
}

static bool mismatch_joins_alike(const struct mismatch_joining *a, const struct mismatch_joining *b)
{
    return a->forming && b->forming ? forming_is_same(a->forming, b->forming)
                                    : a->forming == b->forming && strcmp(a->text, b->text) == 0;
}

static const char *mismatch_joining_field(const struct mismatch_joining *a,
                                          const struct mismatch_joining *b)
{
    const bool same_kind = a->forming && b->forming && a->forming->kind == b->forming->kind;
    return !same_kind ? "kind" : strcmp(a->forming->name, b->forming->name) != 0 ? "name" : "ranks";
}

static void mismatch_blame_forming(const struct evidence *e, uint32_t rank,
                                   const struct forming_wait *f, struct arena *arena,
                                   struct verdict *v)
{
    struct mismatch_joining *of = arena_calloc(arena, f->members.n, sizeof *of);
    struct verdict_call *calls = arena_calloc(arena, f->members.n, sizeof *calls);
    uint32_t all = 0, most = UINT32_MAX;
    v->class = CAUSE_MISMATCH;
    v->field = "kind";
    v->culprits = v->suspects = (struct desc_ranks){NULL, 0};
    for (uint32_t world = 0; world < e->desc->nranks; world++) {
        struct mismatch_joining j = {NULL, NULL};
        uint32_t k = 0;
        if (blame_has(&f->members, world))
            j = mismatch_joining(e, rank, f, world, arena);
        if (!j.text)
            continue;
        while (k < v->ncalls && !mismatch_joins_alike(&of[k], &j))
            k++;
        if (k == v->ncalls) {
            of[v->ncalls++] = j;
            calls[k] = (struct verdict_call){.ranks = blame_new_list(e, arena), .call = j.text};
            v->field = k == 1 ? mismatch_joining_field(&of[0], &j) : v->field;
        }
        if (calls[k].ranks.items)
            calls[k].ranks.items[calls[k].ranks.n++] = world;
        all++;
    }
    for (uint32_t k = 0; k < v->ncalls; k++)
        most = calls[k].ranks.n * 2 > all ? k : most;
    struct desc_ranks wrong = blame_new_list(e, arena);
    for (uint32_t world = 0; world < e->desc->nranks; world++) {
        for (uint32_t k = 0; k < v->ncalls; k++) {
            if (k != most && blame_has(&calls[k].ranks, world))
                wrong.items[wrong.n++] = world;
        }
    }
    *(most == UINT32_MAX ? &v->suspects : &v->culprits) = wrong;
    v->calls = calls;
    v->group = arena_strdup(arena, most != UINT32_MAX && of[most].forming ? of[most].forming->name
                                                                          : f->name);
    v->number = 0;
    v->kind = NULL;
}

/* True if a member waits in another formation than this one of the rank. */
static bool mismatch_forming_differs(const struct evidence *e, uint32_t rank,
                                     const struct forming_wait *f, struct arena *arena)
{
    bool differs = false;
    for (uint32_t k = 0; f->kind != WIRE_FORMING_FINALIZE && k < f->members.n; k++) {
        const uint32_t other = f->members.items[k];
        struct mismatch_joining j = {NULL, NULL};
        if (other < e->desc->nranks)
            j = mismatch_joining(e, rank, f, other, arena);
        differs = differs || (j.text && j.forming != f);
    }
    return differs;
}

static void mismatch_report_forming(const struct evidence *e, struct verdict *v)
{
    char ranks[200], line[300];
    v->diag.text[0] = '\0';
    if (v->culprits.n) {
        v->rank = v->culprits.items[0];
        cause_ranks_text(e->desc, e->ranks, &v->culprits, ranks, sizeof ranks);
        snprintf(line, sizeof line, "%s: ", ranks);
        blame_append(&v->diag, line);
    }
    blame_append(&v->diag, "members disagree about a new group: ");
    mismatch_append_calls(e, v, &v->diag);
    v->diag.hint[0] = '\0';
    diag_hint(&v->diag, strcmp(v->field, "kind") == 0
                            ? "all members of a group must call its collectives and split it in "
                              "the same order"
                            : "all members of a new group must create it with the same name and "
                              "ranks, in the same order");
}

bool mismatch_find_forming(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const struct forming_wait *f;
    const bool joins =
        v->rank != WIRE_HOST && strstr(rank_failed_text(&e->ranks[v->rank]), " join");
    const uint32_t first = v->rank == WIRE_HOST ? 0 : v->rank;
    const uint32_t end = v->rank == WIRE_HOST ? e->desc->nranks : joins ? v->rank + 1 : 0;
    for (uint32_t rank = first; rank < end; rank++) {
        for (uint32_t i = 0; (f = mismatch_forming(&e->ranks[rank], i)); i++) {
            if (!mismatch_forming_differs(e, rank, f, arena))
                continue;
            mismatch_blame_forming(e, rank, f, arena, v);
            mismatch_report_forming(e, v);
            return true;
        }
    }
    return false;
}

/* The audit has found it, and its message stays, unless the records show more. */
static void mismatch_by_audit(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    if (!e->job.group)
        return;
    v->group = arena_strdup(arena, e->job.group);
    v->number = e->job.number;
    v->culprits = mismatch_copy(e, &e->job.culprits, arena);
    v->suspects = mismatch_copy(e, &e->job.suspects, arena);
    if (e->job.extra && !mismatch_find_destroyed(e, arena, v))
        mismatch_set_extra(e, arena, v);
}

/* The error is about a message: "... calls send(...), ... calls recv(...)". */
static bool mismatch_has_message(const char *text)
{
    return strstr(text, " calls send(") && strstr(text, " calls recv");
}

/* The message is one of a collective that is emulated. */
static bool mismatch_is_emulated(const char *text)
{
    uint32_t tag = 0;
    const char *at = strstr(text, ", tag ");
    return at && sscanf(at, ", tag %u", &tag) == 1 && tag > INT32_MAX;
}

/* The error is about a message of the user. A rank may get it as the failure of another operation
 * of the group. Of a message of a collective, the records come first. */
static bool mismatch_is_message(const char *text)
{
    return mismatch_has_message(text) && !mismatch_is_emulated(text);
}

/* "allreduce world#2: rank 1 calls allreduce(...), rank 2 calls allreduce(...)": two members have
 * compared their calls, in a group that may have more. */
static bool mismatch_names_two(const struct desc *desc, const struct rank_state *r,
                               const char *text)
{
    const struct desc_group *group = desc_find_group(desc, r->group);
    unsigned first, second, n = 0;
    const char *at = strstr(text, ": rank ");
    const char *next = at ? strstr(at, ", rank ") : NULL;
    for (const char *call = at; call && (call = strstr(call, " calls ")); call++)
        n++;
    return n == 2 && next && sscanf(at, ": rank %u calls", &first) == 1 &&
           sscanf(next, ", rank %u calls", &second) == 1 && !strstr(at, " call ") &&
           !mismatch_has_message(text) && (!group || group->ranks.n > 2);
}

bool mismatch_is_partial(const struct desc *desc, const struct rank_state *r)
{
    const char *text = rank_failed_text(r);
    return (r->failed || r->why.status) &&
           ((mismatch_has_message(text) && mismatch_is_emulated(text)) ||
            mismatch_names_two(desc, r, text));
}

/* The operation of a rank's record that the text describes, "recv(8 x int64, from 5, tag 3)"; if
 * there are several, the oldest that has not ended well. 0: there is none. */
static uint64_t mismatch_number_of(const struct rank_state *r, const char *group, const char *text)
{
    struct record_view_op op;
    struct record_view_group g;
    if (!r->record_bytes)
        return 0;
    for (uint64_t i = record_view_first(&r->record); i < record_view_end(&r->record); i++) {
        if (!record_view_op(&r->record, i, &op) || !op.is_current || op.state == RECORD_DONE ||
            !record_view_group(&r->record, op.slot, &g) || strcmp(g.name, group) != 0)
            continue;
        const struct collrun_call call = {.kind = op.kind,
                                          .count = op.count,
                                          .dtype = op.dtype,
                                          .op = op.op,
                                          .root = op.root_or_peer,
                                          .peer = op.root_or_peer,
                                          .tag = op.tag};
        char own[CALL_TEXT_LEN];
        call_text(&call, own, sizeof own);
        if (strcmp(own, text) == 0)
            return op.number;
    }
    return 0;
}

/* Returns the number of the message that two ranks disagree about; 0 if it is not known. */
static uint64_t mismatch_receive_number(const struct evidence *e, const struct verdict *v)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < v->ncalls && !number; i++) {
        const struct verdict_call *c = &v->calls[i];
        if (strncmp(c->call, "recv", 4) == 0)
            number = mismatch_number_of(&e->ranks[c->ranks.items[0]], v->group, c->call);
    }
    return number;
}

/* Blames by the text of the engine's error alone, which rank `r` got. */
static void mismatch_by_text(const struct evidence *e, const struct rank_state *r,
                             struct arena *arena, struct verdict *v)
{
    enum collrun_kind kind = blame_kind_of(rank_failed_text(r));
    bool message = mismatch_is_message(rank_failed_text(r));
    mismatch_read_text(e, rank_failed_text(r), arena, v);
    v->kind = kind < COLLRUN_KIND_COUNT ? kind_name(kind) : NULL;
    v->field = message ? mismatch_message_field(v) : collrun_kind_is_vector(kind) ? "counts" : NULL;
    if (message && !collrun_kind_is_message(kind)) {
        v->kind = kind_name(COLLRUN_RECV);
        v->number = mismatch_receive_number(e, v); /* it was that of another operation */
    }
}

/* A call returned MISMATCH to a rank, which went on. False: there is no such rank. */
static bool mismatch_by_ignored(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const struct rank_state *r = e->ranks, *end = r + e->desc->nranks;
    while (r < end && r->why.status != COLLRUN_ERR_MISMATCH)
        r++;
    if (r == end)
        return false;
    v->group = arena_strdup(arena, r->why.group);
    v->number = r->why.number;
    diag_set(&v->diag, COLLRUN_ERR_MISMATCH, "%s", r->why.text);
    mismatch_by_text(e, r, arena, v);
    return true;
}

void mismatch_blame(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct align_difference d;
    const struct rank_state *r = v->rank == WIRE_HOST ? NULL : &e->ranks[v->rank];
    /* A message may fail because of a collective of its group, and the other way round. */
    bool message = r && mismatch_is_message(rank_failed_text(r));
    bool called = r && v->group && !collrun_kind_is_message(blame_kind_of(rank_failed_text(r)));
    v->culprits.n = 0;
    if (!message && (align_find(e, r ? v->group : NULL, arena, &d) ||
                     (called && mismatch_current_calls(e, v, arena, &d))))
        mismatch_difference(e, &d, arena, v);
    else if (r)
        mismatch_by_text(e, r, arena, v);
    else if (e->job.group || !mismatch_by_ignored(e, arena, v))
        mismatch_by_audit(e, arena, v);
}

bool mismatch_find_hidden(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct align_difference d;
    bool own = v->class < CAUSE_ERROR; /* stronger than a mismatch elsewhere */
    if (!align_find(e, own ? v->group : NULL, arena, &d) || (own && d.number != v->number))
        return false;
    v->suspects.n = 0;
    mismatch_difference(e, &d, arena, v);
    return true;
}

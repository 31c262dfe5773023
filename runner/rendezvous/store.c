/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes (scope.h) in a hash table, and what the frames of their members do to them. The answer to
 * a fence is encoded once for all members.
 */
#include "rendezvous/store.h"

#include "base/arena.h"
#include "base/debug.h"
#include "base/parse.h"
#include "base/wire_fields.h"
#include "rendezvous/scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

struct rdv {
    const struct desc *desc;
    struct rdv_output output;
    struct scope *buckets[BUCKETS];
    bool *exited; /* by world rank */
};

struct rdv *rdv_new(const struct desc *desc, struct rdv_output output)
{
    struct rdv *rdv = memory_checked(calloc(1, sizeof *rdv));
    if (!rdv)
        return NULL;
    rdv->desc = desc;
    rdv->output = output;
    rdv->exited = memory_checked(calloc(desc->nranks ? desc->nranks : 1, sizeof *rdv->exited));
    if (rdv->exited)
        return rdv;
    free(rdv);
    return NULL;
}

void rdv_free(struct rdv *rdv)
{
    for (int i = 0; rdv && i < BUCKETS; i++) {
        while (rdv->buckets[i]) {
            struct scope *next = rdv->buckets[i]->next;
            scope_free(rdv->buckets[i]);
            rdv->buckets[i] = next;
        }
    }
    if (rdv)
        free(rdv->exited);
    free(rdv);
}

static uint32_t rdv_bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return hash % BUCKETS;
}

static struct scope **rdv_bucket(struct rdv *rdv, const char *name)
{
    return &rdv->buckets[rdv_bucket_of(name)];
}

static struct scope *rdv_scope_find(const struct rdv *rdv, const char *name)
{
    struct scope *s = rdv->buckets[rdv_bucket_of(name)];
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

bool rdv_has_scope(const struct rdv *rdv, const char *name)
{
    return rdv_scope_find(rdv, name) != NULL;
}

/* ---- answers ---- */

static void rdv_send_reply(struct rdv *rdv, const struct scope *s, const struct get *g,
                           const struct kv *kv)
{
    struct buf b, value;
    buf_init(&b);
    buf_init(&value);
    if (kv)
        buf_put_blob(&value, kv->value, kv->len);
    wire_put_reply(&b,
                   &(struct wire_reply){s->name, g->key, {s->failure, {value.data, value.len}}});
    b.failed = b.failed || value.failed;
    buf_fini(&value);
    rdv->output.send(rdv->output.ctx, &g->rank, 1, WIRE_REPLY, &b);
    buf_fini(&b);
}

static void rdv_send_fenced(struct rdv *rdv, struct scope *s, const uint32_t *ranks, uint32_t n,
                            uint32_t number)
{
    struct buf b, pairs;
    uint32_t nkvs = 0;
    buf_init(&b);
    buf_init(&pairs);
    for (size_t i = 0; i < s->nkvs; i++)
        nkvs += s->kvs[i].fence == number;
    buf_put_u32(&pairs, nkvs);
    for (size_t i = 0; !s->failure.code && i < s->nkvs; i++) {
        if (s->kvs[i].fence != number)
            continue;
        buf_put_str(&pairs, s->kvs[i].key);
        buf_put_blob(&pairs, s->kvs[i].value, s->kvs[i].len);
    }
    wire_put_fenced(&b,
                    &(struct wire_fenced){s->name, number, {s->failure, {pairs.data, pairs.len}}});
    b.failed = b.failed || pairs.failed;
    buf_fini(&pairs);
    rdv->output.send(rdv->output.ctx, ranks, n, WIRE_FENCED, &b);
    buf_fini(&b);
}

/* To all members that wait in the fence; after it none does. */
static void rdv_send_waiting(struct rdv *rdv, struct scope *s, uint32_t number)
{
    uint32_t *ranks = s->woken, n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].waiting)
            ranks[n++] = s->ranks[i];
        s->members[i].waiting = false;
    }
    rdv_send_fenced(rdv, s, ranks, n, number);
}

/* Answers pending requests with the failure now, and later requests when they arrive. */
static void rdv_scope_fail(struct rdv *rdv, struct scope *s, const struct diag *why)
{
    if (s->failure.code)
        return;
    debug_log(DEBUG_RDV, "%s: fails with status %d: %s (%zu gets wait)", s->name, why->code,
              why->text, s->ngets);
    s->failure = *why;
    s->failure.loc = s->group_index < rdv->desc->ngroups ? rdv->desc->groups[s->group_index].loc
                                                         : s->failure.loc;
    s->deadline = UINT64_MAX;
    for (size_t i = 0; i < s->ngets; i++) {
        rdv_send_reply(rdv, s, &s->gets[i], NULL);
        free(s->gets[i].key);
    }
    s->ngets = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].waiting)
            rdv_send_fenced(rdv, s, &s->ranks[i], 1, s->members[i].fences);
        s->members[i].waiting = false;
    }
}

static void rdv_scope_failf(struct rdv *rdv, struct scope *s, int code, const char *what)
{
    struct diag d;
    diag_set(&d, code, "group \"%s\": %s", s->group, what);
    rdv_scope_fail(rdv, s, &d);
}

/* ---- JOIN ---- */

static struct scope *rdv_scope_new(struct rdv *rdv, const char *name, const char *group, uint32_t n)
{
    struct scope *s = scope_new(name, group, n);
    if (!s)
        return NULL;
    struct scope **bucket = rdv_bucket(rdv, name);
    s->next = *bucket;
    *bucket = s;
    return s;
}

static void rdv_compare_join(struct rdv *rdv, struct scope *s, uint32_t rank, const char *identity,
                             bool same_ranks)
{
    char what[512];
    if (!same_ranks)
        snprintf(what, sizeof what, "ranks %u and %u list different members", s->first, rank);
    else if (strcmp(s->identity, identity) != 0)
        snprintf(what, sizeof what,
                 "ranks disagree about the backend or the check: rank %u has %s, rank %u has %s",
                 s->first, s->identity, rank, identity);
    else
        return;
    rdv_scope_failf(rdv, s, COLLRUN_ERR_MISMATCH, what);
}

/* Members that have exited before do not join any more. */
static void rdv_leave_exited(struct rdv *rdv, struct scope *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranks[i] >= rdv->desc->nranks || !rdv->exited[s->ranks[i]])
            continue;
        s->members[i].left = true;
        char what[64];
        snprintf(what, sizeof what, "rank %u has exited", s->ranks[i]);
        if (!s->agreement)
            rdv_scope_failf(rdv, s, COLLRUN_ERR_PEER_FAILED, what);
    }
}

/* JOIN, or AGREE. */
struct join {
    const char *name, *group, *identity;
    uint64_t timeout_ns;
    struct wire_ranks members;
    uint32_t group_index;
    bool agreement;
};

static struct scope *rdv_scope_open(struct rdv *rdv, uint32_t rank, const struct join *join,
                                    uint64_t now)
{
    struct scope *s = rdv_scope_new(rdv, join->name, join->group, join->members.n);
    if (!s || !(s->identity = memory_checked(strdup(join->identity))))
        return NULL;
    memcpy(s->ranks, join->members.items, s->n * sizeof *s->ranks);
    s->first = rank;
    s->agreement = join->agreement;
    s->group_index = join->group_index;
    s->timeout_ns = join->timeout_ns;
    s->deadline = join->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + join->timeout_ns;
    rdv_leave_exited(rdv, s);
    return s;
}

/* Finds the scope or makes it, and joins it. NULL: *d is set. */
static struct scope *rdv_join(struct rdv *rdv, uint32_t rank, const struct join *join, uint64_t now,
                              struct diag *d)
{
    struct scope *s = rdv_scope_find(rdv, join->name);
    if (!s && !(s = rdv_scope_open(rdv, rank, join, now))) {
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", join->group);
        return NULL;
    }
    bool same_ranks = s->n == join->members.n &&
                      memcmp(s->ranks, join->members.items, s->n * sizeof *s->ranks) == 0;
    int i = scope_member(s, rank);
    if (i < 0 || s->members[i].joined) {
        diag_set(d, COLLRUN_ERR_INVALID, "rank %u joins group \"%s\" %s", rank, join->group,
                 i < 0 ? "without being a member" : "twice");
        return NULL;
    }
    s->members[i].joined = true;
    debug_log(DEBUG_RDV, "%s: rank %u joins, one of %u, identity \"%s\", limit %.1f s%s", s->name,
              rank, s->n, join->identity, (double)s->timeout_ns / 1e9,
              s->agreement ? ", an agreement" : "");
    rdv_compare_join(rdv, s, rank, join->identity, same_ranks);
    return s;
}

static int rdv_on_join(struct rdv *rdv, const struct wire_frame *f, struct arena *arena,
                       uint64_t now, struct diag *d)
{
    struct wire_join read;
    if (!wire_read_join(f, arena, &read))
        return wire_malformed(d, "JOIN frame");
    const struct join join = {.name = read.scope,
                              .group = read.group,
                              .identity = read.identity,
                              .timeout_ns = read.timeout_ns,
                              .members = read.members,
                              .group_index = read.index};
    for (uint32_t i = 0; i < join.members.n; i++)
        if (join.members.items[i] >= rdv->desc->nranks)
            return diag_set(d, COLLRUN_ERR_INVALID, "group \"%s\" has rank %u of %u", join.group,
                            join.members.items[i], rdv->desc->nranks);
    return rdv_join(rdv, f->rank, &join, now, d) ? COLLRUN_OK : d->code;
}

/* ---- PUT, GET ---- */

static int rdv_on_put(struct rdv *rdv, struct scope *s, int member, const struct wire_frame *f,
                      struct arena *arena, struct diag *d)
{
    struct wire_store_put put;
    if (!wire_read_store_put(f, arena, &put))
        return wire_malformed(d, "PUT frame");
    const char *key = put.key;
    const size_t len = put.value.len;
    if (scope_find_key(s, key)) {
        char what[256];
        snprintf(what, sizeof what, "its backend put the key \"%.100s\" twice", key);
        rdv_scope_failf(rdv, s, COLLRUN_ERR_BACKEND, what);
        return COLLRUN_OK;
    }
    struct kv *kv = scope_add_key(s, key, put.value.data, len);
    if (!kv)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a key of group \"%s\"",
                        s->group);
    kv->rank = s->ranks[member];
    kv->fence = s->members[member].fences;
    debug_log(DEBUG_RDV, "%s: rank %u has put \"%s\", %zu bytes, for fence %u", s->name, kv->rank,
              key, len, kv->fence);
    for (size_t i = 0; i < s->ngets;) {
        if (strcmp(s->gets[i].key, key) != 0) {
            i++;
            continue;
        }
        rdv_send_reply(rdv, s, &s->gets[i], kv);
        free(s->gets[i].key);
        s->gets[i] = s->gets[--s->ngets];
    }
    return COLLRUN_OK;
}

static int rdv_on_get(struct rdv *rdv, struct scope *s, const struct wire_frame *f,
                      struct arena *arena, struct diag *d)
{
    struct wire_store_get read;
    if (!wire_read_store_get(f, arena, &read))
        return wire_malformed(d, "GET frame");
    struct get get = {.key = (char *)(uintptr_t)read.key, .rank = f->rank};
    const struct kv *kv = scope_find_key(s, get.key);
    if (kv || s->failure.code) {
        rdv_send_reply(rdv, s, &get, s->failure.code ? NULL : kv);
        return COLLRUN_OK;
    }
    struct get *grown = memory_checked(realloc(s->gets, (s->ngets + 1) * sizeof *grown));
    if (grown)
        s->gets = grown;
    get.key = memory_checked(strdup(get.key));
    if (!grown || !get.key) {
        free(get.key);
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a get of group \"%s\"",
                        s->group);
    }
    s->gets[s->ngets++] = get;
    return COLLRUN_OK;
}

/* ---- FENCE, LEAVE ---- */

/* Answers the fence if all members are inside; of an agreement, all that are left. */
static void rdv_end_fence(struct rdv *rdv, struct scope *s)
{
    const struct member *last = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].waiting)
            last = &s->members[i];
        else if (!s->agreement || !s->members[i].left)
            return;
    }
    if (!last)
        return;
    uint32_t number = last->fences;
    debug_log(DEBUG_RDV, "%s: fence %u is complete", s->name, number);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].waiting)
            s->members[i].fences++;
    }
    rdv_send_waiting(rdv, s, number);
}

static int rdv_on_fence(struct rdv *rdv, struct scope *s, int member, const struct wire_frame *f,
                        struct arena *arena, struct diag *d)
{
    struct member *m = &s->members[member];
    struct wire_fence fence;
    if (!wire_read_fence(f, arena, &fence))
        return wire_malformed(d, "FENCE frame");
    const uint32_t number = fence.number;
    if (m->waiting || number != m->fences)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "rank %u enters fence %u of group \"%s\" out of order", s->ranks[member],
                        number, s->group);
    if (s->failure.code) {
        rdv_send_fenced(rdv, s, &s->ranks[member], 1, number);
        return COLLRUN_OK;
    }
    m->waiting = true;
    debug_log(DEBUG_RDV, "%s: rank %u enters fence %u", s->name, s->ranks[member], number);
    rdv_end_fence(rdv, s);
    return COLLRUN_OK;
}

static void rdv_scope_delete(struct rdv *rdv, struct scope *s)
{
    debug_log(DEBUG_RDV, "%s: is over", s->name);
    struct scope **p = rdv_bucket(rdv, s->name);
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    scope_free(s);
}

static void rdv_on_leave(struct rdv *rdv, struct scope *s, int member)
{
    s->members[member].left = true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->members[i].left)
            return;
    }
    rdv_scope_delete(rdv, s);
}

/* ---- AGREE ---- */

/* Answers when all members that are left have sent theirs; then the scope is over. */
static void rdv_end_agreement(struct rdv *rdv, struct scope *s)
{
    rdv_end_fence(rdv, s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->members[i].left && (!s->members[i].joined || s->members[i].waiting))
            return;
    }
    rdv_scope_delete(rdv, s);
}

static int rdv_on_agree(struct rdv *rdv, const struct wire_frame *f, struct arena *arena,
                        uint64_t now, struct diag *d)
{
    struct wire_agree read;
    unsigned char vote[8];
    char key[16];
    if (!wire_read_agree(f, arena, &read))
        return wire_malformed(d, "AGREE frame");
    const struct join join = {.name = read.scope,
                              .group = read.group,
                              .identity = "",
                              .timeout_ns = read.timeout_ns,
                              .members = read.members,
                              .group_index = UINT32_MAX,
                              .agreement = true};
    const uint32_t rank = f->rank, status = (uint32_t)read.status;
    struct scope *s = rdv_join(rdv, rank, &join, now, d);
    if (!s)
        return d->code;
    snprintf(key, sizeof key, "%u", rank);
    for (int i = 0; i < 4; i++) {
        vote[i] = (unsigned char)(rank >> 8 * i);
        vote[4 + i] = (unsigned char)(status >> 8 * i);
    }
    struct kv *kv = scope_add_key(s, key, vote, sizeof vote);
    if (!kv)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", s->group);
    kv->rank = rank;
    if (s->failure.code)
        rdv_send_fenced(rdv, s, &rank, 1, 0);
    else
        s->members[scope_member(s, rank)].waiting = true;
    rdv_end_agreement(rdv, s);
    return COLLRUN_OK;
}

int rdv_on_frame(struct rdv *rdv, const struct wire_frame *f, uint64_t now, struct diag *d)
{
    struct arena arena;
    struct reader r;
    int rc = COLLRUN_OK;
    arena_init(&arena);
    if (f->type == WIRE_JOIN || f->type == WIRE_AGREE) {
        rc = f->type == WIRE_JOIN ? rdv_on_join(rdv, f, &arena, now, d)
                                  : rdv_on_agree(rdv, f, &arena, now, d);
    } else {
        reader_init(&r, f->payload, f->len);
        const char *name = read_str(&r, &arena); /* the first field of all of them */
        struct scope *s = rdv_scope_find(rdv, name);
        int member = s ? scope_member(s, f->rank) : -1;
        if (r.bad)
            rc = wire_malformed(d, "%s frame", wire_type_name(f->type));
        else if (member < 0 || !s->members[member].joined)
            rc = diag_set(d, COLLRUN_ERR_INVALID,
                          "rank %u sends %s to a group that it has not joined (%s)", f->rank,
                          wire_type_name(f->type), name);
        else if (f->type == WIRE_PUT)
            rc = rdv_on_put(rdv, s, member, f, &arena, d);
        else if (f->type == WIRE_GET)
            rc = rdv_on_get(rdv, s, f, &arena, d);
        else if (f->type == WIRE_FENCE)
            rc = rdv_on_fence(rdv, s, member, f, &arena, d);
        else
            rdv_on_leave(rdv, s, member);
    }
    arena_fini(&arena);
    return rc;
}

/* ---- missing ranks ---- */

static bool rdv_scope_waits(const struct scope *s)
{
    if (s->failure.code)
        return false;
    bool waits = s->ngets > 0;
    for (uint32_t i = 0; i < s->n && !waits; i++)
        waits = s->members[i].waiting;
    return waits;
}

static void rdv_scope_lose(struct rdv *rdv, struct scope *s, int member, const char *how)
{
    char what[512];
    snprintf(what, sizeof what, "rank %u %s", s->ranks[member], how);
    debug_log(DEBUG_RDV, "%s: loses a member: %s", s->name, what);
    s->members[member].waiting = false;
    if (s->agreement) {
        s->members[member].left = true;
        scope_drop_keys(s, member);
        rdv_end_agreement(rdv, s);
    } else {
        rdv_scope_failf(rdv, s, COLLRUN_ERR_PEER_FAILED, what);
        rdv_on_leave(rdv, s, member);
    }
}

void rdv_on_rank_exit(struct rdv *rdv, uint32_t rank, const char *how)
{
    if (rank < rdv->desc->nranks)
        rdv->exited[rank] = true;
    for (int b = 0; b < BUCKETS; b++) {
        for (struct scope *s = rdv->buckets[b], *next; s; s = next) {
            next = s->next;
            int i = scope_member(s, rank);
            if (i >= 0 && !s->members[i].left)
                rdv_scope_lose(rdv, s, i, how);
        }
    }
}

/* Names the ranks that have not entered the fence in which others wait. */
static void rdv_scope_expire(struct rdv *rdv, struct scope *s)
{
    uint32_t *missing = memory_checked(calloc(s->n, sizeof *missing)), n = 0;
    char list[256] = "some ranks", what[512];
    bool joined = true;
    for (uint32_t i = 0; missing && i < s->n; i++) {
        if (!s->members[i].waiting && !s->members[i].left) {
            missing[n++] = s->ranks[i];
            joined = joined && s->members[i].joined;
        }
    }
    if (missing)
        rank_list_format(list, sizeof list, missing, n);
    snprintf(what, sizeof what, "rank%s %s did not %s within %.1f s (%u of %u members)",
             n == 1 ? "" : "s", list, joined ? "finish joining" : "join",
             (double)s->timeout_ns / 1e9, n, s->n);
    rdv_scope_failf(rdv, s, COLLRUN_ERR_TIMEOUT, what);
    free(missing);
}

void rdv_expire(struct rdv *rdv, uint64_t now)
{
    for (int b = 0; b < BUCKETS; b++) {
        for (struct scope *s = rdv->buckets[b]; s; s = s->next) {
            if (rdv_scope_waits(s) && s->deadline <= now)
                rdv_scope_expire(rdv, s);
        }
    }
}

uint64_t rdv_next_deadline(const struct rdv *rdv)
{
    uint64_t at = UINT64_MAX;
    for (int b = 0; b < BUCKETS; b++) {
        for (const struct scope *s = rdv->buckets[b]; s; s = s->next) {
            if (rdv_scope_waits(s) && s->deadline < at)
                at = s->deadline;
        }
    }
    return at;
}

uint32_t rdv_open_scopes(const struct rdv *rdv)
{
    uint32_t n = 0;
    for (int b = 0; b < BUCKETS; b++) {
        for (const struct scope *s = rdv->buckets[b]; s; s = s->next)
            n++;
    }
    return n;
}

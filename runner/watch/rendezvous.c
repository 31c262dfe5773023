/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's state: scopes in a hash table; in each, its members with what they have done so far,
 * the keys with the fence that will publish them, and the gets that wait. A scope's answers to a
 * fence are built once and sent to all members.
 */
#include "watch/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

struct member {
    bool joined, left, waiting; /* waiting: inside fence number `fences` */
    uint32_t fences;            /* completed */
};

struct kv {
    char *key;
    void *value;
    size_t len;
    uint32_t rank, fence; /* who put it; the fence that publishes it */
};

struct get {
    char *key;
    uint32_t rank;
};

struct scope {
    struct scope *next;
    char *name, *group, *identity;
    uint32_t first; /* the rank whose join made the scope: the others are compared with it */
    uint32_t *ranks;
    struct member *members;
    uint32_t n;
    struct kv *kvs;
    size_t nkvs;
    struct get *gets;
    size_t ngets;
    uint64_t deadline, timeout_ns;
    uint32_t group_index; /* in the desc, or UINT32_MAX for a group made at run time */
    struct diag failure;  /* code 0: none */
};

struct rdv {
    const struct desc *desc;
    struct rdv_output output;
    struct scope *buckets[BUCKETS];
};

void ranks_format(char *out, size_t size, const uint32_t *ranks, uint32_t n)
{
    enum { RANGES = 8 };
    size_t len = 0;
    uint32_t ranges = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && len < size;) {
        uint32_t last = i;
        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (++ranges > RANGES) {
            snprintf(out + len, size - len, " and %u more", n - i);
            return;
        }
        const char *glue = i == 0 ? "" : last + 1 == n ? " and " : ", ";
        int wrote = last > i
                        ? snprintf(out + len, size - len, "%s%u-%u", glue, ranks[i], ranks[last])
                        : snprintf(out + len, size - len, "%s%u", glue, ranks[i]);
        len += wrote > 0 ? (size_t)wrote : 0;
        i = last + 1;
    }
}

struct rdv *rdv_new(const struct desc *desc, struct rdv_output output)
{
    struct rdv *rdv = calloc(1, sizeof *rdv);
    if (rdv) {
        rdv->desc = desc;
        rdv->output = output;
    }
    return rdv;
}

static void scope_free(struct scope *s)
{
    for (size_t i = 0; i < s->nkvs; i++) {
        free(s->kvs[i].key);
        free(s->kvs[i].value);
    }
    for (size_t i = 0; i < s->ngets; i++)
        free(s->gets[i].key);
    free(s->kvs);
    free(s->gets);
    free(s->name);
    free(s->group);
    free(s->identity);
    free(s->ranks);
    free(s->members);
    free(s);
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
    free(rdv);
}

static struct scope **bucket_of(struct rdv *rdv, const char *name)
{
    uint32_t hash = 2166136261u;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return &rdv->buckets[hash % BUCKETS];
}

static struct scope *scope_find(struct rdv *rdv, const char *name)
{
    struct scope *s = *bucket_of(rdv, name);
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static int member_index(const struct scope *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranks[i] == rank)
            return (int)i;
    }
    return -1;
}

/* ---- answers ---- */

static void send_reply(struct rdv *rdv, const struct scope *s, const struct get *g,
                       const struct kv *kv)
{
    struct buf b;
    buf_init(&b);
    buf_put_str(&b, s->name);
    buf_put_str(&b, g->key);
    buf_put_u32(&b, (uint32_t)s->failure.code);
    if (kv)
        buf_put_blob(&b, kv->value, kv->len);
    else
        wire_put_diag(&b, &s->failure);
    rdv->output.send(rdv->output.ctx, &g->rank, 1, WIRE_REPLY, &b);
    buf_fini(&b);
}

static void send_fenced(struct rdv *rdv, struct scope *s, const uint32_t *ranks, uint32_t n,
                        uint32_t number)
{
    struct buf b;
    uint32_t nkvs = 0;
    buf_init(&b);
    buf_put_str(&b, s->name);
    buf_put_u32(&b, number);
    buf_put_u32(&b, (uint32_t)s->failure.code);
    for (size_t i = 0; i < s->nkvs; i++)
        nkvs += s->kvs[i].fence == number;
    if (s->failure.code)
        wire_put_diag(&b, &s->failure);
    else
        buf_put_u32(&b, nkvs);
    for (size_t i = 0; !s->failure.code && i < s->nkvs; i++) {
        if (s->kvs[i].fence != number)
            continue;
        buf_put_str(&b, s->kvs[i].key);
        buf_put_blob(&b, s->kvs[i].value, s->kvs[i].len);
    }
    rdv->output.send(rdv->output.ctx, ranks, n, WIRE_FENCED, &b);
    buf_fini(&b);
}

/* Everybody who waits hears it now, everybody else at the next request. */
static void scope_fail(struct rdv *rdv, struct scope *s, const struct diag *why)
{
    if (s->failure.code)
        return;
    s->failure = *why;
    s->failure.loc = s->group_index < rdv->desc->ngroups ? rdv->desc->groups[s->group_index].loc
                                                         : s->failure.loc;
    s->deadline = UINT64_MAX;
    for (size_t i = 0; i < s->ngets; i++) {
        send_reply(rdv, s, &s->gets[i], NULL);
        free(s->gets[i].key);
    }
    s->ngets = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].waiting)
            send_fenced(rdv, s, &s->ranks[i], 1, s->members[i].fences);
        s->members[i].waiting = false;
    }
}

static void scope_failf(struct rdv *rdv, struct scope *s, int code, const char *what)
{
    struct diag d;
    diag_set(&d, code, "group \"%s\": %s", s->group, what);
    scope_fail(rdv, s, &d);
}

/* ---- JOIN ---- */

static struct scope *scope_new(struct rdv *rdv, const char *name, const char *group, uint32_t n)
{
    struct scope *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->n = n;
    s->name = strdup(name);
    s->group = strdup(group);
    s->ranks = calloc(n ? n : 1, sizeof *s->ranks);
    s->members = calloc(n ? n : 1, sizeof *s->members);
    if (!s->name || !s->group || !s->ranks || !s->members) {
        scope_free(s);
        return NULL;
    }
    struct scope **bucket = bucket_of(rdv, name);
    s->next = *bucket;
    *bucket = s;
    return s;
}

static void compare_join(struct rdv *rdv, struct scope *s, uint32_t rank, const char *identity,
                         bool same_ranks)
{
    char what[512];
    if (!same_ranks)
        snprintf(what, sizeof what, "ranks %u and %u disagree about its members", s->first, rank);
    else if (strcmp(s->identity, identity) != 0)
        snprintf(what, sizeof what,
                 "ranks disagree about the backend: rank %u has %s, rank %u has %s", s->first,
                 s->identity, rank, identity);
    else
        return;
    scope_failf(rdv, s, COLLRUN_ERR_MISMATCH, what);
}

static int on_join(struct rdv *rdv, uint32_t rank, struct reader *r, struct arena *arena,
                   uint64_t now, struct diag *d)
{
    const char *name = read_str(r, arena), *group = read_str(r, arena);
    uint64_t timeout_ns = read_u64(r);
    uint32_t n = read_count(r, sizeof(uint32_t));
    uint32_t *ranks = arena_calloc(arena, n, sizeof *ranks);
    for (uint32_t i = 0; ranks && i < n; i++)
        ranks[i] = read_u32(r);
    const char *identity = read_str(r, arena);
    uint32_t group_index = read_u32(r);
    if (!ranks || !reader_done(r))
        return diag_set(d, COLLRUN_ERR_INVALID, "a JOIN that cannot be read");
    struct scope *s = scope_find(rdv, name);
    if (!s) {
        s = scope_new(rdv, name, group, n);
        if (!s || !(s->identity = strdup(identity)))
            return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", group);
        memcpy(s->ranks, ranks, n * sizeof *ranks);
        s->first = rank;
        s->group_index = group_index;
        s->timeout_ns = timeout_ns;
        s->deadline = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    }
    bool same_ranks = s->n == n && memcmp(s->ranks, ranks, n * sizeof *ranks) == 0;
    int i = member_index(s, rank);
    if (i < 0 || s->members[i].joined)
        return diag_set(d, COLLRUN_ERR_INVALID, "rank %u joins group \"%s\" %s", rank, group,
                        i < 0 ? "without being a member" : "twice");
    s->members[i].joined = true;
    compare_join(rdv, s, rank, identity, same_ranks);
    return COLLRUN_OK;
}

/* ---- PUT, GET ---- */

static struct kv *kv_find(struct scope *s, const char *key)
{
    for (size_t i = 0; i < s->nkvs; i++) {
        if (strcmp(s->kvs[i].key, key) == 0)
            return &s->kvs[i];
    }
    return NULL;
}

static struct kv *kv_add(struct scope *s, const char *key, const void *value, size_t len)
{
    /* Grown in powers of two. */
    if ((s->nkvs & (s->nkvs - 1)) == 0) {
        struct kv *grown = realloc(s->kvs, (s->nkvs ? s->nkvs * 2 : 1) * sizeof *grown);
        if (!grown)
            return NULL;
        s->kvs = grown;
    }
    struct kv kv = {.key = strdup(key), .value = malloc(len ? len : 1), .len = len};
    if (!kv.key || !kv.value) {
        free(kv.key);
        free(kv.value);
        return NULL;
    }
    memcpy(kv.value, value, len);
    s->kvs[s->nkvs] = kv;
    return &s->kvs[s->nkvs++];
}

static int on_put(struct rdv *rdv, struct scope *s, int member, struct reader *r,
                  struct arena *arena, struct diag *d)
{
    size_t len;
    const char *key = read_str(r, arena);
    const void *value = read_blob(r, &len);
    if (!reader_done(r))
        return diag_set(d, COLLRUN_ERR_INVALID, "a PUT that cannot be read");
    if (kv_find(s, key)) {
        char what[256];
        snprintf(what, sizeof what, "its backend puts the key \"%.100s\" twice", key);
        scope_failf(rdv, s, COLLRUN_ERR_BACKEND, what);
        return COLLRUN_OK;
    }
    struct kv *kv = kv_add(s, key, value, len);
    if (!kv)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a key of group \"%s\"",
                        s->group);
    kv->rank = s->ranks[member];
    kv->fence = s->members[member].fences;
    for (size_t i = 0; i < s->ngets;) {
        if (strcmp(s->gets[i].key, key) != 0) {
            i++;
            continue;
        }
        send_reply(rdv, s, &s->gets[i], kv);
        free(s->gets[i].key);
        s->gets[i] = s->gets[--s->ngets];
    }
    return COLLRUN_OK;
}

static int on_get(struct rdv *rdv, struct scope *s, uint32_t rank, struct reader *r,
                  struct arena *arena, struct diag *d)
{
    struct get get = {.key = (char *)(uintptr_t)read_str(r, arena), .rank = rank};
    if (!reader_done(r))
        return diag_set(d, COLLRUN_ERR_INVALID, "a GET that cannot be read");
    const struct kv *kv = kv_find(s, get.key);
    if (kv || s->failure.code) {
        send_reply(rdv, s, &get, s->failure.code ? NULL : kv);
        return COLLRUN_OK;
    }
    struct get *grown = realloc(s->gets, (s->ngets + 1) * sizeof *grown);
    if (grown)
        s->gets = grown;
    get.key = strdup(get.key);
    if (!grown || !get.key) {
        free(get.key);
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a get of group \"%s\"",
                        s->group);
    }
    s->gets[s->ngets++] = get;
    return COLLRUN_OK;
}

/* ---- FENCE, LEAVE ---- */

static int on_fence(struct rdv *rdv, struct scope *s, int member, struct reader *r, struct diag *d)
{
    struct member *m = &s->members[member];
    uint32_t number = read_u32(r);
    if (!reader_done(r) || m->waiting || number != m->fences)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "rank %u enters fence %u of group \"%s\" out of order", s->ranks[member],
                        number, s->group);
    if (s->failure.code) {
        send_fenced(rdv, s, &s->ranks[member], 1, number);
        return COLLRUN_OK;
    }
    m->waiting = true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->members[i].waiting)
            return COLLRUN_OK;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->members[i].waiting = false;
        s->members[i].fences++;
    }
    send_fenced(rdv, s, s->ranks, s->n, number);
    return COLLRUN_OK;
}

static void on_leave(struct rdv *rdv, struct scope *s, int member)
{
    s->members[member].left = true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->members[i].left)
            return;
    }
    struct scope **p = bucket_of(rdv, s->name);
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    scope_free(s);
}

int rdv_frame(struct rdv *rdv, const struct wire_frame *f, uint64_t now, struct diag *d)
{
    struct arena arena;
    struct reader r;
    int rc = COLLRUN_OK;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    if (f->type == WIRE_JOIN) {
        rc = on_join(rdv, f->rank, &r, &arena, now, d);
    } else {
        const char *name = read_str(&r, &arena);
        struct scope *s = scope_find(rdv, name);
        int member = s ? member_index(s, f->rank) : -1;
        if (member < 0 || !s->members[member].joined)
            rc = diag_set(d, COLLRUN_ERR_INVALID,
                          "rank %u sends %s to a group that it has not joined (%s)", f->rank,
                          wire_type_name(f->type), name);
        else if (f->type == WIRE_PUT)
            rc = on_put(rdv, s, member, &r, &arena, d);
        else if (f->type == WIRE_GET)
            rc = on_get(rdv, s, f->rank, &r, &arena, d);
        else if (f->type == WIRE_FENCE)
            rc = on_fence(rdv, s, member, &r, d);
        else
            on_leave(rdv, s, member);
    }
    arena_fini(&arena);
    return rc;
}

/* ---- what never comes ---- */

static bool scope_waits(const struct scope *s)
{
    if (s->failure.code)
        return false;
    bool waits = s->ngets > 0;
    for (uint32_t i = 0; i < s->n && !waits; i++)
        waits = s->members[i].waiting;
    return waits;
}

void rdv_rank_gone(struct rdv *rdv, uint32_t rank, const char *how)
{
    for (int b = 0; b < BUCKETS; b++) {
        for (struct scope *s = rdv->buckets[b], *next; s; s = next) {
            next = s->next;
            int i = member_index(s, rank);
            if (i < 0 || s->members[i].left)
                continue;
            char what[512];
            snprintf(what, sizeof what, "rank %u %s", rank, how);
            scope_failf(rdv, s, COLLRUN_ERR_PEER_FAILED, what);
            if (s->members[i].joined)
                on_leave(rdv, s, i);
        }
    }
}

/* The ranks that have not reached the fence that others wait in. */
static void expire_scope(struct rdv *rdv, struct scope *s)
{
    uint32_t *missing = calloc(s->n, sizeof *missing), n = 0;
    char list[256] = "some ranks", what[512];
    bool joined = true;
    for (uint32_t i = 0; missing && i < s->n; i++) {
        if (!s->members[i].waiting && !s->members[i].left) {
            missing[n++] = s->ranks[i];
            joined = joined && s->members[i].joined;
        }
    }
    if (missing)
        ranks_format(list, sizeof list, missing, n);
    snprintf(what, sizeof what, "waited %.1f s for rank%s %s of %u, which %s",
             (double)s->timeout_ns / 1e9, n == 1 ? "" : "s", list, s->n,
             joined ? "joined but did not finish forming it" : "never came to form it");
    scope_failf(rdv, s, COLLRUN_ERR_TIMEOUT, what);
    free(missing);
}

void rdv_expire(struct rdv *rdv, uint64_t now)
{
    for (int b = 0; b < BUCKETS; b++) {
        for (struct scope *s = rdv->buckets[b]; s; s = s->next) {
            if (scope_waits(s) && s->deadline <= now)
                expire_scope(rdv, s);
        }
    }
}

uint64_t rdv_next_deadline(const struct rdv *rdv)
{
    uint64_t at = UINT64_MAX;
    for (int b = 0; b < BUCKETS; b++) {
        for (const struct scope *s = rdv->buckets[b]; s; s = s->next) {
            if (scope_waits(s) && s->deadline < at)
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

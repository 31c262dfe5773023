/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions behind struct collrun_rendezvous. A failure is stored completely in r->failure, and
 * as a text in the calling thread's error record, since backends only return a status.
 */
#include "core/rendezvous.h"

#include "base/debug.h"
#include "base/loop.h"
#include "base/standstill.h"
#include "base/wire_fields.h"
#include "core/connect_all.h"
#include "core/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pairs of key and value ---- */

const struct rdv_pair *rdv_pairs_find(const struct rdv_pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->n; i++) {
        if (strcmp(pairs->items[i].key, key) == 0)
            return &pairs->items[i];
    }
    return NULL;
}

bool rdv_pairs_add(struct rdv_pairs *pairs, const char *key, const void *value, size_t len)
{
    if ((pairs->n & (pairs->n - 1)) == 0) { /* grown in powers of two */
        struct rdv_pair *grown =
            realloc(pairs->items, (pairs->n ? pairs->n * 2 : 1) * sizeof *grown);
        if (!grown)
            return false;
        pairs->items = grown;
    }
    struct rdv_pair p = {.key = strdup(key), .value = malloc(len ? len : 1), .len = len};
    if (!p.key || !p.value) {
        free(p.key);
        free(p.value);
        return false;
    }
    if (len)
        memcpy(p.value, value, len);
    pairs->items[pairs->n++] = p;
    return true;
}

void rdv_pairs_free(struct rdv_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->items[i].key);
        free(pairs->items[i].value);
    }
    free(pairs->items);
    *pairs = (struct rdv_pairs){0};
}

/* The store watches the deadline and names the missing ranks. This time-out only applies if the
 * store does not answer. */
enum { MARGIN_S = 10 };

uint64_t rendezvous_hash(const struct desc_ranks *members)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (uint32_t i = 0; i < members->n; i++) {
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (members->items[i] >> shift & 0xff)) * 1099511628211u;
    }
    return hash;
}

static int rendezvous_failed(struct rendezvous *r, const struct diag *d)
{
    debug_log(DEBUG_RDV, "%s: the rendezvous of group \"%s\" fails with status %d: %s", r->scope,
              r->spec.name, d->code, d->text);
    if (!atomic_flag_test_and_set(&r->failed))
        r->failure = *d;
    return error_cause(d->code, "%s", d->text);
}

static int rendezvous_out_of_memory(struct rendezvous *r)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory in the rendezvous");
    return rendezvous_failed(r, &d);
}

static int rendezvous_copy_out(struct rendezvous *r, const struct rdv_pair *p, void *value,
                               size_t capacity, size_t *len)
{
    struct diag d;
    *len = p->len;
    if (p->len > capacity) {
        diag_set(&d, COLLRUN_ERR_INVALID,
                 "the value of the rendezvous key \"%s\" has %zu bytes, but the buffer only %zu",
                 p->key, p->len, capacity);
        return rendezvous_failed(r, &d);
    }
    if (p->len)
        memcpy(value, p->value, p->len);
    return COLLRUN_OK;
}

static int rendezvous_no_memory_for(const struct rendezvous_spec *spec, struct diag *d)
{
    return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
}

/* ---- exchanges within this host ---- */

struct rendezvous_segment {
    uint32_t number;
    struct rendezvous_segment *next;
};

/* True if all members are on this host and share memory. */
static bool rendezvous_is_local(const struct rendezvous *r)
{
    return r->spec.host->mem.head && r->local.n == r->spec.members->n;
}

uint64_t rendezvous_hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* Makes the name of the next exchange. The members make theirs in the same order, so a number tells
 * them apart. A scope that is too long for the name loses its beginning, but the name has a hash of
 * the whole. */
static void rendezvous_exchange_name(struct rendezvous *r, char out[HOSTMEM_NAME_LEN])
{
    const char *scope = r->scope;
    const size_t len = strlen(scope),
                 most = HOSTMEM_NAME_LEN - sizeof "0123456789abcdef:/4294967295";
    if (len < HOSTMEM_NAME_LEN - sizeof "/4294967295") {
        snprintf(out, HOSTMEM_NAME_LEN, "%s/%u", scope, r->exchanges++);
        return;
    }
    snprintf(out, HOSTMEM_NAME_LEN, "%016llx:%s/%u",
             (unsigned long long)rendezvous_hash_text(scope), scope + len - most, r->exchanges++);
}

static int rendezvous_exchange(struct rendezvous *r, struct host_scope_request *q,
                               const struct host_scope_values *values, uint32_t *segment)
{
    struct diag d;
    char name[HOSTMEM_NAME_LEN];
    rendezvous_exchange_name(r, name);
    q->name = name;
    q->group = r->spec.name;
    q->identity = r->spec.identity;
    q->members = &r->local;
    q->index = r->local_index;
    q->timeout_ns = r->spec.timeout_ns;
    diag_init(&d);
    int rc = host_scope_exchange(r->spec.host, q, values, segment, &d);
    debug_log(DEBUG_RDV, "%s: %s of %u members in shared memory: status %d", name,
              q->segment_len ? "a segment" : "an exchange", r->local.n, rc);
    q->name = NULL;
    if (rc == COLLRUN_OK)
        return rc;
    if (d.loc.line == 0 && r->spec.loc)
        d.loc = *r->spec.loc;
    return rendezvous_failed(r, &d);
}

/* ---- the scope of the store ---- */

static void rendezvous_send_join(struct rendezvous *r)
{
    const struct rendezvous_spec *spec = &r->spec;
    size_t mark;
    struct buf *out = control_begin(r->control, WIRE_JOIN, &mark);
    wire_put_join(out, &(struct wire_join){.scope = r->scope,
                                           .group = spec->name,
                                           .timeout_ns = spec->timeout_ns,
                                           .members = {spec->members->items, spec->members->n},
                                           .identity = spec->identity,
                                           .index = spec->index});
    control_end(r->control, mark);
    debug_log(DEBUG_RDV, "%s: joins the store as one of %u members, identity \"%s\"", r->scope,
              spec->members->n, spec->identity);
    r->joined = true;
}

/* An exchange of members on one host: whether each has joined the store, or is about to. */
static int rendezvous_compare_use(struct rendezvous *r, bool joins)
{
    const uint8_t mine = joins;
    uint8_t *all = calloc(r->local.n, sizeof *all);
    struct host_scope_request q = {.value = &mine, .value_len = sizeof mine};
    if (!all)
        return rendezvous_out_of_memory(r);
    int rc = rendezvous_exchange(
        r, &q, &(struct host_scope_values){.data = all, .stride = sizeof *all}, NULL);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < r->local.n; i++)
        r->all_use_store |= all[i] != 0;
    free(all);
    return rc;
}

/* Members on one host join the store at its first use. They compare their backends first: one of
 * them might have a backend that does not use the store. */
static int rendezvous_need_store(struct rendezvous *r)
{
    if (r->joined)
        return COLLRUN_OK;
    int rc = r->exchanges ? COLLRUN_OK : rendezvous_compare_use(r, true);
    if (rc == COLLRUN_OK)
        rendezvous_send_join(r);
    return rc;
}

/* Moved by the time in which the process has stood still. */
static uint64_t rendezvous_deadline(struct rendezvous *r)
{
    const uint64_t stopped_ns = standstill_total(now_ns());
    r->deadline_ns = deadline_after(r->deadline_ns, stopped_ns - r->stopped_ns);
    r->stopped_ns = stopped_ns;
    return r->deadline_ns;
}

/* ---- struct collrun_rendezvous ---- */

/* A value fits into a frame with its key and scope. */
enum { KEY_LEN = 256, VALUE_MAX = WIRE_MAX_PAYLOAD - 4096 };

static int rendezvous_full_key(struct rendezvous *r, const char *key, char out[KEY_LEN])
{
    struct diag d;
    int n = snprintf(out, KEY_LEN, "%s%s", r->prefix, key);
    if (n >= 0 && n < KEY_LEN)
        return COLLRUN_OK;
    diag_set(&d, COLLRUN_ERR_INVALID, "a rendezvous key is longer than %d bytes", KEY_LEN - 1);
    return rendezvous_failed(r, &d);
}

static int rendezvous_check_value(struct rendezvous *r, const char *key, size_t len)
{
    struct diag d;
    if (len <= VALUE_MAX)
        return COLLRUN_OK;
    diag_set(&d, COLLRUN_ERR_INVALID, "the rendezvous value \"%s\" has %zu bytes; %d are allowed",
             key, len, VALUE_MAX);
    return rendezvous_failed(r, &d);
}

static int rendezvous_put(void *ctx, const char *key, const void *value, size_t len)
{
    struct rendezvous *r = ctx;
    char full[KEY_LEN];
    size_t mark;
    int rc = rendezvous_full_key(r, key, full);
    if (rc == COLLRUN_OK)
        rc = rendezvous_check_value(r, full, len);
    if (rc == COLLRUN_OK)
        rc = rendezvous_need_store(r);
    if (rc != COLLRUN_OK)
        return rc;
    struct buf *out = control_begin(r->control, WIRE_PUT, &mark);
    wire_put_store_put(out, &(struct wire_store_put){r->scope, full, {value, len}});
    bool lost = out->failed;
    control_end(r->control, mark);
    debug_log(DEBUG_RDV, "%s: put \"%s\", %zu bytes", r->scope, full, len);
    return lost ? rendezvous_out_of_memory(r) : COLLRUN_OK;
}

static void rendezvous_ask(struct rendezvous *r, struct control_request *q, uint16_t type,
                           const char *key)
{
    size_t mark;
    q->scope = r->scope;
    q->key = key;
    control_request_add(r->control, q);
    struct buf *out = control_begin(r->control, type, &mark);
    if (type == WIRE_FENCE)
        wire_put_fence(out, &(struct wire_fence){r->scope, q->number});
    else
        wire_put_store_get(out, &(struct wire_store_get){r->scope, key});
    control_end(r->control, mark);
}

/* A get that needs no reply fails after an ABORT, too. */
static int rendezvous_check_abort(struct rendezvous *r)
{
    struct diag d;
    return control_aborted(r->control, &d) ? rendezvous_failed(r, &d) : COLLRUN_OK;
}

/* With on_failure: continue, the job goes on after the end of a member. */
static int rendezvous_alive(void *ctx)
{
    struct rendezvous *r = ctx;
    const struct desc_ranks *members = r->spec.members;
    const atomic_bool *failed = r->spec.host->failed;
    struct diag d;
    int rc = rendezvous_check_abort(r);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < members->n; i++) {
        if (!atomic_load_explicit(&failed[members->items[i]], memory_order_acquire))
            continue;
        diag_set(&d, COLLRUN_ERR_PEER_FAILED,
                 "group \"%s\": rank %u exited while the group was being formed", r->spec.name,
                 members->items[i]);
        rc = rendezvous_failed(r, &d);
    }
    return rc;
}

static int rendezvous_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    struct rendezvous *r = ctx;
    struct diag d;
    char full[KEY_LEN];
    int rc = rendezvous_full_key(r, key, full);
    if (rc != COLLRUN_OK)
        return rc;
    const struct rdv_pair *known = rdv_pairs_find(&r->pairs, full);
    rc = known ? rendezvous_check_abort(r) : rendezvous_need_store(r);
    if (rc != COLLRUN_OK || known)
        return rc == COLLRUN_OK ? rendezvous_copy_out(r, known, value, capacity, len) : rc;
    struct control_request q = {.answer_type = WIRE_REPLY};
    rendezvous_ask(r, &q, WIRE_GET, full);
    debug_log(DEBUG_RDV, "%s: get \"%s\"", r->scope, full);
    if (control_request_wait(r->control, &q, rendezvous_deadline(r), &d) == COLLRUN_OK) {
        struct reader reader;
        size_t n;
        reader_init(&reader, q.value.data, q.value.len);
        const void *bytes = read_blob(&reader, &n);
        const struct rdv_pair got = {.key = full, .value = (void *)(uintptr_t)bytes, .len = n};
        rc = rendezvous_copy_out(r, &got, value, capacity, len);
    } else {
        rc = rendezvous_failed(r, &d);
    }
    control_request_fini(r->control, &q);
    return rc;
}

static int rendezvous_keep_fenced(struct rendezvous *r, const struct buf *value)
{
    struct arena arena;
    struct reader reader;
    bool good = true;
    arena_init(&arena);
    reader_init(&reader, value->data, value->len);
    uint32_t n = read_u32(&reader);
    for (uint32_t i = 0; good && i < n && !reader.bad; i++) {
        size_t len;
        const char *key = read_str(&reader, &arena);
        const void *bytes = read_blob(&reader, &len);
        good = !reader.bad && rdv_pairs_add(&r->pairs, key, bytes, len);
    }
    arena_fini(&arena);
    return good ? COLLRUN_OK : rendezvous_out_of_memory(r);
}

static int rendezvous_fence_store(struct rendezvous *r)
{
    struct diag d;
    int rc = rendezvous_need_store(r);
    if (rc != COLLRUN_OK)
        return rc;
    struct control_request q = {.answer_type = WIRE_FENCED, .number = r->fences++};
    rendezvous_ask(r, &q, WIRE_FENCE, "");
    debug_log(DEBUG_RDV, "%s: enters fence %u", r->scope, q.number);
    rc = control_request_wait(r->control, &q, rendezvous_deadline(r), &d);
    debug_log(DEBUG_RDV, "%s: leaves fence %u with status %d, %zu bytes", r->scope, q.number, rc,
              q.value.len);
    rc = rc == COLLRUN_OK ? rendezvous_keep_fenced(r, &q.value) : rendezvous_failed(r, &d);
    control_request_fini(r->control, &q);
    return rc;
}

/* Members on one host of which none has joined the store have put nothing. */
static int rendezvous_fence(void *ctx)
{
    struct rendezvous *r = ctx;
    if (rendezvous_is_local(r) && !r->all_use_store) {
        int rc = rendezvous_compare_use(r, r->joined);
        if (rc != COLLRUN_OK || !r->all_use_store)
            return rc;
    }
    return rendezvous_fence_store(r);
}

/* ---- share ---- */

static int rendezvous_share_by_store(struct rendezvous *r, const char *key, const void *value,
                                     size_t len)
{
    int rc = rendezvous_put(r, key, value, len);
    return rc == COLLRUN_OK ? rendezvous_fence(r) : rc;
}

static int rendezvous_keep_shared(struct rendezvous *r, const struct host_scope_values *all)
{
    for (uint32_t i = 0; i < r->local.n; i++) {
        const char *key = (const char *)all->data + i * all->stride;
        const size_t n = strnlen(key, all->lens[i]) + 1;
        struct diag d;
        if (rdv_pairs_find(&r->pairs, key)) {
            diag_set(&d, COLLRUN_ERR_BACKEND,
                     "group \"%s\": its backend put the key \"%.100s\" twice", r->spec.name, key);
            return rendezvous_failed(r, &d);
        }
        if (!rdv_pairs_add(&r->pairs, key, key + n, all->lens[i] - n))
            return rendezvous_out_of_memory(r);
    }
    return COLLRUN_OK;
}

/* `mine`: the key with its end, and the value. *fits: so did those of all members, which are kept.
 */
static int rendezvous_share_by_memory(struct rendezvous *r, const struct buf *mine, bool *fits)
{
    const struct host_scope_values all = {.data = malloc((size_t)r->local.n * HOSTMEM_VALUE_LEN),
                                          .stride = HOSTMEM_VALUE_LEN,
                                          .lens = calloc(r->local.n, sizeof *all.lens)};
    struct host_scope_request q = {.value = mine->data, .value_len = mine->len};
    int rc = all.data && all.lens && !mine->failed ? rendezvous_exchange(r, &q, &all, NULL)
                                                   : rendezvous_out_of_memory(r);
    *fits = true;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < r->local.n; i++)
        *fits &= all.lens[i] <= HOSTMEM_VALUE_LEN;
    if (rc == COLLRUN_OK && *fits)
        rc = rendezvous_keep_shared(r, &all);
    free(all.data);
    free(all.lens);
    return rc;
}

static int rendezvous_share(void *ctx, const char *key, const void *value, size_t len)
{
    struct rendezvous *r = ctx;
    struct buf mine;
    char full[KEY_LEN];
    bool fits;
    if (!rendezvous_is_local(r))
        return rendezvous_share_by_store(r, key, value, len);
    int rc = rendezvous_full_key(r, key, full);
    if (rc == COLLRUN_OK)
        rc = rendezvous_check_value(r, full, len);
    if (rc != COLLRUN_OK)
        return rc;
    buf_init(&mine);
    buf_put(&mine, full, strlen(full) + 1);
    buf_put(&mine, value, len);
    rc = rendezvous_share_by_memory(r, &mine, &fits);
    buf_fini(&mine);
    return rc == COLLRUN_OK && !fits ? rendezvous_share_by_store(r, key, value, len) : rc;
}

static int rendezvous_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    struct rendezvous *r = ctx;
    struct hostmem *mem = &r->spec.host->mem;
    struct host_scope_request q = {.segment_len = len};
    if (!mem->head || !len)
        return error_cause(COLLRUN_ERR_UNAVAILABLE, "no shared memory of %zu bytes", len);
    struct rendezvous_segment *s = malloc(sizeof *s);
    if (!s)
        return rendezvous_out_of_memory(r);
    int rc = rendezvous_exchange(r, &q, NULL, &s->number);
    if (rc != COLLRUN_OK) {
        free(s);
        return rc;
    }
    s->next = r->segments;
    r->segments = s;
    *fd = mem->fd;
    *offset = hostmem_segment_offset(mem, s->number);
    return COLLRUN_OK;
}

static int rendezvous_connect_all(void *ctx, int *fds)
{
    struct rendezvous *r = ctx;
    const uint64_t ends_ns = rendezvous_ends_ns(r);
    return connect_all(&(struct connect_all){.rendezvous = &r->table,
                                             .address = r->spec.address,
                                             .first_port = r->spec.first_port,
                                             .last_port = r->spec.last_port,
                                             .rank = r->spec.rank,
                                             .nranks = r->spec.members->n,
                                             .number = r->meshes++,
                                             .deadline_ns = ends_ns,
                                             .stopped_ns = r->stopped_ns},
                       fds);
}

/* ---- for the engine ---- */

static int rendezvous_allgather_by_store(struct rendezvous *r, const int32_t mine[2],
                                         int32_t (*all)[2])
{
    char key[16];
    size_t len;
    snprintf(key, sizeof key, "%" PRIu32, r->spec.rank);
    int rc = rendezvous_put(r, key, mine, sizeof *all);
    if (rc == COLLRUN_OK)
        rc = rendezvous_fence(r);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < r->spec.members->n; i++) {
        snprintf(key, sizeof key, "%" PRIu32, i);
        rc = rendezvous_get(r, key, all[i], sizeof all[i], &len);
    }
    return rc;
}

int rendezvous_allgather(struct rendezvous *r, const int32_t mine[2], int32_t (*all)[2])
{
    struct host_scope_request q = {.value = mine, .value_len = sizeof *all};
    const struct host_scope_values values = {.data = all, .stride = sizeof *all};
    return rendezvous_is_local(r) ? rendezvous_exchange(r, &q, &values, NULL)
                                  : rendezvous_allgather_by_store(r, mine, all);
}

int rendezvous_confirm(struct rendezvous *r)
{
    struct host_scope_request q = {0};
    if (r->fences || r->spec.members->n == 1 || (r->exchanges && rendezvous_is_local(r)))
        return COLLRUN_OK;
    return rendezvous_is_local(r) ? rendezvous_exchange(r, &q, NULL, NULL) : rendezvous_fence(r);
}

/* ---- life ---- */

static char *rendezvous_scope_name(const struct rendezvous_spec *spec)
{
    char *scope = NULL;
    if (asprintf(&scope, "%s#%u:%016llx", spec->name, spec->generation,
                 (unsigned long long)rendezvous_hash(spec->members)) < 0)
        return NULL;
    return scope;
}

static uint64_t rendezvous_deadline_after(uint64_t ns)
{
    return deadline_after(now_ns() + (uint64_t)MARGIN_S * 1000000000u, ns);
}

uint64_t rendezvous_ends_ns(struct rendezvous *r)
{
    return rendezvous_deadline(r) - (uint64_t)MARGIN_S * 1000000000u;
}

static bool rendezvous_find_local(struct rendezvous *r)
{
    const struct desc_ranks *members = r->spec.members;
    const struct host_scopes *h = r->spec.host;
    uint32_t *local = calloc(members->n, sizeof *local);
    for (uint32_t i = 0; local && i < members->n; i++) {
        const uint32_t rank = members->items[i];
        if (h->desc->ranks[rank].host != h->desc->ranks[h->rank].host)
            continue;
        if (rank == h->rank)
            r->local_index = r->local.n;
        local[r->local.n++] = rank;
    }
    r->local.items = local;
    return local != NULL;
}

int rendezvous_open(struct rendezvous *r, struct control *control,
                    const struct rendezvous_spec *spec, struct diag *d)
{
    *r = (struct rendezvous){
        .control = control, .spec = *spec, .prefix = "", .failed = ATOMIC_FLAG_INIT};
    diag_init(&r->failure);
    r->scope = rendezvous_scope_name(spec);
    if (!r->scope || !rendezvous_find_local(r)) {
        free(r->scope);
        r->scope = NULL;
        return rendezvous_no_memory_for(spec, d);
    }
    r->deadline_ns = rendezvous_deadline_after(spec->timeout_ns);
    r->stopped_ns = standstill_total(now_ns());
    r->table = (struct collrun_rendezvous){.size = sizeof r->table,
                                           .ctx = r,
                                           .put = rendezvous_put,
                                           .get = rendezvous_get,
                                           .fence = rendezvous_fence,
                                           .segment = rendezvous_segment,
                                           .alive = rendezvous_alive,
                                           .connect_all = rendezvous_connect_all,
                                           .share = rendezvous_share};
    if (!rendezvous_is_local(r))
        rendezvous_send_join(r);
    return COLLRUN_OK;
}

void rendezvous_prefix(struct rendezvous *r, const char *prefix)
{
    r->prefix = prefix;
}

void rendezvous_free_pairs(struct rendezvous *r)
{
    rdv_pairs_free(&r->pairs);
    free(r->local.items);
    r->local = (struct desc_ranks){0};
}

static void rendezvous_release_segments(struct rendezvous *r)
{
    while (r->segments) {
        struct rendezvous_segment *s = r->segments;
        r->segments = s->next;
        hostmem_segment_release(&r->spec.host->mem, s->number);
        free(s);
    }
}

void rendezvous_leave(struct rendezvous *r)
{
    size_t mark;
    if (!r->scope)
        return;
    rendezvous_release_segments(r);
    if (r->joined) {
        struct buf *out = control_begin(r->control, WIRE_LEAVE, &mark);
        wire_put_leave(out, &(struct wire_leave){r->scope});
        control_end(r->control, mark);
    }
    rendezvous_free_pairs(r);
    free(r->scope);
    r->scope = NULL;
}

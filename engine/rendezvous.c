/* SPDX-License-Identifier: Apache-2.0
 *
 * The four functions behind struct collrun_rendezvous. A failure is kept whole in r->failure and,
 * as a sentence, in the calling thread's error record, where the C interface of backends can carry
 * it.
 */
#include "rendezvous.h"

#include "base/loop.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The store watches the deadline and names who is missing; this side only steps in if the store
 * does not answer. */
enum { PATIENCE_S = 10 };

struct rendezvous_pair {
    char *key; /* with the prefix */
    void *value;
    size_t len;
};

uint64_t rendezvous_hash(const struct desc_ranks *members)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (uint32_t i = 0; i < members->n; i++) {
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (members->items[i] >> shift & 0xff)) * 1099511628211u;
    }
    return hash;
}

static int failed(struct rendezvous *r, const struct diag *d)
{
    if (r->failure.code == COLLRUN_OK)
        r->failure = *d;
    return error_cause(d->code, "%s", d->text);
}

static int out_of_memory(struct rendezvous *r)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory in the rendezvous");
    return failed(r, &d);
}

static const struct rendezvous_pair *pair_find(const struct rendezvous *r, const char *key)
{
    for (size_t i = 0; i < r->npairs; i++) {
        if (strcmp(r->pairs[i].key, key) == 0)
            return &r->pairs[i];
    }
    return NULL;
}

static bool pair_add(struct rendezvous *r, const char *key, const void *value, size_t len)
{
    if ((r->npairs & (r->npairs - 1)) == 0) { /* grown in powers of two */
        struct rendezvous_pair *grown =
            realloc(r->pairs, (r->npairs ? r->npairs * 2 : 1) * sizeof *grown);
        if (!grown)
            return false;
        r->pairs = grown;
    }
    struct rendezvous_pair p = {.key = strdup(key), .value = malloc(len ? len : 1), .len = len};
    if (!p.key || !p.value) {
        free(p.key);
        free(p.value);
        return false;
    }
    if (len)
        memcpy(p.value, value, len);
    r->pairs[r->npairs++] = p;
    return true;
}

static int copy_out(struct rendezvous *r, const char *key, const void *from, size_t from_len,
                    void *value, size_t capacity, size_t *len)
{
    struct diag d;
    *len = from_len;
    if (from_len > capacity) {
        diag_set(&d, COLLRUN_ERR_INVALID,
                 "the value of the rendezvous key \"%s\" is %zu bytes, there is room for %zu", key,
                 from_len, capacity);
        return failed(r, &d);
    }
    if (from_len)
        memcpy(value, from, from_len);
    return COLLRUN_OK;
}

/* ---- what is lent ---- */

enum { KEY_LEN = 256 };

static int full_key(struct rendezvous *r, const char *key, char out[KEY_LEN])
{
    struct diag d;
    int n = snprintf(out, KEY_LEN, "%s%s", r->prefix, key);
    if (n >= 0 && n < KEY_LEN)
        return COLLRUN_OK;
    diag_set(&d, COLLRUN_ERR_INVALID, "a rendezvous key is longer than %d bytes", KEY_LEN - 1);
    return failed(r, &d);
}

static int lent_put(void *ctx, const char *key, const void *value, size_t len)
{
    struct rendezvous *r = ctx;
    char full[KEY_LEN];
    size_t mark;
    int rc = full_key(r, key, full);
    if (rc != COLLRUN_OK)
        return rc;
    struct buf *out = control_begin(r->control, WIRE_PUT, &mark);
    buf_put_str(out, r->scope);
    buf_put_str(out, full);
    buf_put_blob(out, value, len);
    bool lost = out->failed;
    control_end(r->control, mark);
    return lost ? out_of_memory(r) : COLLRUN_OK;
}

static void ask(struct rendezvous *r, struct control_request *q, uint16_t type, const char *key,
                uint64_t len)
{
    size_t mark;
    q->scope = r->scope;
    q->key = key;
    control_request_add(r->control, q);
    struct buf *out = control_begin(r->control, type, &mark);
    buf_put_str(out, r->scope);
    if (type == WIRE_FENCE)
        buf_put_u32(out, q->number);
    else
        buf_put_str(out, key);
    if (type == WIRE_SEGMENT)
        buf_put_u64(out, len);
    control_end(r->control, mark);
}

/* Who asks for what is known here need not wait, but hears of the job's failure like those who
 * do. */
static int hear_abort(struct rendezvous *r)
{
    struct diag d;
    diag_init(&d);
    control_lock(r->control);
    if (control_has(r->control, CONTROL_ABORT))
        d = r->control->abort_reason;
    control_unlock(r->control);
    return d.code == COLLRUN_OK ? COLLRUN_OK : failed(r, &d);
}

static int lent_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    struct rendezvous *r = ctx;
    struct diag d;
    char full[KEY_LEN];
    int rc = full_key(r, key, full);
    if (rc != COLLRUN_OK)
        return rc;
    const struct rendezvous_pair *known = pair_find(r, full);
    if (known) {
        rc = hear_abort(r);
        return rc == COLLRUN_OK ? copy_out(r, key, known->value, known->len, value, capacity, len)
                                : rc;
    }
    struct control_request q = {.answer_type = WIRE_REPLY};
    ask(r, &q, WIRE_GET, full, 0);
    if (control_request_wait(r->control, &q, r->deadline_ns, &d) == COLLRUN_OK) {
        struct reader reader;
        size_t n;
        reader_init(&reader, q.value.data, q.value.len);
        const void *bytes = read_blob(&reader, &n);
        rc = copy_out(r, key, bytes, n, value, capacity, len);
    } else {
        rc = failed(r, &d);
    }
    control_request_fini(r->control, &q);
    return rc;
}

static int keep_fenced(struct rendezvous *r, const struct buf *value)
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
        good = !reader.bad && pair_add(r, key, bytes, len);
    }
    arena_fini(&arena);
    return good ? COLLRUN_OK : out_of_memory(r);
}

static int lent_fence(void *ctx)
{
    struct rendezvous *r = ctx;
    struct diag d;
    struct control_request q = {.answer_type = WIRE_FENCED, .number = r->fences++};
    ask(r, &q, WIRE_FENCE, "", 0);
    int rc = control_request_wait(r->control, &q, r->deadline_ns, &d);
    rc = rc == COLLRUN_OK ? keep_fenced(r, &q.value) : failed(r, &d);
    control_request_fini(r->control, &q);
    return rc;
}

static int lent_segment(void *ctx, const char *key, size_t len, int *fd)
{
    struct rendezvous *r = ctx;
    struct diag d;
    char full[KEY_LEN];
    int rc = full_key(r, key, full);
    if (rc != COLLRUN_OK)
        return rc;
    struct control_request q = {.answer_type = WIRE_SEGMENT_FD};
    ask(r, &q, WIRE_SEGMENT, full, len);
    rc = control_request_wait(r->control, &q, r->deadline_ns, &d);
    if (rc == COLLRUN_OK) {
        *fd = q.fd;
        q.fd = -1;
    } else {
        rc = failed(r, &d);
    }
    control_request_fini(r->control, &q);
    return rc;
}

/* ---- life ---- */

static char *scope_name(const struct rendezvous_spec *spec)
{
    char *scope = NULL;
    if (asprintf(&scope, "%s#%u:%016llx", spec->name, spec->generation,
                 (unsigned long long)rendezvous_hash(spec->members)) < 0)
        return NULL;
    return scope;
}

static uint64_t deadline_after(uint64_t ns)
{
    uint64_t now = now_ns(), patience = (uint64_t)PATIENCE_S * 1000000000u;
    return ns > UINT64_MAX - now - patience ? UINT64_MAX : now + ns + patience;
}

uint64_t rendezvous_ends_ns(const struct rendezvous *r)
{
    return r->deadline_ns - (uint64_t)PATIENCE_S * 1000000000u;
}

int rendezvous_open(struct rendezvous *r, struct control *control,
                    const struct rendezvous_spec *spec, struct diag *d)
{
    size_t mark;
    *r = (struct rendezvous){.control = control, .prefix = ""};
    diag_init(&r->failure);
    r->scope = scope_name(spec);
    if (!r->scope)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
    r->deadline_ns = deadline_after(spec->timeout_ns);
    r->lent = (struct collrun_rendezvous){.size = sizeof r->lent,
                                          .ctx = r,
                                          .put = lent_put,
                                          .get = lent_get,
                                          .fence = lent_fence,
                                          .segment = lent_segment};
    struct buf *out = control_begin(control, WIRE_JOIN, &mark);
    buf_put_str(out, r->scope);
    buf_put_str(out, spec->name);
    buf_put_u64(out, spec->timeout_ns);
    buf_put_u32(out, spec->members->n);
    for (uint32_t i = 0; i < spec->members->n; i++)
        buf_put_u32(out, spec->members->items[i]);
    buf_put_str(out, spec->identity);
    buf_put_u32(out, spec->index);
    control_end(control, mark);
    return COLLRUN_OK;
}

void rendezvous_prefix(struct rendezvous *r, const char *prefix)
{
    r->prefix = prefix;
}

void rendezvous_settle(struct rendezvous *r)
{
    for (size_t i = 0; i < r->npairs; i++) {
        free(r->pairs[i].key);
        free(r->pairs[i].value);
    }
    free(r->pairs);
    r->pairs = NULL;
    r->npairs = 0;
}

void rendezvous_leave(struct rendezvous *r)
{
    size_t mark;
    if (!r->scope)
        return;
    struct buf *out = control_begin(r->control, WIRE_LEAVE, &mark);
    buf_put_str(out, r->scope);
    control_end(r->control, mark);
    rendezvous_settle(r);
    free(r->scope);
    r->scope = NULL;
}

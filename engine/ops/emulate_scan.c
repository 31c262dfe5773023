/* SPDX-License-Identifier: Apache-2.0
 *
 * - The devices of this process are combined first: prefix d is that of its devices 0 to d.
 * - The processes then scan, exclusively, what all their devices make together, in log2(n) rounds,
 *   rounded up (Hillis and Steele, "Data parallel algorithms", CACM 29, 1986). Before the round of
 *   distance k, the window of rank r combines ranks r-k+1 .. r. Rank r sends its window to r+k and
 *   combines the one of r-k from the left, so the windows double. Those that a rank receives cover
 *   all ranks before it, once.
 * - The result of a device combines both. A scan of processes without several devices is simpler:
 *   the window becomes the result.
 *
 * Partial results of half precision are float32, and rounded once.
 */
#include "ops/emulate_scan.h"

#include "core/error.h"
#include "core/reduce.h"
#include "ops/emulate_reduce.h"

struct scan {
    struct emulation *e;
    bool simple;       /* a scan with one device: the result is the last window */
    size_t count, len; /* of one vector of partial results: elements, bytes */
    char *prefixes;    /* one vector for each device */
    void *window;      /* of this rank */
    void *received;    /* of another rank */
    void *before;      /* all windows received so far, combined */
    bool has_before;
};

static void *scan_prefix(const struct scan *s, uint32_t device)
{
    return s->prefixes + device * s->len;
}

/* A vector of partial results: the receive buffer if it may be and has their type. */
static void *scan_vector(const struct scan *s, bool may_be_result)
{
    const struct collrun_call *call = s->e->call;
    bool fits = may_be_result && call->recv && emulate_partial_dtype(call) == call->dtype;
    return fits ? call->recv : emulate_scratch(s->e, s->len);
}

static int scan_init(struct scan *s, struct emulation *e)
{
    const struct collrun_call *call = e->call;
    bool single = e->ndevices == 1;
    *s =
        (struct scan){.e = e, .simple = single && call->kind == COLLRUN_SCAN, .count = call->count};
    s->len = call->count * dtype_size(emulate_partial_dtype(call));
    s->window = scan_vector(s, s->simple);
    s->prefixes = single ? s->window : emulate_scratch(e, e->ndevices * s->len);
    s->received = emulate_scratch(e, s->len);
    bool good = s->prefixes && s->window && s->received;
    if (s->simple || e->me == 0)
        return good ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
    s->before = scan_vector(s, single);
    return good && s->before ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* ---- the devices of this process ---- */

static void scan_devices(struct scan *s)
{
    const struct emulation *e = s->e;
    for (uint32_t d = 0; d < e->ndevices; d++) {
        const struct collrun_call *call = emulate_call(e, d);
        if (call->user_op)
            emulate_copy(scan_prefix(s, d), call->send, s->len);
        else
            reduce_to_partial(scan_prefix(s, d), call->send, s->count, call->dtype, call->op);
        if (d)
            emulate_combine(call, scan_prefix(s, d - 1), scan_prefix(s, d), s->count);
    }
    emulate_copy(s->window, scan_prefix(s, e->ndevices - 1), s->len);
}

/* ---- the processes ---- */

/* The window of rank me - distance is in `received`. */
static void scan_combine(struct scan *s, uint32_t distance)
{
    const struct emulation *e = s->e;
    if (s->simple || e->me + 2 * distance < e->n) /* else the window is not sent any more */
        emulate_combine(e->call, s->received, s->window, s->count);
    if (s->simple)
        return;
    if (s->has_before)
        emulate_combine(e->call, s->received, s->before, s->count);
    else
        emulate_copy(s->before, s->received, s->len);
    s->has_before = true;
}

static int scan_round(struct scan *s, uint32_t distance)
{
    struct emulation *e = s->e;
    if (e->me + distance < e->n)
        emulate_add_send(e, e->me + distance, s->window, s->len);
    if (e->me >= distance)
        emulate_add_recv(e, e->me - distance, s->received, s->len);
    int rc = emulate_exchange(e);
    if (rc == COLLRUN_OK && e->me >= distance)
        scan_combine(s, distance);
    return rc;
}

/* ---- results ---- */

/* What lies before the result of a device in its own process; NULL: nothing does. */
static void *scan_own_part(const struct scan *s, uint32_t device)
{
    if (s->e->call->kind == COLLRUN_SCAN)
        return scan_prefix(s, device);
    return device ? scan_prefix(s, device - 1) : NULL;
}

/* AVG divides by the number of ranks that were combined. */
static void scan_store(const struct scan *s, uint32_t device)
{
    const struct collrun_call *call = emulate_call(s->e, device);
    uint32_t rank = s->e->me * s->e->ndevices + device;
    uint32_t combined = call->kind == COLLRUN_SCAN ? rank + 1 : rank;
    void *own = scan_own_part(s, device), *result = own ? own : s->before;
    if (!combined)
        return; /* the first rank of an exscan */
    if (own && s->has_before)
        emulate_combine(call, s->before, own, s->count);
    if (call->user_op)
        emulate_copy(call->recv, result, s->len);
    else
        reduce_from_partial(call->recv, result, s->count, call->dtype,
                            call->op == COLLRUN_AVG ? combined : 0);
}

int emulate_scan(struct emulation *e)
{
    struct scan s;
    int rc = scan_init(&s, e);
    if (rc == COLLRUN_OK)
        scan_devices(&s);
    for (uint32_t distance = 1; rc == COLLRUN_OK && distance < e->n; distance *= 2)
        rc = scan_round(&s, distance);
    for (uint32_t d = 0; rc == COLLRUN_OK && d < e->ndevices; d++)
        scan_store(&s, d);
    return rc;
}

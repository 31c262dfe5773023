/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a process are neighbours in the order of ranks. Their vectors are combined here
 * first; the processes then execute one collective, and its result is handed to the devices.
 */
#include "ops/emulate_devices.h"

#include "core/error.h"
#include "ops/emulate_reduce.h"
#include "ops/emulate_scan.h"

#include <stdlib.h>

/* How many elements each device of all processes contributes. */
static size_t emulate_devices_count(const struct emulation *e)
{
    const struct collrun_call *call = e->call;
    size_t count = 0;
    if (call->kind != COLLRUN_REDUCE_SCATTERV)
        return call->kind == COLLRUN_REDUCE_SCATTER ? call->count * e->n * e->ndevices
                                                    : call->count;
    for (uint32_t i = 0; i < e->n * e->ndevices; i++)
        count += call->recvcounts[i];
    return count;
}

/* The vectors of all devices of this process, combined. NULL: out of memory. */
static void *emulate_devices_combine(struct emulation *e, size_t count)
{
    uint32_t device = e->ndevices - 1;
    void *sum = emulate_scratch(e, count * e->es);
    if (!sum)
        return NULL;
    emulate_copy(sum, emulate_call(e, device)->send, count * e->es);
    while (device-- > 0)
        emulate_combine(e->call, emulate_call(e, device)->send, sum, count);
    return sum;
}

/* ---- allreduce, reduce ---- */

static int emulate_devices_reduce_all(struct emulation *e, const void *sum)
{
    const struct collrun_call *first = e->call;
    bool to_all = first->kind == COLLRUN_ALLREDUCE;
    struct collrun_call call = *emulate_call(e, 0);
    call.send = sum;
    if (!to_all)
        call.recv = emulate_call(e, (uint32_t)first->peer_device)->recv;
    e->call = &call;
    int rc = emulate_reduce_all(e);
    e->call = first;
    for (uint32_t d = 1; rc == COLLRUN_OK && to_all && d < e->ndevices; d++)
        emulate_copy(emulate_call(e, d)->recv, call.recv, call.count * e->es);
    return rc;
}

/* ---- reduce_scatter and its v-form ---- */

static size_t emulate_devices_block(const struct emulation *e, uint32_t comm_rank)
{
    const struct collrun_call *call = e->call;
    return call->kind == COLLRUN_REDUCE_SCATTERV ? call->recvcounts[comm_rank] : call->count;
}

static int emulate_devices_reduce_scatter(struct emulation *e, const void *sum, size_t *counts)
{
    for (uint32_t i = 0; i < e->n * e->ndevices; i++)
        counts[i / e->ndevices] += emulate_devices_block(e, i);
    const struct cut blocks = {.base = sum, .counts = counts};
    char *at = emulate_scratch(e, counts[e->me] * e->es);
    int rc = at ? emulate_reduce_block(e, &blocks, at) : COLLRUN_ERR_NO_MEMORY;
    for (uint32_t d = 0; rc == COLLRUN_OK && d < e->ndevices; d++) {
        size_t len = emulate_devices_block(e, e->me * e->ndevices + d) * e->es;
        emulate_copy(emulate_call(e, d)->recv, at, len);
        at += len;
    }
    return rc;
}

int emulate_devices(struct emulation *e)
{
    enum collrun_kind kind = e->call->kind;
    size_t count = emulate_devices_count(e);
    if (kind == COLLRUN_SCAN || kind == COLLRUN_EXSCAN)
        return emulate_scan(e);
    void *sum = emulate_devices_combine(e, count);
    if (!sum)
        return COLLRUN_ERR_NO_MEMORY;
    if (kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE)
        return emulate_devices_reduce_all(e, sum);
    size_t *counts = calloc(e->n, sizeof *counts);
    int rc = counts ? emulate_devices_reduce_scatter(e, sum, counts)
                    : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(counts);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes STATUS frames and describes operations.
 */
#include "diagnose/snapshot.h"

#include "base/call_text.h"
#include "base/mpi_names.h"
#include "base/names.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a group and of a pending operation, at least. */
enum { GROUP_LEN = 68, OP_LEN = 51 };

static void snapshot_read_name(struct reader *r, char out[64])
{
    size_t len;
    const char *name = read_blob(r, &len);
    snprintf(out, 64, "%.*s", (int)len, name ? name : "");
}

static void snapshot_read_op(struct reader *r, struct snapshot_op *op)
{
    op->number = read_u64(r);
    op->age_ns = read_u64(r);
    op->idle_ns = read_u64(r);
    op->count = read_u64(r);
    op->root_or_peer = (int)read_u32(r);
    op->tag = read_u32(r);
    op->function = mpi_kind_unpack(read_u8(r), &op->kind);
    op->dtype = read_u8(r);
    op->op = read_u8(r);
    op->site = read_u64(r);
}

/* `ops` has room for all that the frame can hold. Returns the end of those that were read. */
static struct snapshot_op *snapshot_read_group(struct reader *r, struct group_snapshot *g,
                                               struct snapshot_op *ops)
{
    snapshot_read_name(r, g->name);
    g->started = read_u64(r);
    g->done = read_u64(r);
    g->bytes = read_u64(r);
    g->age_ns = read_u64(r);
    g->count = read_u64(r);
    g->root_or_peer = (int)read_u32(r);
    g->function = mpi_kind_unpack(read_u8(r), &g->kind);
    g->dtype = read_u8(r);
    g->op = read_u8(r);
    snapshot_read_name(r, g->scope);
    g->members = read_u32(r);
    g->rank = read_u32(r);
    g->messages = read_u8(r);
    g->pending = ops;
    g->npending = read_count(r, OP_LEN);
    for (uint32_t i = 0; i < g->npending; i++)
        snapshot_read_op(r, ops++);
    return ops;
}

bool snapshot_read(struct rank_snapshot *snapshot, const struct wire_frame *f)
{
    struct reader r;
    struct rank_snapshot fresh;
    reader_init(&r, f->payload, f->len);
    fresh = (struct rank_snapshot){.known = true};
    fresh.state = (char)read_u8(&r);
    fresh.ended_by = read_u32(&r);
    fresh.in_fini = read_u64(&r);
    fresh.fini_ns = read_u64(&r);
    fresh.n = read_count(&r, GROUP_LEN);
    fresh.groups = xcalloc(fresh.n, sizeof *fresh.groups);
    fresh.ops = xcalloc(f->len / OP_LEN + 1, sizeof *fresh.ops);
    struct snapshot_op *ops = fresh.ops;
    for (uint32_t i = 0; ops && i < fresh.n; i++)
        ops = snapshot_read_group(&r, &fresh.groups[i], ops);
    if (!ops || !reader_done(&r)) {
        snapshot_fini(&fresh);
        return false;
    }
    if (!fresh.state)
        fresh.state = snapshot->state; /* it has ended since */
    snapshot_fini(snapshot);
    *snapshot = fresh;
    return true;
}

void snapshot_fini(struct rank_snapshot *snapshot)
{
    free(snapshot->groups);
    free(snapshot->ops);
    *snapshot = (struct rank_snapshot){0};
}

bool snapshot_has_group(const struct rank_snapshot *snapshot, const char *group)
{
    for (uint32_t i = 0; i < snapshot->n; i++) {
        if (strcmp(snapshot->groups[i].name, group) == 0)
            return true;
    }
    return false;
}

bool snapshot_has_called(const struct rank_snapshot *snapshot, const char *group, uint64_t number)
{
    for (uint32_t i = 0; i < snapshot->n; i++) {
        const struct group_snapshot *g = &snapshot->groups[i];
        if (strcmp(g->name, group) == 0 && kind_is_collective(g->kind) && g->started >= number)
            return true;
    }
    return false;
}

uint64_t snapshot_total(const struct rank_snapshot *snapshot, const char *group, uint64_t *bytes)
{
    uint64_t operations = 0;
    for (uint32_t i = 0; i < snapshot->n; i++) {
        if (strcmp(snapshot->groups[i].name, group) != 0)
            continue;
        operations += snapshot->groups[i].done;
        *bytes += snapshot->groups[i].bytes;
    }
    return operations;
}

static struct collrun_call snapshot_call(const struct group_snapshot *g, uint32_t tag)
{
    return (struct collrun_call){.kind = (enum collrun_kind)g->kind,
                                 .count = g->count,
                                 .dtype = (enum collrun_dtype)g->dtype,
                                 .op = (enum collrun_op)g->op,
                                 .root = g->root_or_peer,
                                 .peer = g->root_or_peer,
                                 .tag = tag};
}

static struct mpi_call snapshot_mpi_call(const struct group_snapshot *g, uint32_t tag)
{
    return (struct mpi_call){.function = g->function,
                             .type = g->dtype,
                             .op = g->op,
                             .root_or_peer = g->root_or_peer,
                             .tag = tag,
                             .count = g->count};
}

void snapshot_call_text(const struct group_snapshot *g, uint32_t tag, char *out, size_t size)
{
    const struct collrun_call call = snapshot_call(g, tag);
    const struct mpi_call mpi = snapshot_mpi_call(g, tag);
    if (g->function)
        mpi_call_text(&mpi, out, size);
    else
        call_text(&call, out, size);
}

void snapshot_call_numbered(const struct group_snapshot *g, uint32_t tag, char *out, size_t size)
{
    const struct collrun_call call = snapshot_call(g, tag);
    const struct mpi_call mpi = snapshot_mpi_call(g, tag);
    if (g->function)
        mpi_call_text_numbered(&mpi, g->name, g->started, out, size);
    else
        call_text_numbered(&call, g->name, g->started, out, size);
}

const char *snapshot_kind_name(const struct group_snapshot *g)
{
    return g->function ? mpi_function_name(g->function) : kind_name((enum collrun_kind)g->kind);
}

const struct group_snapshot *snapshot_oldest(const struct rank_snapshot *snapshot)
{
    const struct group_snapshot *oldest = NULL;
    for (uint32_t i = 0; i < snapshot->n; i++) {
        const struct group_snapshot *g = &snapshot->groups[i];
        if (g->started > g->done && (!oldest || g->age_ns > oldest->age_ns))
            oldest = g;
    }
    return oldest;
}

bool snapshot_inside(const struct rank_snapshot *snapshot, char *out, size_t size)
{
    const struct group_snapshot *oldest = snapshot_oldest(snapshot);
    if (!oldest)
        return false;
    snapshot_call_numbered(
        oldest, oldest->function && oldest->npending ? oldest->pending[0].tag : 0, out, size);
    return true;
}

bool snapshot_age(const struct rank_snapshot *snapshot, uint64_t *age_ns)
{
    bool inside = false, found = false;
    for (uint32_t i = 0; i < snapshot->n; i++) {
        const struct group_snapshot *g = &snapshot->groups[i];
        bool now = g->started > g->done;
        bool better = !found || (now && !inside) ||
                      (now == inside && (now ? g->age_ns > *age_ns : g->age_ns < *age_ns));
        if (!g->started || !better)
            continue;
        *age_ns = g->age_ns;
        inside = now;
        found = true;
    }
    return found;
}

bool snapshot_after(const struct rank_snapshot *snapshot, char *out, size_t size)
{
    const struct group_snapshot *most = NULL;
    for (uint32_t i = 0; i < snapshot->n; i++) {
        if (snapshot->groups[i].done && (!most || snapshot->groups[i].done > most->done))
            most = &snapshot->groups[i];
    }
    if (most)
        snprintf(out, size, "after %s#%llu", most->name, (unsigned long long)most->done);
    return most != NULL;
}

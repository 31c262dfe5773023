/* SPDX-License-Identifier: Apache-2.0
 *
 * ncclCommSplit, and families: communicators that share resources. As in NCCL, it is the
 * configuration of the parent that says with splitShare whether its children share.
 *
 *   - All ranks of the parent call, while nothing of theirs is on it. The parent is in progress
 *     meanwhile; *newcomm is NULL until the end, and NULL for a rank without a color.
 *   - The ranks exchange colors and keys in the shared memory of the parent. The first rank of each
 *     color makes the id of the new communicator, and publishes it there.
 *   - A family has one abort flag: what ends the kernels of one ends those of all, and none of them
 *     can be used afterwards. It has one stream: launch_queue.c.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- families ---- */

struct family *family_new(void)
{
    struct family *family = calloc(1, sizeof *family);
    if (family)
        atomic_init(&family->refs, 1);
    return family;
}

void family_leave(struct family *family)
{
    if (atomic_fetch_sub(&family->refs, 1) > 1)
        return;
    fake_release(family->buffers);
    free(family);
}

/* ---- the exchange ---- */

static bool split_await(struct ncclComm *comm, size_t counter, uint32_t number, int rank)
{
    char *state = (char *)&comm->shared->ranks[rank];
    for (;;) {
        uint32_t seen = atomic_load(&comm->shared->changes);
        if (atomic_load((_Atomic uint32_t *)(void *)(state + counter)) >= number)
            return true;
        if (comm_stopped(comm))
            return false;
        shared_wait(comm->shared, seen);
    }
}

static bool split_await_all(struct ncclComm *comm, size_t counter, uint32_t number)
{
    bool all = true;
    for (int r = 0; all && r < comm->nranks; r++)
        all = split_await(comm, counter, number, r);
    return all;
}

/* Sets the rank in the new communicator, and the first rank of the color. Returns its size. */
static int split_place(const struct ncclComm *comm, int *new_rank, int *first)
{
    const struct rank_state *ranks = comm->shared->ranks, *own = &ranks[comm->rank];
    int size = 0;
    *new_rank = 0;
    *first = comm->rank;
    for (int r = 0; r < comm->nranks; r++) {
        if (ranks[r].split_color != own->split_color)
            continue;
        bool before = ranks[r].split_key < own->split_key ||
                      (ranks[r].split_key == own->split_key && r < comm->rank);
        *new_rank += before;
        *first = r < *first ? r : *first;
        size++;
    }
    return size;
}

static bool split_share_id(struct ncclComm *comm, int first, struct ncclUniqueId *id)
{
    struct rank_state *own = &comm->shared->ranks[comm->rank];
    if (first == comm->rank) {
        if (shared_create(&own->split_id) != ncclSuccess)
            return false;
        atomic_store(&own->split_ids, comm->splits);
        shared_notify(comm->shared);
    }
    bool got = split_await(comm, offsetof(struct rank_state, split_ids), comm->splits, first);
    *id = comm->shared->ranks[first].split_id;
    return got;
}

/* ---- the new communicator ---- */

static int split_make(struct ncclComm *comm, struct ncclComm **out)
{
    struct split *split = &comm->split;
    struct ncclUniqueId id;
    int rank, first, size = split_place(comm, &rank, &first);
    if (split->color == NCCL_SPLIT_NOCOLOR)
        return ncclSuccess;
    if (!split_share_id(comm, first, &id))
        return ncclInternalError;
    cudaSetDevice(comm->device);
    struct ncclComm *made = comm_new(size, rank, split->has_config ? &split->config : NULL, comm);
    if (!made)
        return ncclSystemError;
    made->unique = id;
    if (!split->has_config)
        made->blocking = comm->blocking;
    int result = shared_join(made);
    if (result == ncclSuccess)
        result = comm_reserve(made);
    atomic_store(&made->ready, true);
    atomic_store(&made->async, result);
    if (result == ncclSuccess)
        *out = made;
    else
        comm_free(made);
    return result;
}

/* NCCL leaves it undefined: reported, and then it hangs. */
static int split_refuse_busy(struct ncclComm *comm)
{
    comm_fail(comm, ncclInvalidUsage, "ncclCommSplit: an operation is on the parent");
    while (!comm_stopped(comm))
        usleep(1000);
    return ncclInternalError;
}

int split_run(struct ncclComm *comm)
{
    struct rank_state *own = &comm->shared->ranks[comm->rank];
    struct ncclComm *made = NULL;
    if (atomic_load(&comm->launched) > atomic_load(&comm->done))
        return split_refuse_busy(comm);
    while (comm->split.lost && !comm_stopped(comm))
        usleep(1000);
    own->split_color = comm->split.color;
    own->split_key = comm->split.key;
    comm->splits++;
    atomic_store(&own->splits, comm->splits);
    shared_notify(comm->shared);
    if (!split_await_all(comm, offsetof(struct rank_state, splits), comm->splits))
        return ncclInternalError;
    int result = split_make(comm, &made);
    atomic_store(&own->splits_done, comm->splits);
    shared_notify(comm->shared);
    if (result == ncclSuccess &&
        !split_await_all(comm, offsetof(struct rank_state, splits_done), comm->splits))
        result = ncclInternalError;
    if (result == ncclSuccess)
        *comm->split.out = made;
    else if (made)
        comm_free(made);
    return result;
}

int ncclCommSplit(struct ncclComm *comm, int color, int key, struct ncclComm **newcomm,
                  struct ncclConfig *config)
{
    int result = ncclSuccess;
    struct ncclComm *c = comm_get(comm, "ncclCommSplit");
    if (!c || !newcomm)
        return group_refuse(ncclInvalidArgument);
    result = comm_ready(c, "ncclCommSplit");
    if (result != ncclSuccess)
        return group_refuse(result);
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < 40))
        return group_refuse(comm_fail(c, ncclInvalidArgument, "ncclConfig_t is not initialised"));
    const bool fault = fake_fault("FAKE_NCCL_FAULT", "ncclCommSplit", c->rank, &result);
    while (fault && result == FAULT_HANG)
        pause();
    if (fault && result != ncclInProgress)
        return group_refuse(comm_fail(c, result, "ncclCommSplit: an injected fault"));
    *newcomm = NULL;
    c->split = (struct split){.color = color, .key = key, .out = newcomm, .lost = fault};
    c->split.has_config = config != NULL;
    if (config)
        memcpy(&c->split.config, config,
               config->size < sizeof *config ? config->size : sizeof *config);
    return group_job(JOB_SPLIT, c);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll_failures.h.
 */
#include "coll_failures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull

struct collrun_call coll_call(enum collrun_kind kind, void *buf, size_t count)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = buf;
    call.recv = (char *)buf + 4096;
    call.count = count;
    call.dtype = COLLRUN_FLOAT32;
    return call;
}

/* A backend that tries again instead of failing would exceed this limit by far. */
int coll_stays_failed(struct harness_rank *r, struct harness_group *group, int status)
{
    char first[512];
    snprintf(first, sizeof first, "%s", harness_error());
    struct collrun_call again = COLLRUN_CALL(COLLRUN_BARRIER);
    again.timeout_ns = 20 * SECOND;
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(group, &again, 1) == status);
    HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
    HARNESS_CHECK(r, strcmp(first, harness_error()) == 0);
    return 0;
}

void coll_uneven_init(struct coll_uneven *u, enum collrun_kind kind, uint32_t rank)
{
    *u = (struct coll_uneven){.out = {4, 5, 6}, .in = {4, 5, 6}};
    memset(u->recv, 1, sizeof u->recv);
    u->call = (struct collrun_call)COLLRUN_CALL(kind);
    u->call.dtype = COLLRUN_FLOAT32;
    u->call.send = u->send;
    u->call.recv = u->recv;
    u->call.root = 2;
    u->call.count = u->out[rank];
    u->call.recvcount = u->in[rank];
    u->call.sendcounts = u->out;
    u->call.recvcounts = u->in;
    if (kind == COLLRUN_ALLTOALLV)
        u->in[0] = u->in[1] = u->in[2] = u->out[rank];
    if (rank != 1)
        return;
    u->call.count++;
    u->call.recvcount++;
    for (int other = 0; other < 3; other += 2) {
        u->out[other]++;
        u->in[other]++;
    }
}

int coll_until_killed(struct harness_rank *r, size_t count, int *status, uint64_t *failed_ns)
{
    float *send = calloc(count, sizeof(*send));
    float *recv = calloc(count, sizeof(*recv));
    HARNESS_CHECK(r, send && recv);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, send, count);
    call.recv = recv;
    *status = COLLRUN_OK;
    for (int i = 0; *status == COLLRUN_OK && i < 1000; i++) {
        if (r->rank == 0 && i == 2)
            harness_kill(r, 1);
        *status = harness_exec(r->group, &call, 1);
    }
    *failed_ns = harness_now_ns();
    free(send);
    free(recv);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the cases.
 */
#include "workload.h"

#include <time.h>

struct collrun_call allreduce_call(const void *send, void *recv)
{
    struct collrun_call c = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    c.send = send;
    c.recv = recv;
    c.count = COUNT;
    c.dtype = COLLRUN_INT32;
    c.op = COLLRUN_SUM;
    return c;
}

struct collrun_call message_call(enum collrun_kind kind, void *buffer, int device, int peer)
{
    struct collrun_call c = COLLRUN_CALL(kind);
    c.send = c.recv = buffer;
    c.count = COUNT;
    c.dtype = COLLRUN_INT32;
    c.device = device;
    c.peer = peer;
    return c;
}

int run_all(struct gpu_test *t, struct collrun_call *calls, int n)
{
    struct collrun_request *r;
    int rc = collrun_start_many(t->g, calls, n, &r);
    return rc == COLLRUN_OK ? collrun_wait(r) : rc;
}

int comm_rank_of(const struct gpu_test *t, int rank, int device)
{
    return rank * (t->devices ? t->devices : 1) + device;
}

void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

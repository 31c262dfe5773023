/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that match, and messages that do not.
 */
#include "workload.h"

/* Both ranks send and receive: as separate requests, and by sendrecv. */
void gpu_cross(struct gpu_test *t)
{
    size_t count = 3000000;
    int peer = 1 - t->rank;
    struct collrun_call send = COLLRUN_CALL(COLLRUN_SEND), recv = COLLRUN_CALL(COLLRUN_RECV);
    struct collrun_request *r[2] = {NULL, NULL};
    void *out = device_values(0, t->rank, count, 4), *in = cuda_new(0, count * 4);
    if (t->rank > 1)
        return;
    send.send = out;
    recv.recv = in;
    send.count = recv.count = count;
    send.dtype = recv.dtype = COLLRUN_INT32;
    send.peer = recv.peer = peer;
    if (ok(t, collrun_start(t->g, &send, &r[0]), "start send") &&
        ok(t, collrun_start(t->g, &recv, &r[1]), "start recv") &&
        ok(t, collrun_wait_all(r, 2), "wait_all"))
        expect_values(t, 0, in, count, peer, 4, "head to head, started");
    void *stream = cuda_new_stream(0);
    int32_t *pinned;
    cuda_must(cuda.host_alloc((void **)&pinned, count * 4, 0), "cudaHostAlloc");
    if (ok(t, collrun_start(t->g, &recv, &r[1]), "start recv") &&
        ok(t, collrun_start(t->g, &send, &r[0]), "start send") &&
        ok(t, collrun_wait_stream(r[1], 0, stream), "wait_stream")) {
        cuda_must(cuda.memcpy_async(pinned, in, count * 4, CUDA_COPY, stream), "cudaMemcpyAsync");
        cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
        for (size_t i = 0; i < count && !t->failures; i++)
            if (pinned[i] != value_at(peer, i, 4))
                case_failed(t, "a message that a stream waits for: element %zu is %d", i,
                            pinned[i]);
        ok(t, collrun_wait_all(r, 2), "wait_all");
    }
    cuda_must(cuda.memset_async(in, 0, count * 4, stream), "cudaMemsetAsync");
    cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
    if (ok(t, collrun_sendrecv(t->g, out, count, peer, in, count, peer, COLLRUN_INT32), "sendrecv"))
        expect_values(t, 0, in, count, peer, 4, "head to head, sendrecv");
}

/* Ranks 0 and 1: a receive that its sender has not met yet occupies nothing of the GPU, and can be
 * canceled. Each rank starts two, cancels one, waits for its GPU, and only then sends. A receive
 * that was launched at its call would fail both: nothing ends a kernel but its peer. */
void gpu_posted(struct gpu_test *t)
{
    const int peer = 1 - t->rank;
    void *out = device_values(0, t->rank, COUNT, 25), *in = cuda_new(0, COUNT * 4);
    struct collrun_call recv = message_call(COLLRUN_RECV, in, 0, peer);
    for (int round = 0; round < 3 && !t->failures; round++) {
        struct collrun_request *r = NULL, *canceled = NULL;
        ok(t, collrun_start(t->g, &recv, &r), "start recv");
        ok(t, collrun_start(t->g, &recv, &canceled), "start a second recv");
        ok(t, collrun_cancel(canceled), "cancel");
        ok(t, collrun_device_synchronize(t->ctx, 0), "device_synchronize");
        ok(t, collrun_send(t->g, out, COUNT, COLLRUN_INT32, peer), "send");
        if (ok(t, collrun_wait(r), "wait"))
            expect_values(t, 0, in, COUNT, peer, 25, "a message that was waited for early");
    }
}

/* Both send, then receive: it must end, with a hint. */
void gpu_deadlock(struct gpu_test *t)
{
    size_t count = 3000000;
    void *out = device_values(0, t->rank, count, 5);
    int rc = collrun_send(t->g, out, count, COLLRUN_INT32, 1 - t->rank);
    if (rc == COLLRUN_OK || !strstr(collrun_error(), "collrun_sendrecv"))
        case_failed(t, "a blocking cross pair: %d, %s", rc, collrun_error());
}

static void expect_timeout(struct gpu_test *t, int rc, const char *first, const char *second)
{
    if (rc != COLLRUN_ERR_TIMEOUT || !strstr(collrun_error(), first) ||
        !strstr(collrun_error(), second))
        case_failed(t, "%d, %s", rc, collrun_error());
}

/* Rank 1 makes no call: the error names both of its GPUs and what each did not do. */
void gpu_unmatched(struct gpu_test *t)
{
    struct collrun_call calls[2] = {
        message_call(COLLRUN_SEND, cuda_new(0, COUNT * 4), 0, 1 - t->rank),
        message_call(COLLRUN_RECV, cuda_new(1, COUNT * 4), 1, 1 - t->rank)};
    calls[0].peer_device = 1;
    calls[1].tag = 7;
    if (t->rank == 0)
        expect_timeout(t, run_all(t, calls, 2), "GPU 1 of rank 1 did not receive",
                       "GPU 0 of rank 1 did not send with tag 7");
}

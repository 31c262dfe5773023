/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph capture by the program: operations on the stream that captures are refused at once, and
 * those on other streams go on and do not disturb the capture.
 */
#include "workload.h"

static void refused(struct gpu_test *t, int status, const char *what)
{
    if (status != COLLRUN_ERR_UNSUPPORTED || !strstr(collrun_error(), "captures a CUDA graph"))
        case_failed(t, "%s on a stream that captures: status %d, %s", what, status,
                    status < 0 ? collrun_error() : "accepted");
}

static void capture_refuses(struct gpu_test *t, void *in, void *out, void *capturing)
{
    struct collrun_request *r;
    struct collrun_call c = allreduce_call(in, out);
    c.stream = capturing;
    refused(t, collrun_start(t->g, &c, &r), "start");
    c.kind = COLLRUN_SCAN;
    refused(t, collrun_run(t->g, &c, 1), "a scan");
    c = message_call(COLLRUN_SEND, in, 0, (t->rank + 1) % t->size);
    c.stream = capturing;
    refused(t, collrun_start(t->g, &c, &r), "a send");
    ok(t, collrun_set_stream(t->g, 0, capturing), "set_stream");
    refused(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    refused(t, collrun_sendrecv(t->g, in, COUNT, t->rank, out, COUNT, t->rank, COLLRUN_INT32),
            "a copy to this rank");
    if (t->devices) /* else no stream concerns a barrier */
        refused(t, collrun_barrier(t->g), "a barrier");
    ok(t, collrun_set_stream(t->g, 0, NULL), "set_stream");
}

/* With requests in flight when the capture begins, and others that start during it. */
static void capture_round(struct gpu_test *t, int round)
{
    void *in = device_values(0, t->rank, COUNT, round), *out = cuda_new(0, COUNT * 4);
    void *second = cuda_new(0, COUNT * 4), *graph = NULL;
    void *capturing = cuda_new_stream(0), *other = cuda_new_stream(0);
    struct collrun_request *early, *late;
    struct collrun_call c = allreduce_call(in, out), d = allreduce_call(in, second);
    c.stream = d.stream = other;
    if (!ok(t, collrun_start(t->g, &c, &early), "start"))
        return;
    cuda_must(cuda.begin_capture(capturing, CUDA_CAPTURE_GLOBAL), "cudaStreamBeginCapture");
    pause_ms(5); /* the worker of the group polls */
    capture_refuses(t, in, out, capturing);
    if (ok(t, collrun_start(t->g, &d, &late), "start beside the capture")) {
        if (t->devices)
            refused(t, collrun_wait_stream(late, 0, capturing), "wait_stream");
        ok(t, collrun_wait(late), "wait beside the capture");
    }
    ok(t, collrun_wait(early), "wait");
    cuda_must(cuda.end_capture(capturing, &graph), "cudaStreamEndCapture");
    expect_sum(t, 0, out, round, "started before the capture");
    expect_sum(t, 0, second, round, "started during the capture");
    c.stream = capturing;
    if (ok(t, collrun_run(t->g, &c, 1), "after the capture"))
        expect_sum(t, 0, out, round, "after the capture");
}

void gpu_capture(struct gpu_test *t)
{
    for (int round = 0; round < 3 && !t->failures; round++)
        capture_round(t, round);
}

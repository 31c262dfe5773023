/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups with the option `messages: direct`: messages with tag 0 are launched at their call.
 */
#include "workload.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { FLIGHT = 8, STOP_MS = 1500, ROUNDS = 20 };

static double direct_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One message each way between the two ranks. */
static bool direct_swap(struct gpu_test *t, int peer, const char *what)
{
    void *out = device_values(0, t->rank, COUNT, 30), *in = cuda_new(0, COUNT * 4);
    bool good =
        ok(t, collrun_sendrecv(t->g, out, COUNT, peer, in, COUNT, peer, COLLRUN_INT32), what);
    if (good)
        expect_values(t, 0, in, COUNT, peer, 30, what);
    cuda_must(cuda.free(out), "cudaFree");
    cuda_must(cuda.free(in), "cudaFree");
    return good;
}

/* Ranks 0 and 1 start all of their sends, then all of their receives: with tag 0, and after every
 * one of them one with tag 7, for which the receives are started in the other order. */
static void direct_flight(struct gpu_test *t)
{
    const int peer = 1 - t->rank;
    struct collrun_request *r[4 * FLIGHT];
    void *in[2 * FLIGHT];
    int n = 0;
    for (int i = 0; i < 2 * FLIGHT; i++) {
        void *out = device_values(0, t->rank, COUNT, 40 + i);
        struct collrun_call send = message_call(COLLRUN_SEND, out, 0, peer);
        send.tag = i % 2 ? 7 : 0;
        ok(t, collrun_start(t->g, &send, &r[n++]), "start send");
    }
    pause_ms(20);
    for (int i = 2 * FLIGHT - 1; i >= 0; i--) {
        struct collrun_call recv =
            message_call(COLLRUN_RECV, in[i] = cuda_new(0, COUNT * 4), 0, peer);
        recv.tag = i % 2 ? 0 : 7;
        ok(t, collrun_start(t->g, &recv, &r[n++]), "start recv");
    }
    if (t->failures || !ok(t, collrun_wait_all(r, (size_t)n), "wait_all"))
        return;
    for (int i = 0; i < 2 * FLIGHT; i++) { /* the k-th receive of a tag has its k-th message */
        int sent = 2 * (FLIGHT - 1 - i / 2) + (i % 2 ? 0 : 1);
        expect_values(t, 0, in[i], COUNT, peer, 40 + sent, "a message in flight with others");
    }
}

void gpu_direct_flight(struct gpu_test *t)
{
    for (int round = 0; round < 3 && !t->failures; round++) /* not formed yet, and formed */
        direct_flight(t);
}

static void direct_sleep(void *nothing)
{
    (void)nothing;
    pause_ms(50);
}

/* Each rank sends what slow work of a stream writes. */
static void direct_slow_swap(struct gpu_test *t, int peer)
{
    void *values = device_values(0, t->rank, COUNT, 92), *out = cuda_new(0, COUNT * 4);
    void *in = cuda_new(0, COUNT * 4);
    struct collrun_call send = message_call(COLLRUN_SEND, out, 0, peer);
    struct collrun_call recv = message_call(COLLRUN_RECV, in, 0, peer);
    struct collrun_request *r[2] = {NULL, NULL};
    send.stream = cuda_new_stream(0);
    cuda_must(cuda.launch_host(send.stream, direct_sleep, NULL), "cudaLaunchHostFunc");
    cuda_must(cuda.memcpy_async(out, values, COUNT * 4, CUDA_COPY, send.stream), "cudaMemcpyAsync");
    ok(t, collrun_start(t->g, &send, &r[0]), "start send");
    ok(t, collrun_start(t->g, &recv, &r[1]), "start recv");
    if (!t->failures && ok(t, collrun_wait_all(r, 2), "wait_all"))
        expect_values(t, 0, in, COUNT, peer, 92, "what slow work writes");
}

/* Rank 1 starts a collective behind a receive, and then the send that rank 0 waits for before it
 * sends: the collective must not hold up the send. */
void gpu_direct_behind(struct gpu_test *t)
{
    const int peer = 1 - t->rank;
    void *in = cuda_new(0, COUNT * 4), *out = cuda_new(0, COUNT * 4),
         *sum = device_values(0, t->rank, COUNT, 90);
    void *values = device_values(0, t->rank, COUNT, 91), *stream = cuda_new_stream(0);
    struct collrun_call recv = message_call(COLLRUN_RECV, in, 0, peer),
                        send = message_call(COLLRUN_SEND, out, 0, peer);
    struct collrun_call allreduce = allreduce_call(sum, sum);
    struct collrun_request *r[3] = {NULL, NULL, NULL};
    if (!direct_swap(t, peer, "forming") || !ok(t, collrun_barrier(t->g), "barrier"))
        return;
    direct_slow_swap(t, peer);
    send.stream = cuda_new_stream(0);
    allreduce.stream = stream;
    cuda_must(cuda.launch_host(send.stream, direct_sleep, NULL), "cudaLaunchHostFunc");
    cuda_must(cuda.memcpy_async(out, values, COUNT * 4, CUDA_COPY, send.stream), "cudaMemcpyAsync");
    ok(t, collrun_start(t->g, &recv, &r[0]), "start recv");
    if (t->rank == 0) {
        ok(t, collrun_wait(r[0]), "wait recv");
        r[0] = NULL;
    } else if (ok(t, collrun_wait_stream(r[0], 0, stream), "wait_stream")) {
        ok(t, collrun_start(t->g, &allreduce, &r[1]), "start allreduce");
    }
    ok(t, collrun_start(t->g, &send, &r[2]), "start send");
    if (t->rank == 0)
        ok(t, collrun_start(t->g, &allreduce, &r[1]), "start allreduce");
    for (int i = 0; i < 3 && !t->failures; i++)
        if (r[i])
            ok(t, collrun_wait(r[i]), "wait");
    if (t->failures)
        return;
    expect_values(t, 0, in, COUNT, peer, 91, "behind slow work");
    expect_sum(t, 0, sum, 90, "behind a receive");
}

/* A pipeline by streams alone: each rank passes on what it receives, and never waits on the host.
 * A collective on another stream is started at a different place on each rank. */
void gpu_direct_pipeline(struct gpu_test *t)
{
    void *sum = device_values(0, t->rank, COUNT, 50), *stream = cuda_new_stream(0);
    struct collrun_request *recv[FLIGHT], *send[FLIGHT], *all = NULL;
    struct collrun_call allreduce = allreduce_call(sum, sum);
    void *buffer[FLIGHT];
    allreduce.stream = cuda_new_stream(0);
    for (int i = 0; i < FLIGHT && !t->failures; i++) {
        bool first = t->rank == 0, last = t->rank == t->size - 1;
        buffer[i] = first ? device_values(0, 0, COUNT, 60 + i) : cuda_new(0, COUNT * 4);
        struct collrun_call in = message_call(COLLRUN_RECV, buffer[i], 0, t->rank - 1);
        struct collrun_call out = message_call(COLLRUN_SEND, buffer[i], 0, t->rank + 1);
        in.stream = out.stream = stream;
        if (i == (t->rank * 3 + 1) % FLIGHT)
            ok(t, collrun_start(t->g, &allreduce, &all), "start allreduce");
        if (!first && ok(t, collrun_start(t->g, &in, &recv[i]), "start recv"))
            ok(t, collrun_wait_stream(recv[i], 0, stream), "wait_stream");
        if (!last)
            ok(t, collrun_start(t->g, &out, &send[i]), "start send");
    }
    for (int i = 0; i < FLIGHT && !t->failures; i++) {
        if (t->rank > 0)
            ok(t, collrun_wait(recv[i]), "wait recv");
        if (t->rank < t->size - 1)
            ok(t, collrun_wait(send[i]), "wait send");
        expect_values(t, 0, buffer[i], COUNT, 0, 60 + i, "at the end of the pipeline");
    }
    if (!t->failures && ok(t, collrun_wait(all), "wait allreduce"))
        expect_sum(t, 0, sum, 50, "beside a pipeline");
}

/* Every GPU exchanges a message with every other one, in a single collrun_start_many. */
void gpu_direct_exchange(struct gpu_test *t)
{
    struct collrun_call calls[2 * MAX_BLOCKS * MAX_BLOCKS];
    void *in[MAX_BLOCKS][MAX_BLOCKS];
    for (int round = 0; round < 3 && !t->failures; round++) {
        int n = 0;
        for (int d = 0; d < t->devices; d++)
            for (int k = t->comm_size - 1; k >= 0; k--) {
                int own = comm_rank_of(t, t->rank, d);
                void *out = device_values(d, own, COUNT, 70 + k);
                in[d][k] = cuda_new(d, COUNT * 4);
                for (int receives = 0; receives < 2; receives++) {
                    enum collrun_kind kind = receives ? COLLRUN_RECV : COLLRUN_SEND;
                    calls[n] = message_call(kind, receives ? in[d][k] : out, d, k / t->devices);
                    calls[n++].peer_device = k % t->devices;
                }
            }
        if (!ok(t, run_all(t, calls, n), "start_many"))
            return;
        for (int d = 0; d < t->devices; d++)
            for (int k = 0; k < t->comm_size; k++)
                expect_values(t, d, in[d][k], COUNT, k, 70 + comm_rank_of(t, t->rank, d),
                              "an exchange of all");
    }
}

/* Rank 0, which has the coordinator, stops for a while. Direct messages of the other two do not
 * wait for it; one with a tag does. */
void gpu_direct_stopped(struct gpu_test *t)
{
    struct collrun_request *r = NULL;
    void *tagged = device_values(0, t->rank, COUNT, 80);
    struct collrun_call call =
        message_call(t->rank == 1 ? COLLRUN_SEND : COLLRUN_RECV, tagged, 0, 3 - t->rank);
    call.tag = 7;
    if ((t->rank && !direct_swap(t, 3 - t->rank, "forming")) ||
        !ok(t, collrun_barrier(t->g), "barrier"))
        return;
    if (t->rank == 0) {
        pid_t self = getpid(), child = fork();
        if (child == 0) {
            pause_ms(STOP_MS);
            kill(self, SIGCONT);
            _exit(0);
        }
        kill(self, SIGSTOP);
        return;
    }
    double begin = direct_now_s();
    pause_ms(200);
    ok(t, collrun_start(t->g, &call, &r), "start with a tag");
    for (int i = 0; i < ROUNDS && !t->failures; i++)
        direct_swap(t, 3 - t->rank, "while the coordinator is stopped");
    if (!t->failures && direct_now_s() - begin > (STOP_MS - 100) / 1e3)
        case_failed(t, "direct messages took %.2f s", direct_now_s() - begin);
    if (!t->failures && collrun_poll(r) != COLLRUN_AGAIN)
        case_failed(t, "a message was matched by a coordinator that is stopped");
    ok(t, collrun_wait(r), "wait with a tag");
}

/* The two ranks disagree about the length of a message. */
void gpu_direct_count(struct gpu_test *t)
{
    struct collrun_call call =
        message_call(t->rank ? COLLRUN_RECV : COLLRUN_SEND, cuda_new(0, COUNT * 4), 0, 1 - t->rank);
    call.count = 10 + (size_t)t->rank;
    int rc = run_all(t, &call, 1);
    if (rc != COLLRUN_ERR_MISMATCH ||
        !strstr(collrun_error(), "rank 0 calls send(10 x int32, to 1), rank 1 calls recv(11 x"))
        case_failed(t, "%d, %s", rc, collrun_error());
}

/* ... about its type alone: the message moves, and a later call fails. */
void gpu_direct_type(struct gpu_test *t)
{
    const double until = direct_now_s() + 2;
    struct collrun_call call =
        message_call(t->rank ? COLLRUN_RECV : COLLRUN_SEND, cuda_new(0, COUNT * 4), 0, 1 - t->rank);
    call.dtype = t->rank ? COLLRUN_FLOAT32 : COLLRUN_INT32;
    int rc = run_all(t, &call, 1);
    call.dtype = COLLRUN_INT32;
    while (rc == COLLRUN_OK && direct_now_s() < until)
        rc = run_all(t, &call, 1);
    if (rc != COLLRUN_ERR_MISMATCH || !strstr(collrun_error(), "float32"))
        case_failed(t, "%d, %s", rc, collrun_error());
}

/* A direct receive cannot be canceled: it is as if it was matched. */
void gpu_direct_cancel(struct gpu_test *t)
{
    void *buffer = t->rank ? device_values(0, 1, COUNT, 81) : cuda_new(0, COUNT * 4);
    for (int i = 0; i < 2 && !t->failures; i++) { /* not formed yet, and formed */
        struct collrun_call recv = message_call(COLLRUN_RECV, buffer, 0, 1);
        struct collrun_request *r = NULL;
        if (t->rank == 0) {
            ok(t, collrun_start(t->g, &recv, &r), "start recv");
            int rc = collrun_cancel(r);
            if (rc != COLLRUN_AGAIN)
                case_failed(t, "cancel: %d, %s", rc, collrun_error());
        }
        ok(t, collrun_barrier(t->g), "barrier");
        if (t->rank == 1)
            ok(t, collrun_send(t->g, buffer, COUNT, COLLRUN_INT32, 0), "send");
        else if (ok(t, collrun_wait(r), "wait"))
            expect_values(t, 0, buffer, COUNT, 1, 81, "after cancel");
    }
}

static void direct_expect_refused(struct gpu_test *t, int rc, const char *what)
{
    if (rc != COLLRUN_ERR_UNSUPPORTED || !strstr(collrun_error(), what) ||
        !strstr(collrun_error(), "`messages: matched`"))
        case_failed(t, "%s: %d, %s", what, rc, collrun_error());
}

/* What could take one of several messages with tag 0 is refused; the group stays usable. */
void gpu_direct_refused(struct gpu_test *t)
{
    const int peer = 1 - t->rank;
    size_t received;
    uint32_t tag;
    struct collrun_message_info info = {.size = sizeof info};
    void *out = device_values(0, t->rank, COUNT, 82), *in = cuda_new(0, COUNT * 4);
    struct collrun_call any = message_call(COLLRUN_RECV_ANY, in, 0, 0), shorter, tags;
    shorter = tags = message_call(COLLRUN_RECV, in, 0, peer);
    shorter.received = &received;
    tags.tag = COLLRUN_ANY_TAG;
    tags.received_tag = &tag;
    direct_expect_refused(t, collrun_recv_any(t->g, in, COUNT, COLLRUN_INT32, NULL),
                          "be received from any source");
    direct_expect_refused(t, run_all(t, &any, 1), "be received from any source");
    direct_expect_refused(t, run_all(t, &shorter, 1), "be shorter than the receive");
    direct_expect_refused(t, run_all(t, &tags, 1), "be received with COLLRUN_ANY_TAG");
    direct_expect_refused(t, collrun_iprobe(t->g, peer, 0, &info), "be probed for");
    direct_expect_refused(t, collrun_iprobe(t->g, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &info),
                          "be probed for");
    struct collrun_call calls[2] = {message_call(COLLRUN_SEND, out, 0, peer), any};
    int source = -1;
    calls[0].tag = calls[1].tag = 7;
    calls[1].source = &source;
    if (ok(t, run_all(t, calls, 2), "with another tag") && source != peer)
        case_failed(t, "from any source: %d", source);
    expect_values(t, 0, in, COUNT, peer, 82, "with another tag");
    direct_swap(t, peer, "after refusals");
}

/* The last rank is killed; another one waits for a message from it. */
void gpu_direct_killed(struct gpu_test *t)
{
    const int last = t->size - 1;
    void *in = cuda_new(0, COUNT * 4);
    if (t->rank == last) {
        pause_ms(300);
        kill(getpid(), SIGKILL);
    }
    int rc = collrun_recv(t->g, in, COUNT, COLLRUN_INT32, last);
    if (rc != COLLRUN_ERR_PEER_FAILED && rc != COLLRUN_ERR_ABORTED)
        case_failed(t, "%d, %s", rc, collrun_error());
    printf("gpu_test: survived: %s\n", collrun_error());
}

/* No rank sends; the error names the one that is waited for. */
void gpu_direct_unmatched(struct gpu_test *t)
{
    void *in = cuda_new(0, COUNT * 4);
    if (t->rank)
        return;
    int rc = collrun_recv(t->g, in, COUNT, COLLRUN_INT32, 1);
    if (rc != COLLRUN_ERR_TIMEOUT ||
        !strstr(collrun_error(), "rank 0 waited 2.0 s for rank 1: rank 1 did not send"))
        case_failed(t, "%d, %s", rc, collrun_error());
}

/* NCCL does not connect the first direction (an injected fault) in time, so the group fails while
 * the second one is about to be formed. The rank goes on, and closes the group. */
void gpu_direct_unformed(struct gpu_test *t)
{
    struct collrun_request *requests[2];
    void *out = cuda_new(0, COUNT * 4);
    if (t->rank)
        return;
    for (int i = 0; i < 2; i++) {
        struct collrun_call send = message_call(COLLRUN_SEND, out, 0, i + 1);
        ok(t, collrun_start(t->g, &send, &requests[i]), "start send");
    }
    for (int i = 0; i < 2; i++)
        if (collrun_wait(requests[i]) != COLLRUN_ERR_TIMEOUT ||
            !strstr(collrun_error(), "NCCL has not connected the GPUs of this rank and of rank "))
            case_failed(t, "%s", collrun_error());
    pause_ms(500);
}

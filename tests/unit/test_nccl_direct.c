/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of the nccl backend that need an exact moment: a group of one process with two GPUs of
 * the stand-in libraries (tests/fake), `messages: direct`, and some of their functions replaced.
 *
 * What is on a GPU stays there as long as a *gate*, a host function on the caller's stream before
 * it, is closed. An operation that has failed must not end before that.
 */
#include "../../backends/nccl/message.h"
#include "nccl_pair.h"

#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { GATES = 8, GATE_MS = 150 };
#define SECOND_NS 1000000000ull

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static struct nccl_fixture f;

struct gate {
    atomic_bool open;
};
static struct gate gates[GATES]; /* of all tests: they outlive one that fails */
static unsigned ngates;

static int open_backend(void **state)
{
    (void)state;
    return nccl_fixture_open(&f);
}

static int close_backend(void **state)
{
    (void)state;
    nccl_fixture_close(&f);
    return 0;
}

/* ---- operations ---- */

/* From GPU `from` to the other one: the send, then the receive. */
static void message_calls(int from, uint32_t tag, struct collrun_call calls[2])
{
    for (int i = 0; i < 2; i++) {
        int device = i ? 1 - from : from;
        calls[i] = (struct collrun_call)COLLRUN_CALL(i ? COLLRUN_RECV : COLLRUN_SEND);
        calls[i].device = device;
        calls[i].peer_device = 1 - device;
        calls[i].stream = f.stream[device];
        calls[i].send = i ? NULL : f.buffer[device];
        calls[i].recv = i ? (int *)f.buffer[device] + PAIR_COUNT : NULL;
        calls[i].count = PAIR_COUNT;
        calls[i].dtype = COLLRUN_INT32;
        calls[i].tag = tag;
        calls[i].timeout_ns = 20 * SECOND_NS;
    }
}

static void allreduce_calls(struct collrun_call calls[PAIR_GPUS])
{
    for (int i = 0; i < PAIR_GPUS; i++) {
        calls[i] = (struct collrun_call)COLLRUN_CALL(COLLRUN_ALLREDUCE);
        calls[i].device = i;
        calls[i].stream = f.stream[i];
        calls[i].send = f.buffer[i];
        calls[i].recv = (int *)f.buffer[i] + PAIR_COUNT;
        calls[i].count = PAIR_COUNT;
        calls[i].dtype = COLLRUN_INT32;
        calls[i].timeout_ns = 20 * SECOND_NS;
    }
}

static void *start(struct nccl_group *g, const struct collrun_call *calls, uint32_t n)
{
    void *request = NULL;
    assert_int_equal(f.backend->start(g, calls, n, &request), COLLRUN_OK);
    return request;
}

static int finish(struct nccl_group *g, void *request)
{
    int rc;
    while ((rc = f.backend->test(g, request)) == COLLRUN_AGAIN)
        pause_ms(1);
    return rc;
}

static void exchange(const struct nccl_pair *p, int from, uint32_t tag)
{
    struct collrun_call calls[2];
    message_calls(from, tag, calls);
    assert_int_equal(finish(p->messages, start(p->messages, calls, 2)), COLLRUN_OK);
}

/* ---- gates ---- */

static void gate_wait(void *arg)
{
    struct gate *gate = arg;
    while (!atomic_load(&gate->open))
        pause_ms(1);
}

/* What the caller's stream of the GPU gets next waits for the gate. */
static struct gate *gate_new(int device)
{
    assert_true(ngates < GATES);
    struct gate *gate = &gates[ngates++];
    f.real.cuda.cudaSetDevice(device);
    assert_int_equal(f.real.cuda.cudaLaunchHostFunc(f.stream[device], gate_wait, gate),
                     cudaSuccess);
    f.real.cuda.cudaSetDevice(0);
    return gate;
}

static void *gate_open_later(void *arg)
{
    struct gate *gate = arg;
    pause_ms(GATE_MS);
    atomic_store(&gate->open, true);
    return NULL;
}

/* ---- the end of an operation that has failed ---- */

/* Whether the operation goes on until the gate is open, and then ends with that status. The tests
 * look at it when all is closed. */
static bool is_held(struct nccl_group *g, void *request, struct gate *gate, int status)
{
    const uint64_t until = harness_now_ns() + GATE_MS * 1000000ull;
    int rc = COLLRUN_AGAIN;
    while (rc == COLLRUN_AGAIN && harness_now_ns() < until)
        rc = f.backend->test(g, request);
    bool held = rc == COLLRUN_AGAIN;
    atomic_store(&gate->open, true);
    return held && finish(g, request) == status;
}

/* Two messages of one direction are in flight. The first one has passed, and the other direction is
 * idle. */
static void a_failed_message_awaits_all_in_flight(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "all");
    struct gate *before[2];
    struct collrun_call calls[2][2];
    void *requests[2];
    (void)state;
    exchange(&p, 0, 0);
    exchange(&p, 1, 0);
    for (int i = 0; i < 2; i++) {
        message_calls(1, 0, calls[i]);
        before[i] = gate_new(1);
        requests[i] = start(p.messages, calls[i], 2);
    }
    const struct op *first = requests[0], *second = requests[1];
    while (second->messages[0].state != MESSAGE_IN_FLIGHT) /* both ends of the first are known */
        assert_int_equal(f.backend->test(p.messages, requests[0]), COLLRUN_AGAIN);
    atomic_store(&before[0]->open, true);
    for (int i = 0; i < 2; i++)
        while (event_query(&f.real.cuda, first->messages[i].after_evt) != cudaSuccess)
            pause_ms(1);
    f.backend->group_abort(p.messages);
    bool held = is_held(p.messages, requests[1], before[1], COLLRUN_ERR_ABORTED);
    int first_ended = finish(p.messages, requests[0]);
    nccl_pair_close(&f, &p);
    assert_true(held);
    assert_int_equal(first_ended, COLLRUN_ERR_ABORTED);
}

static atomic_int event_queries;

static cudaError_t fail_first_query(cudaEvent_t event)
{
    return atomic_fetch_add(&event_queries, 1) ? f.real.cuda.cudaEventQuery(event)
                                               : cudaErrorMemoryAllocation;
}

/* CUDA reports an error of the first GPU, and the second one is busy. */
static void an_error_of_one_gpu_awaits_the_others(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "gpus");
    struct collrun_call calls[PAIR_GPUS];
    bool held[2];
    (void)state;
    exchange(&p, 0, 7); /* its communicator is formed */
    for (int messages = 0; messages < 2; messages++) {
        struct nccl_group *g = messages ? p.messages : p.collectives;
        if (messages)
            message_calls(1, 7, calls);
        else
            allreduce_calls(calls);
        struct gate *gate = gate_new(1);
        void *request = start(g, calls, PAIR_GPUS);
        const struct op *op = request;
        while (messages && op->messages[0].state != MESSAGE_IN_FLIGHT)
            assert_int_equal(f.backend->test(g, request), COLLRUN_AGAIN);
        atomic_store(&event_queries, 0);
        f.context->lib.cuda.cudaEventQuery = fail_first_query;
        held[messages] = is_held(g, request, gate, COLLRUN_ERR_BACKEND);
        f.context->lib.cuda.cudaEventQuery = f.real.cuda.cudaEventQuery;
    }
    nccl_pair_close(&f, &p);
    assert_true(held[0]);
    assert_true(held[1]);
}

/* ---- a start that fails halfway ---- */

static int sends;

static ncclResult_t fail_second_send(const void *buffer, size_t count, ncclDataType_t type,
                                     int peer, ncclComm_t comm, cudaStream_t stream)
{
    return ++sends == 2 ? ncclSystemError
                        : f.real.nccl.ncclSend(buffer, count, type, peer, comm, stream);
}

static cudaStream_t failing_stream;

static cudaError_t fail_record(cudaEvent_t event, cudaStream_t stream)
{
    return stream == failing_stream ? cudaErrorMemoryAllocation
                                    : f.real.cuda.cudaEventRecord(event, stream);
}

/* Whether a start, whose first GPU is behind a gate, fails, and returns when that is open. */
static bool fails_when_open(struct nccl_group *g, const struct collrun_call *calls, uint32_t n)
{
    struct gate *gate = gate_new(calls->device);
    pthread_t opener;
    void *request = NULL;
    assert_int_equal(pthread_create(&opener, NULL, gate_open_later, gate), 0);
    int status = f.backend->start(g, calls, n, &request);
    bool held = atomic_load(&gate->open);
    pthread_join(opener, NULL);
    return held && status == COLLRUN_ERR_BACKEND;
}

static void a_start_whose_second_message_fails_awaits_the_first(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "half");
    struct collrun_call calls[2], other[2];
    (void)state;
    exchange(&p, 0, 0);
    exchange(&p, 1, 0);
    message_calls(0, 0, calls);
    message_calls(1, 0, other);
    calls[1] = other[0]; /* each GPU sends */
    sends = 0;
    f.context->lib.nccl.ncclSend = fail_second_send;
    bool held = fails_when_open(p.messages, calls, 2);
    nccl_pair_close(&f, &p);
    assert_true(held);
    assert_int_equal(sends, 2);
}

static void a_start_whose_event_fails_awaits_its_kernel(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "event");
    struct collrun_call calls[2];
    (void)state;
    exchange(&p, 0, 0);
    message_calls(0, 0, calls);
    failing_stream = nccl_pair_part(&p, 0)->devs[0].stream;
    f.context->lib.cuda.cudaEventRecord = fail_record;
    bool held = fails_when_open(p.messages, calls, 1);
    nccl_pair_close(&f, &p);
    assert_true(held);
}

static void a_collective_whose_event_fails_awaits_its_kernels(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "collective");
    struct collrun_call calls[PAIR_GPUS];
    (void)state;
    allreduce_calls(calls);
    failing_stream = p.collectives->devs[1].stream;
    f.context->lib.cuda.cudaEventRecord = fail_record;
    bool held = fails_when_open(p.collectives, calls, PAIR_GPUS);
    nccl_pair_close(&f, &p);
    assert_true(held);
}

/* ---- order after what has failed ---- */

/* The messages have no event: their launch failed. */
static void no_stream_waits_for_messages_that_failed(void **state)
{
    struct nccl_pair p = nccl_pair_open(&f, "order");
    struct collrun_call calls[2];
    (void)state;
    exchange(&p, 0, 7);
    message_calls(0, 7, calls);
    sends = 1;
    f.context->lib.nccl.ncclSend = fail_second_send;
    void *request = start(p.messages, calls, 2);
    const struct op *op = request;
    while (!nccl_group_has_failed(p.messages))
        assert_int_equal(f.backend->test(p.messages, request), COLLRUN_AGAIN);
    assert_int_equal(op->messages[0].state, MESSAGE_IN_FLIGHT);
    int ordered = f.backend->order(p.messages, request, 0, f.stream[0]);
    int ended = finish(p.messages, request);
    nccl_pair_close(&f, &p);
    assert_int_equal(ordered, COLLRUN_AGAIN);
    assert_int_equal(ended, COLLRUN_ERR_BACKEND);
}

/* ---- closing ---- */

static struct closing {
    struct nccl_pair own, other;
    const struct nccl_group *part;
    ncclComm_t part_comm, other_comm, messages_comm;
    cudaStream_t messages_stream;
    atomic_bool finalizing, stopping_part, freed_early, revoked_late;
} closing;

static bool aborter_has(const struct nccl_group *g, bool stopped)
{
    struct aborter *a = &f.context->aborter;
    pthread_mutex_lock(&a->lock);
    bool has = stopped ? g->abort.stopped : g->abort.queued;
    pthread_mutex_unlock(&a->lock);
    return has;
}

/* Groups are closed in the background. */
static void await_closings(void)
{
    struct closings *c = &f.context->closings;
    unsigned open = 1;
    for (int i = 0; open && i < 20000; i++) {
        pause_ms(1);
        pthread_mutex_lock(&c->lock);
        open = c->groups;
        pthread_mutex_unlock(&c->lock);
    }
    assert_int_equal(open, 0);
}

static ncclResult_t note_finalize(ncclComm_t comm)
{
    if (comm == closing.part_comm)
        atomic_store(&closing.finalizing, true);
    return f.real.nccl.ncclCommFinalize(comm);
}

/* The peer of the part does not finalize. */
static ncclResult_t never_finalized(ncclComm_t comm, ncclResult_t *state)
{
    if (comm != closing.part_comm || !atomic_load(&closing.finalizing))
        return f.real.nccl.ncclCommGetAsyncError(comm, state);
    *state = ncclInProgress;
    return ncclSuccess;
}

/* While the aborter is busy with the part, the handle for messages is queued, and in front of it
 * another group, with which the aborter is slow. */
static ncclResult_t revoke_slowly(ncclComm_t comm, int flags)
{
    if (comm == closing.part_comm) {
        atomic_store(&closing.stopping_part, true);
        while (!aborter_has(closing.own.messages, false))
            pause_ms(1);
        f.backend->group_abort(closing.other.collectives);
        atomic_store(&closing.finalizing, false);
    } else if (comm == closing.other_comm) {
        pause_ms(2 * GATE_MS);
    }
    return f.real.nccl.ncclCommRevoke(comm, flags);
}

/* The first thing that is freed of the handle for messages. */
static cudaError_t note_stream_destroy(cudaStream_t stream)
{
    for (; stream == closing.messages_stream && !aborter_has(closing.own.messages, true);
         pause_ms(1))
        atomic_store(&closing.freed_early, true);
    return f.real.cuda.cudaStreamDestroy(stream);
}

/* A part that fails while it is closed fails the handle for messages, which the aborter then has in
 * its queue. It must not be freed before that has taken it out. */
static void the_aborter_is_awaited_before_messages_are_freed(void **state)
{
    (void)state;
    closing =
        (struct closing){.own = nccl_pair_open(&f, "own"), .other = nccl_pair_open(&f, "other")};
    exchange(&closing.own, 0, 0);
    closing.part_comm = nccl_pair_part(&closing.own, 0)->devs[0].comm;
    closing.other_comm = closing.other.collectives->devs[0].comm;
    closing.messages_stream = closing.own.messages->devs[0].stream;
    f.context->lib.nccl.ncclCommFinalize = note_finalize;
    f.context->lib.nccl.ncclCommGetAsyncError = never_finalized;
    f.context->lib.nccl.ncclCommRevoke = revoke_slowly;
    f.context->lib.cuda.cudaStreamDestroy = note_stream_destroy;
    nccl_pair_close(&f, &closing.own);
    /* The part fails before it can fail the handle for messages, so the aborter begins with it. */
    pthread_mutex_lock(&closing.own.messages->status.lock);
    while (!atomic_load(&closing.stopping_part))
        pause_ms(1);
    pthread_mutex_unlock(&closing.own.messages->status.lock);
    await_closings();
    nccl_pair_close(&f, &closing.other);
    assert_false(atomic_load(&closing.freed_early));
}

/* The part fails while the communicators of the whole are being destroyed. */
static ncclResult_t destroy_beside_a_failure(ncclComm_t comm)
{
    if (comm == closing.messages_comm) {
        f.backend->group_abort((void *)closing.part);
        while (!aborter_has(closing.own.messages, true))
            pause_ms(1);
    }
    return f.real.nccl.ncclCommDestroy(comm);
}

static ncclResult_t note_revoke(ncclComm_t comm, int flags)
{
    if (comm == closing.messages_comm)
        atomic_store(&closing.revoked_late, true);
    return f.real.nccl.ncclCommRevoke(comm, flags);
}

static void the_aborter_leaves_communicators_that_are_being_destroyed(void **state)
{
    (void)state;
    closing = (struct closing){.own = nccl_pair_open(&f, "destroyed")};
    exchange(&closing.own, 0, 0);
    exchange(&closing.own, 0, 7);
    closing.part = nccl_pair_part(&closing.own, 0);
    closing.messages_comm = closing.own.messages->devs[0].comm;
    f.context->lib.nccl.ncclCommDestroy = destroy_beside_a_failure;
    f.context->lib.nccl.ncclCommRevoke = note_revoke;
    nccl_pair_close(&f, &closing.own);
    await_closings();
    assert_false(atomic_load(&closing.revoked_late));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_backend, close_backend)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failed_message_awaits_all_in_flight),
        TEST(an_error_of_one_gpu_awaits_the_others),
        TEST(a_start_whose_second_message_fails_awaits_the_first),
        TEST(a_start_whose_event_fails_awaits_its_kernel),
        TEST(a_collective_whose_event_fails_awaits_its_kernels),
        TEST(no_stream_waits_for_messages_that_failed),
        TEST(the_aborter_is_awaited_before_messages_are_freed),
        TEST(the_aborter_leaves_communicators_that_are_being_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens beside a thread that waits for a message inside the transport. The transport here
 * delivers what a test tells it to, from rank 1.
 */
#include "core/backend.h"
#include "null_group.h"
#include "progress/progress_owner.h"

#include "base/loop.h"

#include <collrun/collrun.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)

enum { NOTHING = -1, PATIENCE_S = 20 };

static struct {
    struct collrun_group *group;
    struct p2p *p2p;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waiting, woken;
    int arriving; /* the tag of a message; or NOTHING */
} wire;

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_ERR_BACKEND;
}

static int wire_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    (void)group;
    memcpy(m->data, packet, len);
    wire.p2p->table.done(wire.p2p->table.ctx, m);
    return COLLRUN_OK;
}

/* The tag of the message that has come, for up to `wait_ns`. */
static int wire_wait(uint64_t wait_ns)
{
    const uint64_t until = now_ns() + (wait_ns < SECOND_NS ? wait_ns : SECOND_NS);
    const struct timespec at = {(time_t)(until / SECOND_NS), (long)(until % SECOND_NS)};
    int rc = 0;
    pthread_mutex_lock(&wire.lock);
    wire.waiting = wait_ns > 0;
    pthread_cond_broadcast(&wire.changed);
    while (wire.waiting && !wire.woken && wire.arriving == NOTHING && rc == 0)
        rc = pthread_cond_timedwait(&wire.changed, &wire.lock, &at);
    const int tag = wire.arriving;
    wire.waiting = wire.woken = false;
    wire.arriving = NOTHING;
    pthread_mutex_unlock(&wire.lock);
    return tag;
}

static int wire_progress(void *group, uint64_t wait_ns)
{
    const struct collrun_p2p *table = &wire.p2p->table;
    (void)group;
    if (null_backend.aborts)
        return error_cause(COLLRUN_ERR_ABORTED, "the group was aborted");
    const int tag = wire_wait(wait_ns);
    if (tag == NOTHING)
        return COLLRUN_OK;
    const struct collrun_envelope envelope = {
        .count = 1, .tag = (uint32_t)tag, .dtype = COLLRUN_UINT8};
    int rc = table->arrived(table->ctx, 1, &envelope, "m", 1);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

static void wire_wake(void *group)
{
    (void)group;
    pthread_mutex_lock(&wire.lock);
    wire.woken = true;
    pthread_cond_broadcast(&wire.changed);
    pthread_mutex_unlock(&wire.lock);
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = wire_recv,
    .progress = wire_progress,
    .wake = wire_wake,
};

static void deliver(int tag)
{
    pthread_mutex_lock(&wire.lock);
    wire.arriving = tag;
    pthread_cond_broadcast(&wire.changed);
    pthread_mutex_unlock(&wire.lock);
}

/* Until a thread is asleep inside the transport. */
static void await_waiting(void)
{
    pthread_mutex_lock(&wire.lock);
    while (!wire.waiting || wire.woken || wire.arriving != NOTHING)
        pthread_cond_wait(&wire.changed, &wire.lock);
    pthread_mutex_unlock(&wire.lock);
}

static int setup(void **state)
{
    pthread_condattr_t monotonic;
    (void)state;
    memset(&wire, 0, sizeof wire);
    wire.arriving = NOTHING;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&wire.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&wire.lock, NULL);
    wire.group = null_group_new(0, 2, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    wire.group->timeout_ns = 60 * SECOND_NS;
    wire.group->backends[0].backend->has_transport = true;
    wire.p2p = null_group_carry(wire.group, &transport);
    return wire.p2p ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    null_group_free(wire.group);
    pthread_cond_destroy(&wire.changed);
    pthread_mutex_destroy(&wire.lock);
    return 0;
}

static char received; /* by the thread */

static void *receive(void *arg)
{
    (void)arg;
    received = 0;
    return collrun_recv(wire.group, &received, 1, COLLRUN_UINT8, 1) ? "the receive failed" : NULL;
}

static void start_receive(pthread_t *thread)
{
    assert_int_equal(pthread_create(thread, NULL, receive, NULL), 0);
    await_waiting();
}

static void end_receive(pthread_t thread)
{
    void *failure = NULL;
    deliver(0);
    assert_int_equal(pthread_join(thread, &failure), 0);
    if (failure)
        fail_msg("%s", (const char *)failure);
    assert_int_equal(received, 'm');
}

/* Until the request is finished; AGAIN: it never is. */
static int test_for_long(struct collrun_request *r)
{
    const uint64_t until = now_ns() + PATIENCE_S * SECOND_NS;
    int rc = COLLRUN_AGAIN;
    while (rc == COLLRUN_AGAIN && now_ns() < until) {
        rc = collrun_test(r);
        sched_yield();
    }
    return rc;
}

/* The thread that waits is inside the transport whenever another one looks, now and then. */
static void a_look_finds_a_message_beside_a_thread_that_waits(void **state)
{
    struct collrun_message_info info = {.size = sizeof info};
    pthread_t thread;
    int rc = COLLRUN_AGAIN;
    (void)state;
    start_receive(&thread);
    deliver(5);
    for (int look = 0; look < 20 && rc == COLLRUN_AGAIN; look++) {
        await_waiting();
        rc = collrun_iprobe(wire.group, 1, 5, &info);
    }
    assert_int_equal(rc, COLLRUN_OK);
    assert_int_equal(info.source, 1);
    assert_int_equal(collrun_iprobe(wire.group, 1, 6, &info), COLLRUN_AGAIN);
    end_receive(thread);
}

/* A look for a message interrupts a receive, which goes on as a request although the queue has no
 * worker yet. A collective that is started later in the same queue has one. */
static void a_queue_without_requests_has_no_worker(void **state)
{
    struct group_backend *gb = &wire.group->backends[0];
    struct progress_queue *pq = gb->pq[GROUP_MESSAGES];
    struct collrun_message_info info = {.size = sizeof info};
    static float in, out;
    pthread_t thread;
    (void)state;
    gb->pq[GROUP_COLLECTIVES] = pq;
    pq->shared = true;
    start_receive(&thread);
    assert_int_equal(collrun_iprobe(wire.group, 1, 5, &info), COLLRUN_AGAIN);
    while (pq_is_idle(pq))
        sched_yield();
    end_receive(thread);
    assert_false(pq->worker.started);
    /* As if the last meeting of two threads was long ago. */
    pthread_mutex_lock(&pq->lock);
    pq->needed_ns = 0;
    pthread_mutex_unlock(&pq->lock);
    assert_int_equal(collrun_iprobe(wire.group, 1, 5, &info), COLLRUN_AGAIN);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = &in;
    call.recv = &out;
    call.count = 1;
    call.dtype = COLLRUN_FLOAT32;
    assert_int_equal(test_for_long(null_group_start(wire.group, call)), COLLRUN_OK);
}

static char device_memory;

static int kind_locate(void *state, const void *ptr, int32_t *device)
{
    (void)state, (void)device;
    return ptr == &device_memory;
}

static int kind_copy(void *state, const struct collrun_memory_copy *copy)
{
    (void)state;
    return copy->len ? error_cause(COLLRUN_ERR_BACKEND, "the device is lost") : COLLRUN_OK;
}

/* After a copy that failed the engine leaves such memory to the device. */
static int kind_host_alloc(void *state, size_t len, void **out)
{
    enum { BLOCK_LEN = 4096, BLOCKS = 8 };
    static char blocks[BLOCKS][BLOCK_LEN];
    static unsigned n;
    (void)state;
    assert_true(len <= BLOCK_LEN && n < BLOCKS);
    *out = blocks[n++];
    return COLLRUN_OK;
}

static void kind_host_free(void *state, void *ptr, size_t len)
{
    (void)state, (void)ptr, (void)len;
}

static void use_device_memory(void)
{
    static struct memory_kind kind = {.table = {.locate = kind_locate,
                                                .copy = kind_copy,
                                                .host_alloc = kind_host_alloc,
                                                .host_free = kind_host_free},
                                      .name = "device",
                                      .title = "device",
                                      .usable = true};
    wire.group->kinds = (struct memory_kind_set){.items = {&kind}, .n = 1};
}

/* The backend does not know of it. */
static void a_copy_that_fails_ends_the_requests_in_flight(void **state)
{
    char host_memory = 0;
    struct collrun_request *requests[2];
    (void)state;
    use_device_memory();
    for (uint32_t i = 0; i < 2; i++) {
        struct collrun_call call =
            null_group_message(COLLRUN_RECV, i ? &host_memory : &device_memory, 1);
        call.tag = 1 + i;
        requests[i] = null_group_start(wire.group, call);
    }
    deliver(1);
    assert_int_equal(test_for_long(requests[0]), COLLRUN_ERR_BACKEND);
    assert_non_null(strstr(collrun_error(), "the device is lost"));
    assert_int_equal(test_for_long(requests[1]), COLLRUN_ERR_BACKEND);
    assert_non_null(strstr(collrun_error(), "the device is lost"));
}

static void a_start_that_fails_leaves_its_output(void **state)
{
    char host_memory = 0;
    (void)state;
    use_device_memory();
    struct collrun_request *const other =
        null_group_start(wire.group, null_group_message(COLLRUN_RECV, &host_memory, 1));
    struct collrun_request *request = other;
    const struct collrun_call call = null_group_message(COLLRUN_SEND, &device_memory, 1);
    assert_int_equal(collrun_start(wire.group, &call, &request), COLLRUN_ERR_BACKEND);
    assert_ptr_equal(request, other);
    assert_int_equal(test_for_long(other), COLLRUN_ERR_BACKEND);
}

#define BESIDE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BESIDE_TEST(a_look_finds_a_message_beside_a_thread_that_waits),
        BESIDE_TEST(a_queue_without_requests_has_no_worker),
        BESIDE_TEST(a_copy_that_fails_ends_the_requests_in_flight),
        BESIDE_TEST(a_start_that_fails_leaves_its_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Time-outs do not pass while the process stands still (base/standstill.h). The linker's --wrap
 * gives the process a clock that the tests move: a minute that no tick divides is one in which the
 * process was stopped.
 */
#include "base/standstill.h"

#include "base/loop.h"
#include "core/backend.h"
#include "core/connect_all.h"
#include "core/control.h"
#include "core/host_scope.h"
#include "null_group.h"
#include "progress/p2p.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)
#define STOPPED_NS (60 * SECOND_NS)

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);

static _Atomic uint64_t stopped_ns;

uint64_t __wrap_now_ns(void)
{
    return __real_now_ns() + atomic_load(&stopped_ns);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void stand_still(void)
{
    atomic_fetch_add(&stopped_ns, STOPPED_NS);
}

/* ---- probes ---- */

static struct {
    struct p2p *p2p;
    unsigned nlooks;
} wire;

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_ERR_BACKEND;
}

/* The first look is before the wait, the second one in it; the message comes with the third. */
static int wire_progress(void *group, uint64_t wait_ns)
{
    const struct collrun_p2p *table = &wire.p2p->table;
    const struct collrun_envelope envelope = {.count = 0, .tag = 3, .dtype = COLLRUN_UINT8};
    (void)group, (void)wait_ns;
    if (++wire.nlooks == 2)
        stand_still();
    if (wire.nlooks != 3)
        return COLLRUN_OK;
    int rc = table->arrived(table->ctx, 1, &envelope, NULL, 0);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = null_transport_recv,
    .progress = wire_progress,
};

static void a_probe_goes_on(void **state)
{
    struct collrun_message_info info = {.size = sizeof info};
    (void)state;
    struct collrun_group *g =
        null_group_new(0, 2, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    g->timeout_ns = 30 * SECOND_NS;
    g->backends[0].backend->has_transport = true;
    wire.p2p = null_group_carry(g, &transport);
    standstill_tick();
    assert_int_equal(collrun_probe(g, 1, 3, &info), COLLRUN_OK);
    assert_int_equal(wire.nlooks, 3);
    assert_int_equal(info.source, 1);
    null_group_free(g);
}

/* ---- check: strict ---- */

static uint64_t left_ns; /* of the operation behind the check */

static int exec_strict(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    assert_int_equal(n, 1);
    if (calls->kind != COLLRUN_ALLGATHER) {
        left_ns = calls->timeout_ns;
        return COLLRUN_OK;
    }
    for (size_t r = 0; r < 2; r++)
        memcpy((char *)calls->recv + r * calls->count, calls->send, calls->count);
    stand_still();
    return COLLRUN_OK;
}

static void an_operation_behind_its_check_has_its_time(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(0, 2, 0);
    g->timeout_ns = 30 * SECOND_NS;
    g->check = COLLRUN_CHECK_STRICT;
    g->backends[0].backend->table.exec = exec_strict;
    standstill_tick();
    assert_int_equal(collrun_barrier(g), COLLRUN_OK);
    assert_true(left_ns > SECOND_NS && left_ns <= 30 * SECOND_NS);
    null_group_free(g);
}

/* ---- buffers in device memory ---- */

static char device_memory[2][8];
static bool late; /* a copy had no time left */

static int kind_locate(void *state, const void *ptr, int32_t *device)
{
    (void)state, (void)device;
    return ptr == device_memory[0] || ptr == device_memory[1];
}

static int kind_copy(void *state, const struct collrun_memory_copy *copy)
{
    (void)state;
    late = late || now_ns() >= copy->deadline_ns;
    if (copy->len)
        memcpy(copy->dst, copy->src, copy->len);
    return COLLRUN_OK;
}

static int exec_stopped(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group, (void)calls, (void)n;
    stand_still();
    return COLLRUN_OK;
}

static void a_copy_behind_an_operation_has_its_time(void **state)
{
    static struct memory_kind kind = {.table = {.locate = kind_locate, .copy = kind_copy},
                                      .name = "device",
                                      .title = "device",
                                      .usable = true};
    (void)state;
    struct collrun_group *g = null_group_new(0, 2, 0);
    g->timeout_ns = 30 * SECOND_NS;
    g->kinds = (struct memory_kind_set){.items = {&kind}, .n = 1};
    g->backends[0].backend->table.exec = exec_stopped;
    standstill_tick();
    assert_int_equal(
        collrun_allreduce(g, device_memory[0], device_memory[1], 1, COLLRUN_INT64, COLLRUN_SUM),
        COLLRUN_OK);
    assert_false(late);
    null_group_free(g);
}

/* ---- answers of the runner ---- */

static void control_init(struct control *c)
{
    pthread_condattr_t monotonic;
    *c = (struct control){.fd = -1, .wake_fd = -1};
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->lock, NULL);
}

struct question {
    struct control control;
    struct control_request request;
};

/* The thread that waits is woken twice: after the stop, and with the answer. */
static void *answer(void *arg)
{
    struct question *q = arg;
    for (int i = 0; i < 2; i++) {
        usleep(100000);
        if (i == 0)
            stand_still();
        pthread_mutex_lock(&q->control.lock);
        q->request.done = i == 1;
        pthread_cond_broadcast(&q->control.changed);
        pthread_mutex_unlock(&q->control.lock);
    }
    return NULL;
}

static void an_answer_may_come_later(void **state)
{
    static struct question q;
    pthread_t thread;
    struct diag d;
    (void)state;
    diag_init(&d);
    control_init(&q.control);
    control_request_add(&q.control, &q.request);
    standstill_tick();
    const uint64_t deadline = now_ns() + 30 * SECOND_NS;
    assert_int_equal(pthread_create(&thread, NULL, answer, &q), 0);
    assert_int_equal(control_request_wait(&q.control, &q.request, deadline, &d), COLLRUN_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    control_request_fini(&q.control, &q.request);
}

/* ---- groups of one host ---- */

enum { RANKS = 2 };

struct rank {
    struct host_scopes scopes;
    struct control control;
    atomic_bool failed[RANKS];
    struct host_scope_request request;
    int status;
    struct diag d;
    pthread_t thread;
};

static void *exchange(void *arg)
{
    struct rank *r = arg;
    diag_init(&r->d);
    r->status = host_scope_exchange(&r->scopes, &r->request, NULL, NULL, &r->d);
    return NULL;
}

static void await_arrival(struct hostmem *m)
{
    uint32_t arrived = 0;
    while (!arrived) {
        usleep(100);
        hostmem_lock(m);
        arrived = hostmem_scope_at(m, 0)->narrived;
        hostmem_unlock(m);
    }
}

/* Rank 0 looks at the clock when it is woken. */
static void a_member_may_come_later(void **state)
{
    static uint32_t items[RANKS] = {0, 1};
    const struct desc_ranks members = {.items = items, .n = RANKS};
    static struct rank ranks[RANKS];
    struct diag d;
    int fd;
    (void)state;
    diag_init(&d);
    assert_int_equal(hostmem_make(RANKS, &fd, &d), COLLRUN_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct rank *r = &ranks[i];
        control_init(&r->control);
        r->scopes = (struct host_scopes){
            .rank = i, .failed = r->failed, .control = &r->control, .oversubscribed = true};
        assert_true(hostmem_map(&r->scopes.mem, fd));
        r->request = (struct host_scope_request){.name = "train#0:1/0",
                                                 .group = "train",
                                                 .identity = "shm 1.0",
                                                 .members = &members,
                                                 .index = i,
                                                 .timeout_ns = SECOND_NS / 5};
    }
    standstill_tick();
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, exchange, &ranks[0]), 0);
    await_arrival(&ranks[0].scopes.mem);
    stand_still();
    host_scope_wake_all(&ranks[0].scopes);
    usleep(500000);
    exchange(&ranks[1]);
    assert_int_equal(pthread_join(ranks[0].thread, NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].status, COLLRUN_OK);
        hostmem_unmap(&ranks[i].scopes.mem);
    }
    close(fd);
}

/* ---- connections between members ---- */

/* What rank 0 publishes: where it listens, and its secret. */
static struct {
    struct sockaddr_storage address;
    uint64_t len;
    uint64_t secret[2];
} listener;
static unsigned nalive;

static int put_listener(void *ctx, const char *key, const void *value, size_t len)
{
    (void)ctx, (void)key;
    assert_int_equal(len, sizeof listener);
    memcpy(&listener, value, len);
    return COLLRUN_OK;
}

static int fence_nothing(void *ctx)
{
    (void)ctx;
    return COLLRUN_OK;
}

/* Rank 0 asks while it waits; rank 1 connects some time after the stop. */
static int stand_still_and_connect(void *ctx)
{
    int *fd = ctx;
    const uint64_t hello[3] = {listener.secret[0], listener.secret[1], 1};
    if (nalive++ == 0)
        stand_still();
    if (nalive != 3)
        return COLLRUN_OK;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*fd, (void *)&listener.address, (socklen_t)listener.len), 0);
    assert_int_equal(send(*fd, hello, sizeof hello, 0), sizeof hello);
    return COLLRUN_OK;
}

static void a_member_may_connect_later(void **state)
{
    int fds[RANKS], other = -1;
    const struct collrun_rendezvous rendezvous = {.size = sizeof rendezvous,
                                                  .ctx = &other,
                                                  .put = put_listener,
                                                  .fence = fence_nothing,
                                                  .alive = stand_still_and_connect};
    (void)state;
    standstill_tick();
    const uint64_t now = now_ns();
    const struct connect_all how = {.rendezvous = &rendezvous,
                                    .address = "127.0.0.1",
                                    .nranks = RANKS,
                                    .deadline_ns = now + 30 * SECOND_NS,
                                    .stopped_ns = standstill_total(now)};
    assert_int_equal(connect_all(&how, fds), COLLRUN_OK);
    assert_true(nalive >= 3);
    assert_true(fds[1] >= 0);
    close(fds[1]);
    close(other);
}

/* The members ask for the deadline of their group some time after its rendezvous has begun. */
static void the_deadline_of_a_group_moves(void **state)
{
    static uint32_t items[RANKS] = {0, 1};
    const struct desc_ranks members = {.items = items, .n = RANKS};
    struct desc_rank ranks[RANKS] = {{.host = 0}, {.host = 0}};
    struct desc desc = {.nranks = RANKS, .ranks = ranks};
    struct hostmem_head head;
    struct host_scopes host = {.mem.head = &head, .desc = &desc};
    struct control control;
    struct rendezvous r;
    struct diag d;
    const struct rendezvous_spec spec = {.name = "train",
                                         .members = &members,
                                         .identity = "shm 1.0",
                                         .timeout_ns = 30 * SECOND_NS,
                                         .host = &host};
    (void)state;
    diag_init(&d);
    control_init(&control);
    standstill_tick();
    assert_int_equal(rendezvous_open(&r, &control, &spec, &d), COLLRUN_OK);
    const uint64_t before = rendezvous_ends_ns(&r);
    stand_still();
    const uint64_t after = rendezvous_ends_ns(&r);
    assert_true(after >= before + STOPPED_NS);
    rendezvous_leave(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_goes_on),
        cmocka_unit_test(an_operation_behind_its_check_has_its_time),
        cmocka_unit_test(a_copy_behind_an_operation_has_its_time),
        cmocka_unit_test(an_answer_may_come_later),
        cmocka_unit_test(a_member_may_come_later),
        cmocka_unit_test(a_member_may_connect_later),
        cmocka_unit_test(the_deadline_of_a_group_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

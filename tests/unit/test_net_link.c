/* SPDX-License-Identifier: Apache-2.0
 *
 * What backends/net does with what a link delivers, in orders that sockets rarely have: over a
 * stand-in for the link (plugins/scripted_link.h). This process is rank 0; in one test another
 * rank, too, of the same host.
 */
#include "backend.h"
#include "group.h"
#include "plugins/scripted_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LEN = 1 << 20, RANKS = SCRIPTED_RANKS };

/* ---- the engine ---- */

static char error[1024];

static void on_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    (void)ctx, (void)level, (void)format;
}

static int on_fail(void *ctx, int status, const char *format, ...)
{
    va_list args;
    (void)ctx;
    va_start(args, format);
    vsnprintf(error, sizeof error, format, args);
    va_end(args);
    return status;
}

static bool shares_memory; /* ranks of a host do */

static const char *on_option(void *ctx, const char *key)
{
    (void)ctx;
    return strcmp(key, "local") == 0 && !shares_memory ? "tcp" : NULL;
}

static int on_thread_start(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    (void)ctx;
    return pthread_create(thread, NULL, run, arg) == 0 ? COLLRUN_OK : COLLRUN_ERR_SYSTEM;
}

static size_t on_dtype_size(enum collrun_dtype dtype)
{
    (void)dtype;
    return 1;
}

static uint64_t on_stopped_ns(void *ctx)
{
    (void)ctx;
    return 0;
}

static uint64_t on_now_ns(void)
{
    static _Atomic uint64_t looks; /* each takes a microsecond */
    return 1000 * ++looks;
}

static const struct collrun_services services = {.size = sizeof services,
                                                 .log = on_log,
                                                 .fail = on_fail,
                                                 .option = on_option,
                                                 .thread_start = on_thread_start,
                                                 .dtype_size = on_dtype_size,
                                                 .stopped_ns = on_stopped_ns,
                                                 .now_ns = on_now_ns};

/* All members have published the same. */
static char published[2048];
static size_t published_len;

static int on_share(void *ctx, const char *key, const void *value, size_t len)
{
    (void)ctx, (void)key;
    assert_in_range(len, 1, sizeof published);
    memcpy(published, value, len);
    published_len = len;
    return COLLRUN_OK;
}

static int on_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    (void)ctx, (void)key;
    assert_in_range(published_len, 1, capacity);
    memcpy(value, published, published_len);
    *len = published_len;
    return COLLRUN_OK;
}

static int memory_fd = -1; /* of the host */

static int on_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    (void)ctx;
    if (memory_fd < 0)
        memory_fd = memfd_create("segment", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memory_fd, (off_t)len), 0);
    *fd = memory_fd;
    *offset = 0;
    return COLLRUN_OK;
}

static const struct collrun_rendezvous rendezvous = {
    .size = sizeof rendezvous, .get = on_get, .share = on_share, .segment = on_segment};

/* A group, and one message of it. */
struct fixture {
    void *backend, *handle;
    struct net_group *group;
    struct collrun_p2p p2p;
    struct net_message message;
    unsigned ndone, nannounced;
};

static int on_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                      const void *packet, size_t len)
{
    struct fixture *f = ctx;
    assert_int_equal(source, f->message.head.peer);
    f->message.head.envelope = *envelope;
    return net_transport.recv(f->handle, &f->message.head, packet, len);
}

static void on_announced(void *ctx, const struct collrun_message *message)
{
    struct fixture *f = ctx;
    assert_ptr_equal(message, &f->message.head);
    f->nannounced++;
}

static void on_done(void *ctx, struct collrun_message *message)
{
    struct fixture *f = ctx;
    assert_ptr_equal(message, &f->message.head);
    f->ndone++;
}

static struct collrun_message *on_find(void *ctx, uint32_t id)
{
    struct fixture *f = ctx;
    (void)id;
    return &f->message.head;
}

static void open_group_as(struct fixture *f, uint32_t rank, uint32_t nranks,
                          const uint32_t *host_of)
{
    static const uint32_t ranks[RANKS] = {0, 1, 2};
    *f = (struct fixture){.p2p = {sizeof f->p2p, 0, f, on_arrived, on_done, on_find, on_announced}};
    const struct collrun_group_desc desc = {.size = sizeof desc,
                                            .rank = rank,
                                            .nranks = nranks,
                                            .nlocal = 1,
                                            .ncpus = 64,
                                            .name = "group",
                                            .world_rank = ranks,
                                            .host_of = host_of,
                                            .address = "127.0.0.1",
                                            .interface = "lo",
                                            .rendezvous = &rendezvous,
                                            .services = &services,
                                            .p2p = &f->p2p};
    assert_int_equal(net_open(&services, &f->backend), COLLRUN_OK);
    assert_int_equal(net_group_open(f->backend, &desc, &f->handle), COLLRUN_OK);
    f->group = f->handle;
}

static void open_group(struct fixture *f, uint32_t nranks)
{
    static const uint32_t host_of[RANKS] = {0, 1, 2};
    open_group_as(f, 0, nranks, host_of);
}

static void close_all(struct fixture *f)
{
    if (f->handle)
        net_group_close(f->handle);
    net_close(f->backend);
}

static struct fixture fixture; /* of the present test */

static char data[LEN];

static struct collrun_message *message_with(uint32_t peer)
{
    fixture.message = (struct net_message){.head = {.data = data, .len = LEN, .peer = peer}};
    return &fixture.message.head;
}

static int progress(void)
{
    return net_transport.progress(fixture.handle, 0);
}

/* ---- what is delivered; of rank 1 ---- */

static void deliver(struct packet packet, const void *bytes, size_t len)
{
    packet.context = fixture.group->context.id;
    packet.source = 1;
    scripted.link.upcalls.packet(scripted.link.upcalls.ctx, scripted.link.peers[1].cookie, &packet,
                                 bytes, len);
}

static void announce(void)
{
    deliver((struct packet){.type = PACKET_RTS, .message = {.count = LEN}}, NULL, 0);
}

static void grant_message(void)
{
    deliver((struct packet){.type = PACKET_CTS, .message = {.token = 1}}, NULL, 0);
}

static void land(void)
{
    scripted.landing->landed(scripted.landing);
}

static void finish_put(void)
{
    scripted.put->sent(scripted.put);
}

static struct packet of_broadcast(enum packet_type type, int32_t root)
{
    return (struct packet){.type = type,
                           .op = {.kind = COLLRUN_BROADCAST,
                                  .dtype = COLLRUN_UINT8,
                                  .count = LEN,
                                  .root = root,
                                  .len = LEN}};
}

static void send_head(void)
{
    deliver(of_broadcast(PACKET_OP, 1), data, NET_EAGER_LIMIT);
}

static void grant_broadcast(void)
{
    deliver(of_broadcast(PACKET_GRANT, 0), NULL, 0);
}

/* Rank 1 closes the group, and has put nothing; or once. */
static void leave_at_once(void)
{
    deliver((struct packet){.type = PACKET_LEAVE}, NULL, 0);
}

static void leave(void)
{
    deliver((struct packet){.type = PACKET_LEAVE, .message = {.count = 1}}, NULL, 0);
}

#define DELIVER(...) (scripted.next = (void (*const[])(void)){__VA_ARGS__, NULL})

static int broadcast_from(int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = data;
    call.count = LEN;
    call.dtype = COLLRUN_UINT8;
    call.root = root;
    call.timeout_ns = 60000000000u;
    return net_exec(fixture.handle, &call, 1);
}

/* ---- members that leave ---- */

/* Data comes by another socket than the packet that says so. */
static void a_message_on_its_way_outlives_its_sender(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    DELIVER(announce, leave);
    assert_int_equal(progress(), COLLRUN_AGAIN);
    assert_non_null(scripted.landing);
    for (int i = 0; i < 3; i++)
        assert_in_range(progress(), COLLRUN_OK, COLLRUN_AGAIN);
    DELIVER(land);
    assert_int_equal(progress(), COLLRUN_AGAIN);
    assert_int_equal(fixture.ndone, 1);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    assert_int_equal(progress(), COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(error, "rank 1 has left the group");
    close_all(&fixture);
}

static void a_message_that_is_not_sent_fails(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    DELIVER(announce, leave_at_once);
    assert_int_equal(progress(), COLLRUN_AGAIN);
    assert_int_equal(progress(), COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(error, "rank 1 has left the group");
    close_all(&fixture);
}

static void a_broadcast_on_its_way_outlives_its_root(void **state)
{
    (void)state;
    open_group(&fixture, 2);
    DELIVER(send_head, leave, land);
    assert_int_equal(broadcast_from(1), COLLRUN_OK);
    DELIVER(leave);
    assert_int_equal(broadcast_from(1), COLLRUN_ERR_PEER_FAILED);
    close_all(&fixture);
}

/* LEAVE as an answer does not count what has been put. */
static void a_rank_leaves_once(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    DELIVER(announce, leave, leave_at_once);
    assert_int_equal(progress(), COLLRUN_AGAIN);
    for (int i = 0; i < 3; i++)
        assert_in_range(progress(), COLLRUN_OK, COLLRUN_AGAIN);
    DELIVER(land);
    assert_int_equal(progress(), COLLRUN_AGAIN);
    assert_int_equal(fixture.ndone, 1);
    close_all(&fixture);
}

static void a_rank_that_waits_asks_once(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(net_transport.progress(fixture.handle, 20000000u), COLLRUN_OK);
    assert_int_equal(scripted.nsent, 1);
    assert_int_equal(scripted.sent[0].type, PACKET_ASK);
    assert_int_equal(scripted.sent[0].message.tag, 1);
    assert_int_equal(scripted.to[0], 1);
    DELIVER(leave_at_once);
    assert_int_equal(progress(), COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(error, "rank 1 has left the group");
    close_all(&fixture);
}

static void a_rank_that_has_closed_the_group_answers(void **state)
{
    struct packet ask = {.source = 1, .type = PACKET_ASK, .message = {.tag = 0}};
    const struct link_upcalls *up = &scripted.link.upcalls;
    (void)state;
    open_group(&fixture, RANKS);
    ask.context = fixture.group->context.id;
    scripted.nsent = 0;
    up->packet(up->ctx, scripted.link.peers[1].cookie, &ask, NULL, 0);
    assert_int_equal(scripted.nsent, 0);
    net_group_close(fixture.handle);
    fixture.handle = NULL;
    scripted.nsent = 0;
    up->packet(up->ctx, scripted.link.peers[1].cookie, &ask, NULL, 0);
    assert_int_equal(scripted.nsent, 1);
    assert_int_equal(scripted.to[0], 1);
    assert_int_equal(scripted.sent[0].type, PACKET_LEAVE);
    assert_int_equal(scripted.sent[0].source, 0);
    assert_int_equal(scripted.sent[0].context, ask.context);
    close_all(&fixture);
}

/* How much rank 0 has put to each member, when it leaves. */
static void check_leaves(uint64_t to_1, uint64_t to_2)
{
    unsigned nleaves = 0;
    scripted.nsent = 0;
    net_group_close(fixture.handle);
    fixture.handle = NULL;
    for (unsigned i = 0; i < scripted.nsent; i++) {
        assert_int_equal(scripted.sent[i].type, PACKET_LEAVE);
        assert_int_equal(scripted.sent[i].message.count, scripted.to[i] == 1 ? to_1 : to_2);
        nleaves++;
    }
    assert_true(nleaves > 0);
    close_all(&fixture);
}

static void a_rank_that_leaves_counts_what_it_has_put(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.send(fixture.handle, message_with(1)), COLLRUN_OK);
    DELIVER(grant_message, finish_put);
    for (int i = 0; i < 2; i++)
        assert_in_range(progress(), COLLRUN_OK, COLLRUN_AGAIN);
    assert_int_equal(fixture.ndone, 1);
    check_leaves(1, 0);
    open_group(&fixture, 2);
    DELIVER(grant_broadcast, finish_put);
    assert_int_equal(broadcast_from(0), COLLRUN_OK);
    check_leaves(1, 0);
}

/* What was not sent in full is not counted. */
static void a_put_that_is_given_up_does_not_count(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    assert_int_equal(net_transport.send(fixture.handle, message_with(1)), COLLRUN_OK);
    DELIVER(grant_message);
    assert_in_range(progress(), COLLRUN_OK, COLLRUN_AGAIN);
    assert_non_null(scripted.put);
    check_leaves(0, 0);
}

/* ---- ranks that disagree ---- */

static void grant_too_little(void)
{
    deliver(
        (struct packet){
            .type = PACKET_GRANT,
            .op = {.kind = COLLRUN_SCATTERV, .dtype = COLLRUN_UINT8, .len = LEN - 1, .token = 1}},
        NULL, 0);
}

static void report_mismatch(void)
{
    static const char text[] = "rank 0 sends more than rank 1 receives";
    assert_null(scripted.put);
    deliver((struct packet){.type = PACKET_FAIL, .message = {.status = COLLRUN_ERR_MISMATCH}}, text,
            strlen(text));
}

/* The data could overtake the packet that says how much it is, on another socket. */
static void no_data_leaves_for_a_receive_of_another_length(void **state)
{
    static const size_t counts[2] = {0, LEN}, displs[2] = {0, 0};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SCATTERV);
    (void)state;
    open_group(&fixture, 2);
    call.send = data;
    call.recv = data;
    call.sendcounts = counts;
    call.senddispls = displs;
    call.dtype = COLLRUN_UINT8;
    call.timeout_ns = 60000000000u;
    DELIVER(grant_too_little, report_mismatch);
    assert_int_equal(net_exec(fixture.handle, &call, 1), COLLRUN_ERR_MISMATCH);
    assert_string_equal(error, "rank 0 sends more than rank 1 receives");
    close_all(&fixture);
}

/* ---- what a rank must not send ---- */

static void grant_twice(void)
{
    grant_broadcast();
    assert_non_null(scripted.put);
    scripted.put = NULL;
    grant_broadcast();
    assert_null(scripted.put);
}

/* The put is in the link already. */
static void a_second_grant_is_refused(void **state)
{
    (void)state;
    open_group(&fixture, 2);
    DELIVER(grant_twice);
    assert_int_equal(broadcast_from(0), COLLRUN_ERR_BACKEND);
    assert_string_equal(error, "malformed data: a second landing for the same data");
    close_all(&fixture);
}

/* Rank 2 sends as rank 1. */
static void a_rank_speaks_for_itself_alone(void **state)
{
    static const char text[] = "rank 1 has failed";
    struct packet packet = {
        .source = 1, .type = PACKET_FAIL, .message = {.status = COLLRUN_ERR_MISMATCH}};
    const struct link_upcalls *up = &scripted.link.upcalls;
    (void)state;
    open_group(&fixture, RANKS);
    packet.context = fixture.group->context.id;
    endpoint_lock(fixture.group->endpoint); /* as the link does */
    up->packet(up->ctx, scripted.link.peers[2].cookie, &packet, text, strlen(text));
    packet.type = PACKET_LEAVE;
    up->packet(up->ctx, scripted.link.peers[2].cookie, &packet, NULL, 0);
    endpoint_unlock(fixture.group->endpoint);
    assert_int_equal(fixture.group->status, COLLRUN_OK);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    assert_int_equal(progress(), COLLRUN_OK);
    packet.type = PACKET_FAIL;
    endpoint_lock(fixture.group->endpoint);
    up->packet(up->ctx, scripted.link.peers[1].cookie, &packet, text, strlen(text));
    endpoint_unlock(fixture.group->endpoint);
    assert_int_equal(progress(), COLLRUN_ERR_MISMATCH);
    assert_string_equal(error, text);
    close_all(&fixture);
}

/* ---- ranks of one host ---- */

static struct fixture other; /* rank 1 */

/* Rank 1 sends by shared memory, and closes the group, while rank 0 looks at the network. */
static void send_here_and_leave(void)
{
    static char word[8] = "word";
    other.message = (struct net_message){.head = {.data = word, .len = sizeof word}};
    other.message.head.envelope.count = sizeof word;
    assert_int_equal(net_transport.send(other.handle, &other.message.head), COLLRUN_OK);
    for (int i = 0; i < 10 && other.ndone == 0; i++)
        assert_in_range(net_transport.progress(other.handle, 0), COLLRUN_OK, COLLRUN_AGAIN);
    assert_int_equal(other.ndone, 1);
    leave_at_once();
}

static void a_message_in_shared_memory_outlives_its_sender(void **state)
{
    static const uint32_t host_of[RANKS] = {0, 0, 1};
    (void)state;
    shares_memory = true;
    open_group_as(&fixture, 0, RANKS, host_of);
    open_group_as(&other, 1, RANKS, host_of);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    fixture.message.head.len = 8;
    DELIVER(send_here_and_leave);
    for (int i = 0; i < 10 && fixture.ndone == 0; i++)
        assert_in_range(progress(), COLLRUN_OK, COLLRUN_AGAIN);
    assert_int_equal(fixture.ndone, 1);
    assert_string_equal(data, "word");
    close_all(&other);
    assert_int_equal(net_transport.post(fixture.handle, message_with(1)), COLLRUN_OK);
    assert_int_equal(progress(), COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(error, "rank 1 has left the group");
    close_all(&fixture);
    close(memory_fd);
    shares_memory = false;
}

/* ---- long packets ---- */

static bool answered;

static void send_long_of_rank_2(void)
{
    struct link_landing *landing = NULL;
    const struct packet packet = {.context = fixture.group->context.id,
                                  .source = 2,
                                  .type = PACKET_LONG,
                                  .message = {.count = 100000}};
    answered = scripted.link.upcalls.long_packet(
        scripted.link.upcalls.ctx, scripted.link.peers[1].cookie, &packet, 100000, &landing);
    assert_null(landing);
}

/* Its connection would wait for an answer that goes to rank 2. */
static void a_long_packet_that_names_another_member_is_dropped(void **state)
{
    (void)state;
    open_group(&fixture, RANKS);
    answered = false;
    DELIVER(send_long_of_rank_2);
    assert_int_equal(progress(), COLLRUN_OK);
    assert_true(answered);
    assert_int_equal(scripted.ntaken, 0);
    close_all(&fixture);
}

/* ---- waiting beside another source ---- */

static bool about_to_sleep, has_news;

/* Another thread delivers to the context while this one looks. */
static bool look(struct endpoint_context *context)
{
    if (about_to_sleep) {
        endpoint_lock(context->endpoint);
        has_news = true;
        endpoint_notify(context);
        endpoint_unlock(context->endpoint);
    }
    return false;
}

static uint64_t before_sleep(struct endpoint_context *context)
{
    (void)context;
    about_to_sleep = true;
    return 1000000000u;
}

static void after_sleep(struct endpoint_context *context)
{
    (void)context;
}

static void connect_none(struct endpoint_context *context)
{
    (void)context;
}

static bool is_ready(const struct endpoint_context *context)
{
    (void)context;
    return has_news;
}

static void news_of_the_last_look_end_the_wait(void **state)
{
    static const struct endpoint_source source = {look, before_sleep, after_sleep};
    const struct link_config config = {.options = &services, .address = "127.0.0.1"};
    struct endpoint_context context = {.id = 2, .connect = connect_none, .source = &source};
    struct endpoint *e;
    (void)state;
    about_to_sleep = has_news = false;
    assert_int_equal(endpoint_open(&services, &config, &e), COLLRUN_OK);
    endpoint_lock(e);
    assert_int_equal(endpoint_context_add(e, &context), COLLRUN_OK);
    endpoint_wait(&context, is_ready, endpoint_now_ns(e) + 60000000000u);
    assert_true(has_news);
    assert_int_equal(scripted.nwaits, 0); /* the thread has not slept */
    endpoint_context_remove(&context);
    endpoint_unlock(e);
    endpoint_close(e);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_on_its_way_outlives_its_sender),
        cmocka_unit_test(a_message_that_is_not_sent_fails),
        cmocka_unit_test(a_broadcast_on_its_way_outlives_its_root),
        cmocka_unit_test(a_rank_that_leaves_counts_what_it_has_put),
        cmocka_unit_test(a_put_that_is_given_up_does_not_count),
        cmocka_unit_test(a_rank_leaves_once),
        cmocka_unit_test(a_rank_that_waits_asks_once),
        cmocka_unit_test(a_rank_that_has_closed_the_group_answers),
        cmocka_unit_test(no_data_leaves_for_a_receive_of_another_length),
        cmocka_unit_test(a_second_grant_is_refused),
        cmocka_unit_test(a_rank_speaks_for_itself_alone),
        cmocka_unit_test(a_message_in_shared_memory_outlives_its_sender),
        cmocka_unit_test(a_long_packet_that_names_another_member_is_dropped),
        cmocka_unit_test(news_of_the_last_look_end_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

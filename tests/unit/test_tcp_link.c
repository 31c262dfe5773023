/* SPDX-License-Identifier: Apache-2.0
 *
 * The link of the tcp backend (backends/net/link.h), two of them in one process: what has been read
 * behind a long packet before its place was known is not forgotten, and the service thread, which
 * is woken for it, sleeps again.
 */
#include "../../backends/tcp/state.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_LEN = 1000, WAIT_MS = 300 };

struct side {
    struct link *link;
    struct link_peer *peer; /* the other side */
    unsigned packets, longs;
};

static void on_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    (void)ctx, (void)level, (void)format;
}

static int on_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx, (void)format;
    return status;
}

static const char *on_option(void *ctx, const char *key)
{
    (void)ctx, (void)key;
    return NULL;
}

static const struct collrun_services services = {
    .size = sizeof services, .log = on_log, .fail = on_fail, .option = on_option};

static void on_packet(void *ctx, void *cookie, const void *header, const void *data, size_t len)
{
    struct side *s = ctx;
    (void)cookie, (void)header, (void)data, (void)len;
    s->packets++;
}

/* link_take says where it lands. */
static bool on_long_packet(void *ctx, void *cookie, const void *header, size_t len,
                           struct link_landing **landing)
{
    struct side *s = ctx;
    (void)cookie, (void)header, (void)len, (void)landing;
    s->longs++;
    return false;
}

static void on_lost(void *ctx, void *cookie, const struct link_loss *loss)
{
    (void)ctx, (void)cookie, (void)loss;
}

static unsigned landed;

static void on_landed(struct link_landing *landing)
{
    (void)landing;
    landed++;
}

static void on_sent(struct link_put *put)
{
    (void)put;
}

static void open_side(struct side *s, uint32_t rank)
{
    const struct link_config config = {
        .services = &services,
        .options = &services,
        .world_rank = rank,
        .address = "127.0.0.1",
        .interface = "lo",
        .upcalls = {.ctx = s, .packet = on_packet, .long_packet = on_long_packet, .lost = on_lost}};
    assert_int_equal(link_open(&config, &s->link), COLLRUN_OK);
}

static void open_peer(struct side *s, const struct side *other, uint32_t rank)
{
    char address[LINK_ADDRESS_MAX];
    const struct link_peer_config config = {.world_rank = rank,
                                            .address = address,
                                            .len = link_address(other->link, address),
                                            .name = "the other side",
                                            .cookie = s};
    assert_int_equal(link_peer_open(s->link, &config, &s->peer), COLLRUN_OK);
}

static void move(struct side sides[2])
{
    for (int i = 0; i < 2; i++) {
        link_accept(sides[i].link);
        link_progress(sides[i].link);
    }
}

/* How long the service thread sleeps in the link, ms; at most WAIT_MS. */
static uint64_t serve(struct side *s)
{
    struct pollfd fds[2] = {{.fd = s->link->serve_fd, .events = POLLIN},
                            {.fd = s->link->io.epoll_fd, .events = POLLIN}};
    const uint64_t start = link_now_ns();
    link_accept(s->link);
    poll(fds, 2, WAIT_MS); /* as link_serve, which sleeps for seconds */
    return (link_now_ns() - start) / 1000000;
}

static void what_is_read_ahead_is_handled_once(void **state)
{
    static char data[LONG_LEN], memory[LONG_LEN];
    const char header[LINK_HEADER_LEN] = {0};
    struct side sides[2] = {{0}, {0}}, *to = &sides[1];
    struct link_put put = {.data = data, .len = LONG_LEN, .sent = on_sent};
    struct link_landing landing = {.data = memory, .len = LONG_LEN, .landed = on_landed};
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        open_side(&sides[i], i);
    for (uint32_t i = 0; i < 2; i++)
        open_peer(&sides[i], &sides[1 - i], 1 - i);
    link_send(sides[0].peer, header, NULL, 0);
    for (int i = 0; i < 100000 && to->packets == 0; i++)
        move(sides);
    assert_int_equal(to->packets, 1);
    memset(data, 'x', LONG_LEN);
    put.peer = sides[0].peer;
    landing.peer = to->peer;
    while (link_send_long(sides[0].peer, header, &put) == LINK_BUSY)
        move(sides);
    link_send(sides[0].peer, header, NULL, 0); /* which is read together with it */
    for (int i = 0; i < 100000 && to->longs == 0; i++)
        move(sides);
    assert_int_equal(to->longs, 1);
    assert_true(to->peer->main.nahead > 0);
    link_prepare_wait(to->link); /* of the service thread */
    link_take(to->peer, &landing);
    assert_true(serve(to) < WAIT_MS);
    link_serve(to->link, true);
    for (int i = 0; i < 100000 && to->packets == 1; i++)
        move(sides);
    assert_int_equal(to->packets, 2);
    assert_int_equal(landed, 1);
    assert_memory_equal(memory, data, LONG_LEN);
    assert_true(serve(to) >= WAIT_MS);
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

/* Many ranks connect at the same moment, and none of them gets to its HELLO before all have. */
static void ranks_that_connect_together_are_all_answered(void **state)
{
    enum { N = LINK_UNKNOWN_MAX + 36 };
    struct side sides[2] = {{0}, {0}};
    struct link *link;
    int fds[N], left = N;
    (void)state;
    open_side(&sides[0], 0);
    link = sides[0].link;
    for (uint32_t i = 1; i <= N; i++)
        open_peer(&sides[0], &sides[0], i);
    for (int i = 0; i < N; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds[i], (void *)&link->self.socket, link->self.len), 0);
        link_accept(link);
    }
    for (uint32_t i = 0; i < N; i++) {
        struct handshake_hello hello = {.from = i + 1};
        handshake_hello_seal(&hello, &link->self);
        assert_int_equal(send(fds[i], &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    }
    for (int turn = 0; turn < 100000 && left > 0; turn++) {
        struct handshake_answer answer = {0};
        link_accept(link);
        if (recv(fds[left - 1], &answer, sizeof answer, MSG_DONTWAIT) < 0 && errno == EAGAIN)
            continue;
        assert_int_equal(answer.verdict, HANDSHAKE_YES);
        close(fds[--left]);
    }
    assert_int_equal(left, 0);
    link_close(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_ahead_is_handled_once),
        cmocka_unit_test(ranks_that_connect_together_are_all_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

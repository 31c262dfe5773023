/* SPDX-License-Identifier: Apache-2.0
 *
 * The link of the tcp backend (backends/net/link.h), two of them in one process: what has been read
 * behind a long packet before its place was known is not forgotten, and the service thread, which
 * is woken for it, sleeps again.
 */
#include "../../backends/tcp/listener.h"
#include "../../backends/tcp/peers.h"
#include "unit/emulated.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_LEN = 1000, WAIT_MS = 300 };

struct side {
    struct link *link;
    struct link_peer *peer; /* the other side */
    unsigned packets, longs;
    enum link_loss_reason loss;
    char loss_text[256];
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

/* The clock of the links, which a test moves. */
static _Atomic uint64_t skipped_ns;

static uint64_t on_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + skipped_ns;
}

static const struct collrun_services services = {.size = sizeof services,
                                                 .log = on_log,
                                                 .fail = on_fail,
                                                 .option = on_option,
                                                 .now_ns = on_now_ns};

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
    struct side *s = ctx;
    (void)cookie;
    s->loss = loss->reason;
    snprintf(s->loss_text, sizeof s->loss_text, "%s", loss->text);
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

/* Side 0 has something to send, and the kernel has connected it to side 1, which has not looked. */
static void begin_to_connect(struct side sides[2])
{
    const char header[LINK_HEADER_LEN] = {0};
    for (uint32_t i = 0; i < 2; i++)
        open_side(&sides[i], i);
    for (uint32_t i = 0; i < 2; i++)
        open_peer(&sides[i], &sides[1 - i], 1 - i);
    link_send(sides[0].peer, header, NULL, 0);
    assert_non_null(sides[0].link->dials);
    for (int i = 0; i < 100000 && !sides[0].link->dials->connected; i++)
        link_accept(sides[0].link);
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
    const uint64_t start = on_now_ns();
    link_accept(s->link);
    poll(fds, 2, WAIT_MS); /* as link_serve, which sleeps for seconds */
    return (on_now_ns() - start) / 1000000;
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

static bool without_memory;

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return without_memory ? NULL : __real_realloc(memory, size);
}

/* Connects to the link and says HELLO. The verdict; 0: the connection has been closed. */
static uint32_t say_hello(struct link *link, const struct handshake_hello *hello, int *fd)
{
    struct handshake_answer answer = {0};
    ssize_t n = -1;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*fd, (void *)&link->self.socket, link->self.len), 0);
    assert_int_equal(send(*fd, hello, sizeof *hello, MSG_NOSIGNAL), sizeof *hello);
    for (int turn = 0; turn < 10000 && n < 0; turn++) {
        link_accept(link);
        n = recv(*fd, &answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0)
            usleep(1000);
    }
    assert_true(n == 0 || n == (ssize_t)sizeof answer);
    return answer.verdict;
}

/* Who has recorded the HELLO of a rank sends it again, for each channel: while the connection is
 * open, and while it is being closed. */
static void a_recorded_hello_is_refused(void **state)
{
    struct side side = {0};
    struct handshake_hello hellos[2];
    int first[2], again;
    (void)state;
    open_side(&side, 0);
    struct link *link = side.link;
    open_peer(&side, &side, 1);
    for (uint32_t channel = 0; channel < 2; channel++) {
        hellos[channel] = (struct handshake_hello){.from = 1, .channel = channel};
        assert_true(handshake_hello_seal(&hellos[channel], &link->self));
        assert_int_equal(say_hello(link, &hellos[channel], &first[channel]), HANDSHAKE_YES);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(say_hello(link, &hellos[i % 2], &again), 0);
        close(again);
        if (i < 2)
            continue;
        close(first[i % 2]);
        link_progress(link);
    }
    link_close(link);
}

/* The HELLO of a rank whose peer is not open yet waits, and its copy is refused. */
static void a_recorded_hello_of_a_parked_rank_is_refused(void **state)
{
    struct side side = {0};
    struct handshake_answer answer = {0};
    int again, fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    open_side(&side, 0);
    struct link *link = side.link;
    struct handshake_hello hello = {.from = 1};
    assert_true(handshake_hello_seal(&hello, &link->self));
    assert_int_equal(connect(fd, (void *)&link->self.socket, link->self.len), 0);
    assert_int_equal(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    while (!link->inbounds || !link->inbounds->parked)
        link_accept(link);
    assert_int_equal(say_hello(link, &hello, &again), 0);
    open_peer(&side, &side, 1);
    assert_int_equal(recv(fd, &answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(answer.verdict, HANDSHAKE_YES);
    close(again);
    close(fd);
    link_close(link);
}

/* The listener would accept its copy, too. */
static void a_hello_that_cannot_be_remembered_is_refused(void **state)
{
    struct side side = {0};
    int fd;
    (void)state;
    open_side(&side, 0);
    open_peer(&side, &side, 1);
    struct handshake_hello hello = {.from = 1};
    assert_true(handshake_hello_seal(&hello, &side.link->self));
    without_memory = true;
    assert_int_equal(say_hello(side.link, &hello, &fd), 0);
    without_memory = false;
    close(fd);
    link_close(side.link);
}

/* Until it is acknowledged, for 10 s at most. */
static bool hello_is_acknowledged(const struct dial *dial)
{
    if (emulated())
        return poll(NULL, 0, 100) == 0;
    for (int i = 0; i < 10000; i++) {
        struct tcp_info info;
        socklen_t len = sizeof info;
        if (getsockopt(dial->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_unacked == 0)
            return true;
        poll(NULL, 0, 1);
    }
    return false;
}

static void time_is_over(struct link *link)
{
    skipped_ns += (LINK_CONNECT_MS + 1) * 1000000ull;
    link_accept(link);
}

/* Its host accepts connections, and acknowledges HELLO. */
static void a_stopped_process_is_waited_for(void **state)
{
    struct side sides[2] = {{0}, {0}};
    (void)state;
    if (emulated()) /* qemu knows no TCP_INFO */
        skip();
    begin_to_connect(sides);
    assert_true(hello_is_acknowledged(sides[0].link->dials));
    time_is_over(sides[0].link);
    assert_int_equal(sides[0].peer->state, PEER_CONNECTING);
    for (int i = 0; i < 100000 && sides[1].packets == 0; i++)
        move(sides);
    assert_int_equal(sides[1].packets, 1);
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

/* Both connect; the process of lower rank is stopped between its answer to the other one, which is
 * to wait for its connection, and that. */
static void a_process_that_stops_after_its_answer_is_waited_for(void **state)
{
    const char header[LINK_HEADER_LEN] = {0};
    struct side sides[2] = {{0}, {0}};
    struct link *lower, *higher;
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        open_side(&sides[i], i);
    for (uint32_t i = 0; i < 2; i++) {
        open_peer(&sides[i], &sides[1 - i], 1 - i);
        link_send(sides[i].peer, header, NULL, 0);
    }
    lower = sides[0].link;
    higher = sides[1].link;
    for (int i = 0; i < 100000 && !higher->dials->connected; i++)
        link_accept(higher);
    for (int i = 0; i < 100000 && !lower->inbounds; i++)
        listener_accept(lower);
    while (lower->inbounds)
        listener_advance(lower, lower->inbounds);
    while (higher->dials)
        dial_advance(higher, higher->dials);
    assert_int_equal(sides[1].peer->state, PEER_AWAITED);
    dial_check_deadlines(higher, sides[1].peer->deadline_ns + 1);
    assert_int_not_equal(sides[1].peer->state, PEER_LOST);
    for (int i = 0; i < 100000 && (sides[0].packets == 0 || sides[1].packets == 0); i++)
        move(sides);
    assert_int_equal(sides[0].packets, 1);
    assert_int_equal(sides[1].packets, 1);
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

/* The same of one that has given up its connection meanwhile. */
static void a_process_that_gives_up_after_its_answer_is_not_waited_for(void **state)
{
    const char header[LINK_HEADER_LEN] = {0};
    struct side sides[2] = {{0}, {0}};
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        open_side(&sides[i], i);
    for (uint32_t i = 0; i < 2; i++)
        open_peer(&sides[i], &sides[1 - i], 1 - i);
    link_send(sides[1].peer, header, NULL, 0);
    dial_cancel(sides[1].peer);
    sides[1].peer->state = PEER_AWAITED;
    peers_lose(sides[0].peer, LINK_LOSS_UNREACHABLE, "cannot connect");
    dial_check_deadlines(sides[1].link, 1);
    for (int i = 0; i < 100000 && !sides[1].loss_text[0]; i++)
        move(sides);
    assert_int_equal(sides[1].loss, LINK_LOSS_GONE);
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

/* A listener whose queue is full: its host answers no connection. */
static int open_full_listener(struct handshake_address *address, int clients[2])
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof any;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (void *)&any, len), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (void *)&any, &len), 0);
    for (int i = 0; i < 2; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(clients[i], (void *)&any, len);
    }
    *address = (struct handshake_address){.len = len};
    memcpy(&address->socket, &any, len);
    return fd;
}

static void a_host_that_does_not_answer_is_given_up(void **state)
{
    const char header[LINK_HEADER_LEN] = {0};
    struct handshake_address address;
    struct side side = {0};
    int clients[2];
    (void)state;
    const int fd = open_full_listener(&address, clients);
    const struct link_peer_config config = {
        .world_rank = 1, .address = &address, .len = sizeof address, .name = "the other side"};
    open_side(&side, 0);
    assert_int_equal(link_peer_open(side.link, &config, &side.peer), COLLRUN_OK);
    link_send(side.peer, header, NULL, 0);
    assert_non_null(side.link->dials);
    time_is_over(side.link);
    assert_int_equal(side.peer->state, PEER_LOST);
    assert_int_equal(side.peer->loss, LINK_LOSS_UNREACHABLE);
    link_close(side.link);
    close(clients[0]);
    close(clients[1]);
    close(fd);
}

/* It has received HELLO, which it does not read any more. */
static void a_process_that_ends_during_the_handshake_is_gone(void **state)
{
    const char header[LINK_HEADER_LEN] = {0};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof any;
    struct handshake_address address = {.len = len};
    struct side side = {0};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    assert_int_equal(bind(fd, (void *)&any, len), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (void *)&any, &len), 0);
    memcpy(&address.socket, &any, len);
    const struct link_peer_config config = {.world_rank = 1,
                                            .address = &address,
                                            .len = sizeof address,
                                            .name = "the other side",
                                            .cookie = &side};
    open_side(&side, 0);
    assert_int_equal(link_peer_open(side.link, &config, &side.peer), COLLRUN_OK);
    link_send(side.peer, header, NULL, 0);
    for (int i = 0; i < 100000 && !side.link->dials->connected; i++)
        link_accept(side.link);
    assert_true(hello_is_acknowledged(side.link->dials));
    close(fd);
    for (int i = 0; i < 100000 && !side.loss_text[0]; i++)
        link_accept(side.link);
    assert_int_equal(side.loss, LINK_LOSS_GONE);
    link_close(side.link);
}

/* The connection is opened while the other process closes its link. */
static void a_process_says_that_it_leaves_to_peers_that_come_late(void **state)
{
    struct side sides[2] = {{0}, {0}};
    (void)state;
    begin_to_connect(sides);
    assert_true(hello_is_acknowledged(sides[0].link->dials));
    link_close(sides[1].link);
    for (int i = 0; i < 100000 && !sides[0].loss_text[0]; i++) {
        link_accept(sides[0].link);
        link_progress(sides[0].link);
    }
    assert_int_equal(sides[0].loss, LINK_LOSS_LEFT);
    link_close(sides[0].link);
}

/* The other process has no descriptor left, and not this one. */
static void a_peer_without_descriptors_is_named(void **state)
{
    struct side sides[2] = {{0}, {0}};
    (void)state;
    begin_to_connect(sides);
    for (int i = 0; i < 100000 && !sides[1].link->inbounds; i++)
        listener_accept(sides[1].link);
    assert_non_null(sides[1].link->inbounds);
    sides[1].link->inbounds->refused = true; /* by means of the spare one */
    close(sides[1].link->spare_fd);
    for (int i = 0; i < 100000 && !sides[0].loss_text[0]; i++)
        move(sides);
    assert_int_equal(sides[0].loss, LINK_LOSS_UNREACHABLE);
    assert_non_null(strstr(sides[0].loss_text, "it answers: Too many open files"));
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

static int connect_with_a_byte(const struct link *link)
{
    struct pollfd listener = {.fd = link->listen_fd, .events = POLLIN};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const void *)&link->self.socket, link->self.len), 0);
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(poll(&listener, 1, 60000), 1);
    return fd;
}

static bool has_work(const struct link *link)
{
    struct epoll_event event;
    return epoll_wait(link->serve_fd, &event, 1, 0) > 0;
}

/* The spare descriptor is in use, or was taken by another thread: the listener would be reported
 * again and again. */
static void without_descriptors_the_service_thread_sleeps(void **state)
{
    struct side side = {0};
    struct rlimit limit, none;
    int fds[2], n = 0;
    (void)state;
    open_side(&side, 0);
    fds[n++] = connect_with_a_byte(side.link);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    close(side.link->spare_fd);
    side.link->spare_fd = -1;
    side.link->next_tick_ns = UINT64_MAX;
    link_accept(side.link);
    assert_null(side.link->inbounds);
    assert_false(has_work(side.link));
    assert_int_not_equal(atomic_load(&side.link->serve_ms), -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    side.link->next_tick_ns = 0;
    link_accept(side.link);
    assert_true(side.link->spare_fd >= 0);
    for (int i = 0; i < 100000 && !side.link->inbounds; i++)
        link_accept(side.link);
    assert_non_null(side.link->inbounds);
    fds[n++] = connect_with_a_byte(side.link);
    for (int i = 0; i < 100000 && !side.link->inbounds->next; i++)
        link_accept(side.link);
    assert_non_null(side.link->inbounds->next);
    while (n > 0)
        close(fds[--n]);
    link_close(side.link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_ahead_is_handled_once),
        cmocka_unit_test(ranks_that_connect_together_are_all_answered),
        cmocka_unit_test(a_recorded_hello_is_refused),
        cmocka_unit_test(a_recorded_hello_of_a_parked_rank_is_refused),
        cmocka_unit_test(a_hello_that_cannot_be_remembered_is_refused),
        cmocka_unit_test(a_stopped_process_is_waited_for),
        cmocka_unit_test(a_process_that_stops_after_its_answer_is_waited_for),
        cmocka_unit_test(a_process_that_gives_up_after_its_answer_is_not_waited_for),
        cmocka_unit_test(a_host_that_does_not_answer_is_given_up),
        cmocka_unit_test(a_process_that_ends_during_the_handshake_is_gone),
        cmocka_unit_test(a_process_says_that_it_leaves_to_peers_that_come_late),
        cmocka_unit_test(a_peer_without_descriptors_is_named),
        cmocka_unit_test(without_descriptors_the_service_thread_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

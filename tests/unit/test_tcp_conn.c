/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of the tcp backend (backends/tcp/conn.h): what one connection writes, another one reads,
 * however the stream is cut; and the data of a fragment lies where the kernel copies it fast.
 */
#include "../../backends/tcp/conn.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096, ROOM = 3 * PAGE, STREAM_ROOM = 1 << 20, PACKETS_MAX = 64 };

struct fixture {
    struct conn_io sender_io, io;
    struct conn_puts puts;
    struct conn sender, receiver;
    int out; /* the other end of the sender's socket */
    char stream[STREAM_ROOM];
    size_t len;
    char *from, *to;                       /* ROOM bytes, page-aligned */
    size_t packets[PACKETS_MAX], npackets; /* lengths of the data that arrived */
    int landed, sent;
    struct link_landing long_landing; /* for the next long packet; without data it is dropped */
    bool takes_later;                 /* ... by conn_take */
};

static struct fixture *the_fixture; /* of the upcalls of landings and puts */

static void count_landed(struct link_landing *landing)
{
    (void)landing;
    the_fixture->landed++;
}

static void count_sent(struct link_put *put)
{
    (void)put;
    the_fixture->sent++;
}

static void note_packet(void *ctx, void *cookie, const void *header, const void *data, size_t len)
{
    struct fixture *f = ctx;
    (void)cookie;
    assert_int_equal(((const char *)header)[LINK_HEADER_LEN - 1], 'h');
    for (size_t i = 0; i < len; i++)
        assert_int_equal(((const char *)data)[i], 'd');
    assert_true(f->npackets < PACKETS_MAX);
    f->packets[f->npackets++] = len;
}

static bool place_long_packet(void *ctx, void *cookie, const void *header, size_t len,
                              struct link_landing **landing)
{
    struct fixture *f = ctx;
    note_packet(ctx, cookie, header, NULL, 0);
    assert_int_equal(len, f->long_landing.len);
    *landing = f->long_landing.data ? &f->long_landing : NULL;
    return !f->takes_later;
}

static struct link_peer *peer(const struct fixture *f)
{
    return (struct link_peer *)(void *)(uintptr_t)f; /* only compared */
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int ends[2];
    assert_non_null(f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    f->io = (struct conn_io){
        .epoll_fd = -1,
        .buffer = aligned_alloc(CONN_ALIGN, CONN_BUFFER_LEN),
        .upcalls = {.ctx = f, .packet = note_packet, .long_packet = place_long_packet}};
    f->sender = f->receiver =
        (struct conn){.io = &f->io, .peer = peer(f), .puts = &f->puts, .fd = -1};
    f->sender_io.epoll_fd = -1;
    f->sender.io = &f->sender_io; /* which has no landings */
    assert_true(conn_begin(&f->sender, ends[0]));
    f->out = ends[1];
    f->from = aligned_alloc(PAGE, ROOM);
    f->to = aligned_alloc(PAGE, ROOM);
    assert_true(f->from && f->to && f->io.buffer);
    the_fixture = f;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    conn_fini(&f->sender);
    conn_fini(&f->receiver);
    close(f->out);
    landing_table_fini(&f->io.landings);
    free(f->io.buffer);
    free(f->from);
    free(f->to);
    free(f);
    return 0;
}

/* What the sender has written since the last call. */
static void take_stream(struct fixture *f)
{
    f->len = 0;
    for (ssize_t n; (n = recv(f->out, f->stream + f->len, STREAM_ROOM - f->len, 0)) > 0;)
        f->len += (size_t)n;
}

static void send_packet(struct fixture *f, size_t len)
{
    char header[LINK_HEADER_LEN];
    char *data = malloc(len + 1);
    assert_non_null(data);
    memset(header, 'h', sizeof header);
    memset(data, 'd', len);
    conn_send(&f->sender, header, data, len);
    free(data);
}

/* In pieces of random lengths up to this one. Long packets are taken between them. */
static void feed(struct fixture *f, size_t piece)
{
    for (size_t at = 0, n; at < f->len; at += n) {
        n = (size_t)rand() % piece + 1;
        n = n < f->len - at ? n : f->len - at;
        conn_feed(&f->receiver, f->stream + at, n);
        while (f->receiver.suspended) {
            const size_t npackets = f->npackets;
            assert_int_equal(conn_pull(&f->receiver), 0);
            conn_take(&f->receiver, f->long_landing.data ? &f->long_landing : NULL);
            assert_int_equal(f->npackets, npackets);
            conn_pull(&f->receiver);
        }
        assert_false(f->receiver.ended);
    }
}

static void packets_survive_any_cut(void **state)
{
    static const size_t lens[] = {0, 1, 55, 56, 63, 64, 65, 1023, 1024, 1025, 9999};
    enum { LENS = sizeof lens / sizeof *lens };
    static const size_t pieces[] = {1, 7, 64, 5000};
    struct fixture *f = *state;
    srand(7);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        f->npackets = 0;
        for (size_t i = 0; i < LENS; i++)
            send_packet(f, lens[i]);
        take_stream(f);
        assert_int_equal(f->len % CONN_ALIGN, 0);
        feed(f, pieces[p]);
        assert_int_equal(f->npackets, LENS);
        assert_memory_equal(f->packets, lens, sizeof lens);
    }
    conn_send_bye(&f->sender);
    take_stream(f);
    assert_int_equal(f->len % CONN_ALIGN, 0);
    feed(f, 3);
    assert_true(f->receiver.bye);
}

/* `rep movsb` is slow when its destination is 1 to 31 bytes behind its source, modulo the page. */
static bool is_slow(const char *to, size_t from)
{
    const size_t behind = ((uintptr_t)to - from) % PAGE;
    return behind > 0 && behind < 32;
}

/* The data of the frame that f->stream begins with, which is behind `at` bytes. The stream lies in
 * pages of the kernel, from the beginning of one. */
static void check_place(const struct fixture *f, size_t at, size_t from, size_t to)
{
    struct conn_data head;
    assert_int_equal(f->len % CONN_ALIGN, 0);
    memcpy(&head, f->stream, sizeof head - sizeof head.rest);
    for (size_t page = 0; page < PAGE; page += CONN_ALIGN) {
        const size_t in_kernel = page + at + head.lead;
        assert_false(is_slow((char *)in_kernel, (uintptr_t)(f->from + from)));
        assert_false(is_slow(f->to + to, in_kernel));
    }
}

/* A put of `len` bytes between these addresses, behind a packet. */
static void put(struct fixture *f, size_t from, size_t to, size_t len)
{
    struct link_landing landing = {
        .peer = peer(f), .data = f->to + to, .len = len, .landed = count_landed};
    assert_true(landing_add(&f->io.landings, &landing));
    struct link_put put = {.peer = peer(f),
                           .token = landing.token,
                           .data = f->from + from,
                           .len = len,
                           .sent = count_sent};
    for (size_t i = 0; i < ROOM; i++)
        f->from[i] = (char)rand();
    memset(f->to, 0, ROOM);
    f->landed = f->sent = 0;
    f->npackets = 0;
    send_packet(f, (size_t)rand() % 200);
    take_stream(f);
    const size_t at = f->len;
    feed(f, 100);
    conn_puts_add(&f->puts, &put);
    assert_true(conn_push(&f->sender));
    take_stream(f);
    check_place(f, at, from, to);
    feed(f, 1 + (size_t)rand() % 300);
    assert_int_equal(f->sent, 1);
    assert_int_equal(f->landed, 1);
    assert_memory_equal(f->to + to, f->from + from, len);
    for (size_t i = 0; i < ROOM; i++)
        assert_true(f->to[i] == 0 || (i >= to && i < to + len));
}

static void data_lies_where_copies_are_fast(void **state)
{
    srand(7);
    for (size_t from = 0; from < CONN_ALIGN; from += 3)
        for (size_t to = 0; to < CONN_ALIGN; to++)
            put(*state, from, to, 1 + (size_t)rand() % 5000);
    put(*state, 16, 16, 4096); /* as malloc aligns */
}

/* Between packets, whose order stays. */
static void send_long(struct fixture *f, size_t from, size_t to, size_t len, bool drops)
{
    char header[LINK_HEADER_LEN];
    memset(header, 'h', sizeof header);
    f->long_landing = (struct link_landing){
        .peer = peer(f), .data = drops ? NULL : f->to + to, .len = len, .landed = count_landed};
    struct link_put put = {.peer = peer(f),
                           .alignment = (uint32_t)to % LINK_MEMORY_ALIGN,
                           .data = f->from + from,
                           .len = len};
    for (size_t i = 0; i < ROOM; i++)
        f->from[i] = (char)rand();
    memset(f->to, 0, ROOM);
    f->landed = 0;
    f->npackets = 0;
    send_packet(f, 1);
    take_stream(f);
    const size_t at = f->len;
    feed(f, 100);
    assert_int_equal(conn_send_long(&f->sender, header, &put), LINK_SENT);
    send_packet(f, 2);
    send_packet(f, 3);
    take_stream(f);
    check_place(f, at, from, to);
    feed(f, 1 + (size_t)rand() % 6000);
    assert_memory_equal(f->packets, ((const size_t[]){1, 0, 2, 3}), 4 * sizeof(size_t));
    assert_int_equal(f->npackets, 4);
    assert_int_equal(f->landed, drops ? 0 : 1);
    if (!drops)
        assert_memory_equal(f->to + to, f->from + from, len);
    for (size_t i = 0; i < ROOM; i++)
        assert_true(f->to[i] == 0 || (!drops && i >= to && i < to + len));
}

static void a_long_packet_lands_where_its_receiver_says(void **state)
{
    struct fixture *f = *state;
    srand(7);
    for (size_t from = 0; from < CONN_ALIGN; from += 3)
        for (size_t to = 0; to < CONN_ALIGN; to++) {
            f->takes_later = rand() & 1;
            send_long(f, from, to, 1 + (size_t)rand() % 5000, rand() % 4 == 0);
        }
}

/* A long packet there would stay unanswered. */
static void further_sockets_carry_fragments_alone(void **state)
{
    struct fixture *f = *state;
    const char header[LINK_HEADER_LEN] = {0};
    struct link_put put = {.peer = peer(f), .data = f->from, .len = 100};
    f->receiver.only_data = true;
    for (int is_long = 0; is_long < 2; is_long++) {
        f->receiver.ended = false;
        if (is_long)
            assert_int_equal(conn_send_long(&f->sender, header, &put), LINK_SENT);
        else
            send_packet(f, 3);
        take_stream(f);
        conn_feed(&f->receiver, f->stream, f->len);
        assert_true(f->receiver.ended && !f->receiver.suspended);
        assert_int_equal(f->receiver.error, EPROTO);
        assert_int_equal(f->npackets, 0);
    }
}

/* It is not copied, so it does not wait behind others. */
static void a_long_packet_waits_for_nothing(void **state)
{
    struct fixture *f = *state;
    const char header[LINK_HEADER_LEN] = {0};
    struct link_put put = {.peer = peer(f), .len = STREAM_ROOM / 2, .sent = count_sent};
    char *data = calloc(1, put.len);
    assert_non_null(data);
    put.data = data;
    assert_int_equal(conn_send_long(&f->sender, header, &put), LINK_BEGUN);
    assert_ptr_equal(f->sender.put, &put);
    assert_int_equal(conn_send_long(&f->sender, header, &put), LINK_BUSY);
    send_packet(f, 3);
    conn_forget_put(&f->sender, &put);
    assert_int_equal(conn_send_long(&f->sender, header, &put), LINK_BUSY);
    assert_int_equal(f->sent, 0);
    free(data);
}

/* The socket has taken a part of the fragment; the receiver has no landing for it any more. */
static void a_put_that_is_taken_back_ends_its_frame(void **state)
{
    struct fixture *f = *state;
    struct link_put put = {
        .peer = peer(f), .token = 12345, .len = STREAM_ROOM / 2, .sent = count_sent};
    char *data = calloc(1, put.len);
    assert_non_null(data);
    put.data = data;
    conn_puts_add(&f->puts, &put);
    assert_true(conn_push(&f->sender));
    assert_ptr_equal(f->sender.put, &put);
    conn_forget_put(&f->sender, &put);
    memset(data, 'x', put.len);
    send_packet(f, 3);
    while (conn_is_pending(&f->sender)) {
        take_stream(f);
        assert_null(memchr(f->stream, 'x', f->len));
        feed(f, 5000);
        conn_push(&f->sender);
    }
    take_stream(f);
    feed(f, 5000);
    assert_int_equal(f->npackets, 1);
    free(data);
}

/* While packets are sent, which overtake what has not begun. */
static void put_long(struct fixture *f, char *from, char *to, size_t len)
{
    struct link_landing landing = {.peer = peer(f), .data = to, .len = len, .landed = count_landed};
    assert_true(landing_add(&f->io.landings, &landing));
    struct link_put put = {
        .peer = peer(f), .token = landing.token, .data = from, .len = len, .sent = count_sent};
    size_t taken = 0, packets = 0;
    memset(to, 0, len);
    f->landed = f->sent = 0;
    f->npackets = 0;
    conn_puts_add(&f->puts, &put);
    while (conn_is_pending(&f->sender)) {
        conn_push(&f->sender);
        take_stream(f);
        taken += f->len;
        assert_true(put.moved <= taken + CONN_FRAGMENT_LEN);
        if (packets < 5) {
            send_packet(f, 1);
            packets++;
        }
        feed(f, 100000);
    }
    take_stream(f);
    feed(f, 100000);
    assert_int_equal(f->sent, 1);
    assert_int_equal(f->landed, 1);
    assert_int_equal(f->npackets, packets);
    assert_memory_equal(to, from, len);
}

/* Fragments leave together if the kernel does not pace them and nothing is to be received. Either
 * way, none has begun while another one is on its way. */
static void a_long_put_begins_no_fragment_early(void **state)
{
    enum { LEN = 9 * CONN_FRAGMENT_LEN + 77 };
    struct fixture *f = *state;
    char *from = malloc(LEN), *to = malloc(LEN);
    assert_true(from && to);
    for (size_t i = 0; i < LEN; i++)
        from[i] = (char)rand();
    for (uint32_t way = 0; way < 4; way++) {
        f->sender_io.landings.nused = way & 1; /* something is to be received */
        f->sender.unpaced = way & 2;
        put_long(f, from, to, 2 * CONN_FRAGMENT_LEN + 77);
        put_long(f, from, to, LEN);
    }
    f->sender_io.landings.nused = 0;
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packets_survive_any_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(data_lies_where_copies_are_fast, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_put_begins_no_fragment_early, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_packet_lands_where_its_receiver_says, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(further_sockets_carry_fragments_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_packet_waits_for_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_put_that_is_taken_back_ends_its_frame, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

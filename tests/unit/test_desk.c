/* SPDX-License-Identifier: Apache-2.0
 *
 * The desk of the nccl backend, spoken to over its sockets: what it matches and in which order,
 * what it tells whom of promises, who is let in, and what leaves and garbage do to the others. The
 * oracle of the random test keeps plain lists and searches them from the front, as the rule reads.
 */
#include "../../backends/nccl/group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SECRET = 4711, RANKS = 4, PORTS = 2, PLACES = RANKS * PORTS, PATIENCE_MS = 5000 };

struct office { /* a desk, and a connection of each sort from each rank */
    struct desk *desk;
    struct sockaddr_in at;
    int mail[RANKS], tally[RANKS];
};

static int dial(const struct office *o)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    assert_int_equal(connect(fd, (const struct sockaddr *)&o->at, sizeof(o->at)), 0);
    return fd;
}

static void put(int fd, const void *words, size_t len)
{
    assert_int_equal(send(fd, words, len, MSG_NOSIGNAL), len);
}

static int greet(const struct office *o, uint64_t secret, uint32_t rank, uint32_t sort)
{
    const struct desk_hello hello = {.secret = secret, .rank = rank, .sort = sort};
    const int fd = dial(o);
    put(fd, &hello, sizeof(hello));
    return fd;
}

static void office_open(struct office *o, bool all)
{
    socklen_t len = sizeof(o->at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *o = (struct office){.at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    assert_int_equal(bind(fd, (struct sockaddr *)&o->at, sizeof(o->at)), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&o->at, &len), 0);
    o->desk = desk_new(fd, SECRET, RANKS, PORTS);
    assert_non_null(o->desk);
    for (uint32_t i = 0; i < RANKS; i++) {
        o->mail[i] = all ? greet(o, SECRET, i, DESK_MAIL) : -1;
        o->tally[i] = all ? greet(o, SECRET, i, DESK_TALLY) : -1;
    }
}

/* Ends by itself once all tallies are gone. */
static void office_close(struct office *o)
{
    for (int i = 0; i < RANKS; i++) {
        close(o->mail[i]);
        close(o->tally[i]);
    }
    desk_free(o->desk, false);
}

/* So many bytes, or as many as come before the other side hangs up. */
static size_t get(int fd, void *words, size_t len)
{
    size_t got = 0;
    while (got < len) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        const ssize_t n = recv(fd, (char *)words + got, len - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static bool hung_up(int fd)
{
    char byte;
    return get(fd, &byte, 1) == 0;
}

static struct desk_match next_match(int fd)
{
    struct desk_match m;
    assert_int_equal(get(fd, &m, sizeof(m)), sizeof(m));
    return m;
}

/* ---- posts ---- */

static struct desk_post post_of(uint32_t kind, uint32_t place, uint32_t peer, uint32_t tag,
                                uint32_t id)
{
    return (struct desk_post){.kind = kind,
                              .place = place,
                              .peer = peer,
                              .tag = tag,
                              .id = id,
                              .count = 1000 + id,
                              .dtype = id % 7};
}

static void post(struct office *o, uint32_t kind, uint32_t place, uint32_t peer, uint32_t tag,
                 uint32_t id)
{
    const struct desk_post p = post_of(kind, place, peer, tag, id);
    put(o->mail[place / PORTS], &p, sizeof(p));
}

/* What has been put before has been heard: the answer to a pair of its own comes after it. Takes
 * everything that comes on that connection until then. */
static void sync_with(struct office *o, uint32_t rank)
{
    enum { TAG = 0xffffff };
    struct desk_match m;
    post(o, COLLRUN_RECV, rank * PORTS, rank * PORTS + 1, TAG, 7777);
    post(o, COLLRUN_SEND, rank * PORTS + 1, rank * PORTS, TAG, 7778);
    for (int ends = 0; ends < 2;) {
        m = next_match(o->mail[rank]);
        ends += m.id == 7777 || m.id == 7778;
    }
}

static void expect(struct office *o, uint32_t place, uint32_t id, uint32_t other_place,
                   uint32_t other_id)
{
    const struct desk_match m = next_match(o->mail[place / PORTS]);
    assert_int_equal(m.id, id);
    assert_int_equal(m.place, other_place);
    assert_int_equal(m.count, 1000 + other_id); /* a MISMATCH is seen at both ends */
    assert_int_equal(m.dtype, other_id % 7);
}

static void test_pairs_meet_in_order(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    for (uint32_t i = 0; i < 10; i++)
        post(&o, COLLRUN_SEND, 1, 6, 0, i);
    sync_with(&o, 0);
    for (uint32_t i = 0; i < 10; i++) {
        post(&o, COLLRUN_RECV, 6, 1, 0, 100 + i);
        expect(&o, 6, 100 + i, 1, i);
        expect(&o, 1, i, 6, 100 + i);
    }
    office_close(&o);
}

static void test_tags_pass_each_other(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    post(&o, COLLRUN_SEND, 0, 2, 5, 1);
    post(&o, COLLRUN_SEND, 0, 2, 6, 2);
    post(&o, COLLRUN_SEND, 0, 2, 5, 3);
    sync_with(&o, 0);
    post(&o, COLLRUN_RECV, 2, 0, 6, 11);
    expect(&o, 2, 11, 0, 2);
    post(&o, COLLRUN_RECV, 2, 0, 5, 12);
    expect(&o, 2, 12, 0, 1);
    post(&o, COLLRUN_RECV, 2, 0, 5, 13);
    expect(&o, 2, 13, 0, 3);
    office_close(&o);
}

static void test_anyone_is_the_first_with_the_tag(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    post(&o, COLLRUN_SEND, 4, 0, 1, 1);
    sync_with(&o, 2);
    post(&o, COLLRUN_SEND, 6, 0, 2, 2);
    sync_with(&o, 3);
    post(&o, COLLRUN_SEND, 2, 0, 2, 3);
    sync_with(&o, 1);
    post(&o, COLLRUN_RECV_ANY, 0, DESK_ANYONE, 2, 10);
    expect(&o, 0, 10, 6, 2);
    post(&o, COLLRUN_RECV, 0, 4, 1, 11);
    expect(&o, 0, 11, 4, 1);
    post(&o, COLLRUN_RECV_ANY, 0, DESK_ANYONE, 2, 12);
    expect(&o, 0, 12, 2, 3);
    /* The other way round: the receive waits, of another one's it takes nothing. */
    post(&o, COLLRUN_RECV_ANY, 0, DESK_ANYONE, 3, 13);
    sync_with(&o, 0);
    post(&o, COLLRUN_SEND, 3, 1, 3, 4); /* to the rank's other GPU */
    post(&o, COLLRUN_SEND, 3, 0, 3, 5);
    expect(&o, 0, 13, 3, 5);
    office_close(&o);
}

/* What is found in one round ends with one mark at each process. */
static void test_each_epoch_is_closed(void **state)
{
    enum { N = 50 };
    struct office o;
    struct desk_post all[N];
    (void)state;
    office_open(&o, true);
    for (uint32_t i = 0; i < N; i++)
        post(&o, COLLRUN_SEND, 0, 2, 0, i);
    sync_with(&o, 0);
    for (uint32_t i = 0; i < N; i++)
        all[i] = post_of(COLLRUN_RECV, 2, 0, 0, i);
    put(o.mail[1], all, sizeof(all)); /* one segment: one round */
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct desk_match m = {0};
        uint32_t marks = 0;
        for (uint32_t i = 0; i < N; i++) {
            m = next_match(o.mail[rank]);
            assert_int_equal(m.id, i);
            marks += m.ends_epoch;
        }
        assert_int_equal(m.ends_epoch, 1);
        assert_in_range(marks, 1, 3);
    }
    office_close(&o);
}

/* ---- the oracle ---- */

struct model {
    struct desk_post waiting[2000];
    int n;
};

static bool meets(const struct desk_post *a, const struct desk_post *b)
{
    const struct desk_post *send = a->kind == COLLRUN_SEND ? a : b, *recv = send == a ? b : a;
    return send->kind == COLLRUN_SEND && recv->kind != COLLRUN_SEND && send->peer == recv->place &&
           send->tag == recv->tag && (recv->peer == DESK_ANYONE || recv->peer == send->place);
}

/* The id of the one that it meets; -1: it has to wait. */
static int model_post(struct model *m, const struct desk_post *p)
{
    for (int i = 0; i < m->n; i++) {
        if (!meets(&m->waiting[i], p))
            continue;
        const int id = (int)m->waiting[i].id;
        memmove(&m->waiting[i], &m->waiting[i + 1], (size_t)(--m->n - i) * sizeof(*p));
        return id;
    }
    m->waiting[m->n++] = *p;
    return -1;
}

static struct desk_post random_post(uint32_t id)
{
    const uint32_t kind = (uint32_t)COLLRUN_SEND + (uint32_t)rand() % 3;
    const uint32_t place = (uint32_t)rand() % PLACES, peer = (uint32_t)rand() % PLACES;
    return post_of(kind, place, kind == COLLRUN_RECV_ANY ? DESK_ANYONE : peer, (uint32_t)rand() % 3,
                   id);
}

static void test_random_posts_against_the_rule(void **state)
{
    struct office o;
    struct model *m = calloc(1, sizeof(*m));
    struct desk_post *posts = calloc(2000, sizeof(*posts));
    (void)state;
    srand(1);
    office_open(&o, true);
    for (uint32_t id = 0; id < 2000; id++) {
        const struct desk_post *p = &posts[id];
        posts[id] = random_post(id);
        const int other = model_post(m, p);
        post(&o, p->kind, p->place, p->peer, p->tag, id);
        if (other < 0) {
            sync_with(&o, p->place / PORTS); /* nothing has come, or it would be seen below */
            continue;
        }
        expect(&o, posts[other].place, (uint32_t)other, p->place, id);
        expect(&o, p->place, id, posts[other].place, (uint32_t)other);
    }
    assert_in_range(m->n, 1, 1900);
    office_close(&o);
    free(posts);
    free(m);
}

/* ---- promises ---- */

static void promise(struct office *o, uint32_t rank, uint64_t count)
{
    put(o->tally[rank], &count, sizeof(count));
}

static uint64_t next_ready(struct office *o, uint32_t rank)
{
    uint64_t count = 0;
    assert_int_equal(get(o->tally[rank], &count, sizeof(count)), sizeof(count));
    return count;
}

static void test_what_all_have_promised(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    promise(&o, 0, 5);
    promise(&o, 1, 9);
    promise(&o, 3, 7);
    promise(&o, 2, 3); /* the last one: nothing was said before */
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&o, i), 3);
    promise(&o, 2, 6);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&o, i), 5);
    close(o.tally[1]); /* who leaves has kept its promises */
    o.tally[1] = -1;
    promise(&o, 0, 100);
    assert_int_equal(next_ready(&o, 0), 6);
    promise(&o, 0, 99); /* takes one back */
    assert_true(hung_up(o.tally[0]));
    office_close(&o);
}

/* ---- who is let in, and who leaves ---- */

static void test_strangers_are_turned_away(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, false);
    const int wrong[] = {greet(&o, SECRET + 1, 0, DESK_MAIL), greet(&o, SECRET, RANKS, DESK_MAIL),
                         greet(&o, SECRET, 0, DESK_SORTS)};
    for (int i = 0; i < 3; i++) {
        assert_true(hung_up(wrong[i]));
        close(wrong[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        o.mail[i] = greet(&o, SECRET, i, DESK_MAIL);
        o.tally[i] = greet(&o, SECRET, i, DESK_TALLY);
    }
    sync_with(&o, 1);
    office_close(&o);
}

static void test_a_second_one_of_a_rank_is_turned_away(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, false);
    o.mail[2] = greet(&o, SECRET, 2, DESK_MAIL);
    sync_with(&o, 2);
    const int twin = greet(&o, SECRET, 2, DESK_MAIL);
    assert_true(hung_up(twin));
    close(twin);
    sync_with(&o, 2);
    for (uint32_t i = 0; i < RANKS; i++)
        o.tally[i] = greet(&o, SECRET, i, DESK_TALLY);
    office_close(&o);
}

/* Many that say nothing fill the room; the ranks, who come later, get in all the same. */
static void test_silent_strangers_make_room(void **state)
{
    enum { MANY = 200 };
    struct office o;
    int silent[MANY];
    (void)state;
    office_open(&o, false);
    for (int i = 0; i < MANY; i++)
        silent[i] = dial(&o);
    for (uint32_t i = 0; i < RANKS; i++) {
        o.mail[i] = greet(&o, SECRET, i, DESK_MAIL);
        sync_with(&o, i);
        o.tally[i] = greet(&o, SECRET, i, DESK_TALLY);
        promise(&o, i, 1);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&o, i), 1);
    assert_true(hung_up(silent[0]));
    for (int i = 0; i < MANY; i++)
        close(silent[i]);
    office_close(&o);
}

static void test_garbage_ends_its_sender_alone(void **state)
{
    struct office o;
    const struct desk_post bad[] = {post_of(COLLRUN_SEND, 2, 0, 0, 1),      /* as another rank */
                                    post_of(COLLRUN_SEND, PLACES, 0, 0, 1), /* from nowhere */
                                    post_of(COLLRUN_SEND, 0, PLACES, 0, 1), /* to nowhere */
                                    post_of(COLLRUN_SEND, 0, DESK_ANYONE, 0, 1), /* to anyone */
                                    post_of(COLLRUN_RECV, 0, PLACES, 0, 1),
                                    post_of(COLLRUN_RECV_ANY + 1, 0, 1, 0, 1),
                                    post_of(COLLRUN_BARRIER, 0, 1, 0, 1)};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        office_open(&o, true);
        sync_with(&o, 1);
        put(o.mail[0], &bad[i], sizeof(bad[i]));
        assert_true(hung_up(o.mail[0]));
        sync_with(&o, 1);
        office_close(&o);
    }
}

/* Byte by byte, whatever pieces the network makes. */
static void test_pieces_of_posts(void **state)
{
    struct office o;
    const struct desk_post p = post_of(COLLRUN_RECV, 2, 0, 0, 9);
    (void)state;
    office_open(&o, true);
    post(&o, COLLRUN_SEND, 0, 2, 0, 8);
    for (size_t i = 0; i < sizeof(p); i++) {
        put(o.mail[1], (const char *)&p + i, 1);
        if (i % 8 == 0)
            sync_with(&o, 2);
    }
    expect(&o, 2, 9, 0, 8);
    office_close(&o);
}

static void test_who_leaves_harms_nobody(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    post(&o, COLLRUN_SEND, 0, 6, 0, 1);
    sync_with(&o, 0);
    shutdown(o.mail[3], SHUT_RDWR);
    shutdown(o.mail[0], SHUT_WR);
    assert_true(hung_up(o.mail[0]));
    post(&o, COLLRUN_SEND, 2, 6, 0, 2); /* to one that is gone: it waits */
    sync_with(&o, 1);
    post(&o, COLLRUN_SEND, 2, 4, 0, 3);
    post(&o, COLLRUN_RECV, 4, 2, 0, 4);
    expect(&o, 4, 4, 2, 3);
    expect(&o, 2, 3, 4, 4);
    office_close(&o);
}

/* At once, with all of them there, unread words on their way and posts that nobody met. */
static void test_stops_at_once(void **state)
{
    struct office o;
    (void)state;
    office_open(&o, true);
    for (uint32_t i = 0; i < 500; i++)
        post(&o, i % 2 ? COLLRUN_SEND : COLLRUN_RECV, 0, 2, i, i);
    sync_with(&o, 1);
    desk_free(o.desk, true);
    for (int i = 0; i < RANKS; i++) {
        assert_true(hung_up(o.tally[i]));
        close(o.mail[i]);
        close(o.tally[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_meet_in_order),
        cmocka_unit_test(test_tags_pass_each_other),
        cmocka_unit_test(test_anyone_is_the_first_with_the_tag),
        cmocka_unit_test(test_each_epoch_is_closed),
        cmocka_unit_test(test_random_posts_against_the_rule),
        cmocka_unit_test(test_what_all_have_promised),
        cmocka_unit_test(test_strangers_are_turned_away),
        cmocka_unit_test(test_a_second_one_of_a_rank_is_turned_away),
        cmocka_unit_test(test_silent_strangers_make_room),
        cmocka_unit_test(test_garbage_ends_its_sender_alone),
        cmocka_unit_test(test_pieces_of_posts),
        cmocka_unit_test(test_who_leaves_harms_nobody),
        cmocka_unit_test(test_stops_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

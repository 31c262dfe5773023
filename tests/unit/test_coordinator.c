/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator of the nccl backend, driven over its sockets:
 *   - what it matches, and in which order;
 *   - what it reports to whom about commitments, and about the cuts of batches;
 *   - which connections it accepts, and that closed ones and garbage do not disturb others.
 * The model of the random test keeps one list and searches it from the front, as the rule reads.
 */
#include "../../backends/nccl/coord/server.h"
#include "core/match.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SECRET = 4711, RANKS = 4, DEVS = 2, SIZE = RANKS * DEVS, LIMIT_MS = 5000 };

static int start_thread(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    (void)ctx;
    return pthread_create(thread, NULL, run, arg);
}

struct harness { /* a coordinator, and a connection from each rank */
    struct collrun_services services;
    struct coord_server *server;
    struct sockaddr_in addr;
    int fd[RANKS];
};

static int dial(const struct harness *h)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    assert_int_equal(connect(fd, (const struct sockaddr *)&h->addr, sizeof h->addr), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
}

static int dial_as(const struct harness *h, uint64_t secret, uint32_t rank)
{
    struct coord_frame hello = {.type = COORD_HELLO, .hello = {.secret = secret, .rank = rank}};
    int fd = dial(h);
    put(fd, &hello, sizeof hello);
    return fd;
}

static void open_harness(struct harness *h, bool connect_all)
{
    socklen_t len = sizeof h->addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *h = (struct harness){
        .services = {.size = sizeof h->services, .thread_start = start_thread, .match = &match_ops},
        .addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    assert_int_equal(bind(fd, (struct sockaddr *)&h->addr, sizeof h->addr), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&h->addr, &len), 0);
    h->server = coord_server_new(&h->services, fd, SECRET, RANKS, DEVS);
    assert_non_null(h->server);
    for (uint32_t i = 0; i < RANKS; i++)
        h->fd[i] = connect_all ? dial_as(h, SECRET, i) : -1;
}

/* The coordinator ends once all ranks have connected and disconnected. */
static void close_harness(struct harness *h)
{
    for (int i = 0; i < RANKS; i++)
        close(h->fd[i]);
    coord_server_free(h->server, false);
}

/* Reads `len` bytes, fewer if the other side hangs up. */
static size_t get(int fd, void *bytes, size_t len)
{
    size_t got = 0;
    while (got < len) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
        ssize_t n = recv(fd, (char *)bytes + got, len - got, 0);
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

static struct coord_frame next_frame(int fd, uint32_t type)
{
    struct coord_frame f;
    assert_int_equal(get(fd, &f, sizeof f), sizeof f);
    assert_int_equal(f.type, type);
    return f;
}

static struct coord_match_rep next_match(int fd)
{
    return next_frame(fd, COORD_MATCH_REP).match_rep;
}

/* ---- requests ---- */

static struct coord_frame match_req(uint32_t kind, uint32_t comm_rank, uint32_t peer, uint32_t tag,
                                    uint32_t id)
{
    return (struct coord_frame){.type = COORD_MATCH_REQ,
                                .match_req = {.kind = kind,
                                              .comm_rank = comm_rank,
                                              .peer = peer,
                                              .tag = tag,
                                              .id = id,
                                              .count = 1000 + id,
                                              .dtype = id % 7}};
}

static void request(struct harness *h, uint32_t kind, uint32_t comm_rank, uint32_t peer,
                    uint32_t tag, uint32_t id)
{
    struct coord_frame f = match_req(kind, comm_rank, peer, tag, id);
    put(h->fd[comm_rank / DEVS], &f, sizeof f);
}

/* Returns once the coordinator has read what was sent before: the rank requests a pair between its
 * own GPUs, whose replies come last. Discards all frames that the rank receives until then. */
static void sync_with(struct harness *h, uint32_t rank)
{
    enum { TAG = 0xffffff };
    struct coord_frame f;
    request(h, COLLRUN_RECV, rank * DEVS, rank * DEVS + 1, TAG, 7777);
    request(h, COLLRUN_SEND, rank * DEVS + 1, rank * DEVS, TAG, 7778);
    for (int ends = 0; ends < 2;) {
        assert_int_equal(get(h->fd[rank], &f, sizeof f), sizeof f);
        ends += f.type == COORD_MATCH_REP && (f.match_rep.id == 7777 || f.match_rep.id == 7778);
    }
}

static void expect_match(struct harness *h, uint32_t comm_rank, uint32_t id, uint32_t peer,
                         uint32_t peer_id)
{
    struct coord_match_rep m = next_match(h->fd[comm_rank / DEVS]);
    assert_int_equal(m.id, id);
    assert_int_equal(m.peer, peer);
    assert_int_equal(m.count, 1000 + peer_id); /* both ends can detect a MISMATCH */
    assert_int_equal(m.dtype, peer_id % 7);
}

static void pairs_match_in_order(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    for (uint32_t i = 0; i < 10; i++)
        request(&h, COLLRUN_SEND, 1, 6, 0, i);
    sync_with(&h, 0);
    for (uint32_t i = 0; i < 10; i++) {
        request(&h, COLLRUN_RECV, 6, 1, 0, 100 + i);
        expect_match(&h, 6, 100 + i, 1, i);
        expect_match(&h, 1, i, 6, 100 + i);
    }
    close_harness(&h);
}

static void different_tags_overtake(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    request(&h, COLLRUN_SEND, 0, 2, 5, 1);
    request(&h, COLLRUN_SEND, 0, 2, 6, 2);
    request(&h, COLLRUN_SEND, 0, 2, 5, 3);
    sync_with(&h, 0);
    request(&h, COLLRUN_RECV, 2, 0, 6, 11);
    expect_match(&h, 2, 11, 0, 2);
    request(&h, COLLRUN_RECV, 2, 0, 5, 12);
    expect_match(&h, 2, 12, 0, 1);
    request(&h, COLLRUN_RECV, 2, 0, 5, 13);
    expect_match(&h, 2, 13, 0, 3);
    close_harness(&h);
}

static void any_source_takes_the_first_with_the_tag(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    request(&h, COLLRUN_SEND, 4, 0, 1, 1);
    sync_with(&h, 2);
    request(&h, COLLRUN_SEND, 6, 0, 2, 2);
    sync_with(&h, 3);
    request(&h, COLLRUN_SEND, 2, 0, 2, 3);
    sync_with(&h, 1);
    request(&h, COLLRUN_RECV_ANY, 0, COLLRUN_ANY_SOURCE, 2, 10);
    expect_match(&h, 0, 10, 6, 2);
    request(&h, COLLRUN_RECV, 0, 4, 1, 11);
    expect_match(&h, 0, 11, 4, 1);
    request(&h, COLLRUN_RECV_ANY, 0, COLLRUN_ANY_SOURCE, 2, 12);
    expect_match(&h, 0, 12, 2, 3);
    /* The receive arrives first. It must not match a message to another GPU. */
    request(&h, COLLRUN_RECV_ANY, 0, COLLRUN_ANY_SOURCE, 3, 13);
    sync_with(&h, 0);
    request(&h, COLLRUN_SEND, 3, 1, 3, 4); /* to the rank's other GPU */
    request(&h, COLLRUN_SEND, 3, 0, 3, 5);
    expect_match(&h, 0, 13, 3, 5);
    close_harness(&h);
}

/* The matches of one round end with one mark at each process. */
static void each_epoch_has_an_end(void **state)
{
    enum { N = 50 };
    struct harness h;
    struct coord_frame all[N];
    (void)state;
    open_harness(&h, true);
    for (uint32_t i = 0; i < N; i++)
        request(&h, COLLRUN_SEND, 0, 2, 0, i);
    sync_with(&h, 0);
    for (uint32_t i = 0; i < N; i++)
        all[i] = match_req(COLLRUN_RECV, 2, 0, 0, i);
    put(h.fd[1], all, sizeof all); /* in one piece: one round, as a rule */
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct coord_match_rep m = {0};
        uint32_t ends = 0;
        for (uint32_t i = 0; i < N; i++) {
            m = next_match(h.fd[rank]);
            assert_int_equal(m.id, i);
            ends += m.ends_epoch;
        }
        assert_int_equal(m.ends_epoch, 1);
        assert_true(ends >= 1 && ends <= 3);
    }
    close_harness(&h);
}

/* ---- the model ---- */

struct model {
    struct coord_match_req waiting[2000];
    int n;
};

static bool model_fits(const struct coord_match_req *a, const struct coord_match_req *b)
{
    const struct coord_match_req *send = a->kind == COLLRUN_SEND ? a : b, *recv = send == a ? b : a;
    return send->kind == COLLRUN_SEND && recv->kind != COLLRUN_SEND &&
           send->peer == recv->comm_rank && send->tag == recv->tag &&
           (recv->peer == COLLRUN_ANY_SOURCE || recv->peer == send->comm_rank);
}

/* The id of the request that it matches; -1: it has to wait. */
static int model_request(struct model *m, const struct coord_match_req *r)
{
    for (int i = 0; i < m->n; i++) {
        if (!model_fits(&m->waiting[i], r))
            continue;
        int id = (int)m->waiting[i].id;
        memmove(&m->waiting[i], &m->waiting[i + 1], (size_t)(--m->n - i) * sizeof *r);
        return id;
    }
    m->waiting[m->n++] = *r;
    return -1;
}

static struct coord_frame random_request(uint32_t id)
{
    uint32_t kind = (uint32_t)COLLRUN_SEND + (uint32_t)rand() % 3;
    uint32_t comm_rank = (uint32_t)rand() % SIZE, peer = (uint32_t)rand() % SIZE;
    return match_req(kind, comm_rank, kind == COLLRUN_RECV_ANY ? COLLRUN_ANY_SOURCE : peer,
                     (uint32_t)rand() % 3, id);
}

static void random_requests_match_as_in_the_model(void **state)
{
    enum { N = 2000 };
    struct harness h;
    struct model *m = calloc(1, sizeof *m);
    struct coord_match_req *sent = calloc(N, sizeof *sent);
    (void)state;
    srand(1);
    open_harness(&h, true);
    for (uint32_t id = 0; id < N; id++) {
        struct coord_frame f = random_request(id);
        const struct coord_match_req *r = &sent[id];
        sent[id] = f.match_req;
        int other = model_request(m, r);
        put(h.fd[r->comm_rank / DEVS], &f, sizeof f);
        if (other < 0) {
            sync_with(&h, r->comm_rank / DEVS); /* a wrong match would show up below */
            continue;
        }
        expect_match(&h, sent[other].comm_rank, (uint32_t)other, r->comm_rank, id);
        expect_match(&h, r->comm_rank, id, sent[other].comm_rank, (uint32_t)other);
    }
    assert_true(m->n >= 1 && m->n <= N - 100);
    close_harness(&h);
    free(sent);
    free(m);
}

/* ---- commitments ---- */

static void commit(struct harness *h, uint32_t rank, uint64_t count)
{
    struct coord_frame f = {.type = COORD_COMMIT, .count = count};
    put(h->fd[rank], &f, sizeof f);
}

static uint64_t next_ready(struct harness *h, uint32_t rank)
{
    return next_frame(h->fd[rank], COORD_READY).count;
}

static void all_ranks_get_the_lowest_commitment(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    commit(&h, 0, 5);
    commit(&h, 1, 9);
    commit(&h, 3, 7);
    commit(&h, 2, 3); /* the last rank: the first READY */
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&h, i), 3);
    commit(&h, 2, 6);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&h, i), 5);
    close(h.fd[1]); /* its commitment remains */
    h.fd[1] = -1;
    commit(&h, 0, 100);
    assert_int_equal(next_ready(&h, 0), 6);
    commit(&h, 0, 99); /* withdraws one */
    assert_true(hung_up(h.fd[0]));
    close_harness(&h);
}

static void matches_and_commitments_share_a_connection(void **state)
{
    struct harness h;
    struct coord_frame f;
    int replies = 0, ready = 0;
    (void)state;
    open_harness(&h, true);
    for (uint32_t i = 1; i < RANKS; i++)
        commit(&h, i, 4);
    request(&h, COLLRUN_SEND, 0, 2, 0, 1);
    commit(&h, 0, 4);
    request(&h, COLLRUN_RECV, 2, 0, 0, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(h.fd[0], &f, sizeof f), sizeof f);
        replies += f.type == COORD_MATCH_REP && f.match_rep.id == 1 && f.match_rep.ends_epoch;
        ready += f.type == COORD_READY && f.count == 4;
    }
    assert_int_equal(replies, 1);
    assert_int_equal(ready, 1);
    close_harness(&h);
}

/* ---- connections ---- */

/* ---- batches ---- */

static void cut(struct harness *h, uint32_t rank, uint64_t cuts)
{
    struct coord_frame f = {.type = COORD_CUTS, .cuts = cuts};
    put(h->fd[rank], &f, sizeof f);
}

static void cuts_of_all_ranks_are_joined(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    for (uint64_t batch = 0; batch < 3; batch++) {
        for (uint32_t i = RANKS; i-- > 1;)
            cut(&h, i, 1 | batch << (8 * i));
        commit(&h, 0, batch + 1); /* the connections serve both */
        cut(&h, 0, 1 | UINT64_C(1) << 63);
        for (uint32_t i = 0; i < RANKS; i++)
            assert_int_equal(next_frame(h.fd[i], COORD_CUTS).cuts,
                             1 | batch << 8 | batch << 16 | batch << 24 | UINT64_C(1) << 63);
    }
    cut(&h, 2, 1);
    cut(&h, 2, 1); /* before the others have sent theirs */
    assert_true(hung_up(h.fd[2]));
    close_harness(&h);
}

static void wrong_hellos_are_rejected(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, false);
    int wrong[] = {dial_as(&h, SECRET + 1, 0), dial_as(&h, SECRET, RANKS), dial(&h)};
    struct coord_frame f = {.type = COORD_COMMIT, .count = 1};
    put(wrong[2], &f, sizeof f);
    for (int i = 0; i < 3; i++) {
        assert_true(hung_up(wrong[i]));
        close(wrong[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        h.fd[i] = dial_as(&h, SECRET, i);
    sync_with(&h, 1);
    close_harness(&h);
}

static void a_second_connection_of_a_rank_is_rejected(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, false);
    h.fd[2] = dial_as(&h, SECRET, 2);
    sync_with(&h, 2);
    int second = dial_as(&h, SECRET, 2);
    assert_true(hung_up(second));
    close(second);
    sync_with(&h, 2);
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 2)
            h.fd[i] = dial_as(&h, SECRET, i);
    close_harness(&h);
}

/* Otherwise a rank that comes and goes would count as all of them, and end the coordinator. */
static void a_rank_that_has_gone_does_not_come_back(void **state)
{
    (void)state;
    struct harness h;
    open_harness(&h, true);
    request(&h, COLLRUN_SEND, 2, 0, 1, 7);
    sync_with(&h, 3);
    for (int i = 0; i < RANKS; i++) {
        close(h.fd[3]);
        h.fd[3] = dial_as(&h, SECRET, 3);
        assert_true(hung_up(h.fd[3]));
    }
    request(&h, COLLRUN_RECV, 0, 2, 1, 8);
    assert_int_equal(next_match(h.fd[0]).id, 8);
    close_harness(&h);
}

static void a_receive_is_withdrawn_once(void **state)
{
    (void)state;
    struct harness h;
    open_harness(&h, true);
    struct coord_frame f = {.type = COORD_WITHDRAW,
                            .question = {.comm_rank = 2, .id = 5, .more = 1, .number = 1}};
    request(&h, COLLRUN_RECV, 2, 0, 1, 5);
    put(h.fd[1], &f, sizeof f);
    f.question.more = 0;
    put(h.fd[1], &f, sizeof f);
    assert_true(hung_up(h.fd[1]));
    request(&h, COLLRUN_RECV, 6, 0, 1, 5);
    f.question.comm_rank = 6;
    put(h.fd[3], &f, sizeof f);
    assert_int_equal(next_frame(h.fd[3], COORD_ANSWER).answer.yes, 1);
    put(h.fd[3], &f, sizeof f);
    assert_int_equal(next_frame(h.fd[3], COORD_ANSWER).answer.yes, 0);
    close_harness(&h);
}

/* Many connections without HELLO use up the slots; the ranks, which connect later, still get one.
 */
static void silent_connections_are_evicted(void **state)
{
    enum { MANY = 200 };
    struct harness h;
    int silent[MANY];
    (void)state;
    open_harness(&h, false);
    for (int i = 0; i < MANY; i++)
        silent[i] = dial(&h);
    for (uint32_t i = 0; i < RANKS; i++) {
        h.fd[i] = dial_as(&h, SECRET, i);
        sync_with(&h, i);
        commit(&h, i, 1);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(next_ready(&h, i), 1);
    assert_true(hung_up(silent[0]));
    for (int i = 0; i < MANY; i++)
        close(silent[i]);
    close_harness(&h);
}

static void a_malformed_frame_ends_its_connection_only(void **state)
{
    struct harness h;
    struct coord_frame bad[] = {
        match_req(COLLRUN_SEND, 2, 0, 0, 1),                  /* from another rank's GPU */
        match_req(COLLRUN_SEND, SIZE, 0, 0, 1),               /* from no GPU */
        match_req(COLLRUN_SEND, 0, SIZE, 0, 1),               /* to no GPU */
        match_req(COLLRUN_SEND, 0, COLLRUN_ANY_SOURCE, 0, 1), /* to any GPU */
        match_req(COLLRUN_RECV, 0, SIZE, 0, 1),
        match_req(COLLRUN_RECV_ANY + 1, 0, 1, 0, 1),
        match_req(COLLRUN_BARRIER, 0, 1, 0, 1),
        {.type = 0},
        {.type = COORD_HELLO, .hello = {.secret = SECRET, .rank = 0}},
        {.type = COORD_READY, .count = 1},
        {.type = COORD_WANT, .want = {.handle = COORD_DIRECT + 1}},
        {.type = COORD_FORM}, /* on the connection for other frames */
        {.type = COORD_FORM + 1}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        open_harness(&h, true);
        sync_with(&h, 1);
        put(h.fd[0], &bad[i], sizeof bad[i]);
        assert_true(hung_up(h.fd[0]));
        sync_with(&h, 1);
        close_harness(&h);
    }
}

/* One byte at a time, as the network may cut it. */
static void frames_survive_any_cut(void **state)
{
    struct harness h;
    struct coord_frame f = match_req(COLLRUN_RECV, 2, 0, 0, 9);
    (void)state;
    open_harness(&h, true);
    request(&h, COLLRUN_SEND, 0, 2, 0, 8);
    for (size_t i = 0; i < sizeof f; i++) {
        put(h.fd[1], (const char *)&f + i, 1);
        if (i % 8 == 0)
            sync_with(&h, 2);
    }
    expect_match(&h, 2, 9, 0, 8);
    close_harness(&h);
}

static void a_rank_that_disconnects_does_not_disturb_others(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    request(&h, COLLRUN_SEND, 0, 6, 0, 1);
    sync_with(&h, 0);
    shutdown(h.fd[3], SHUT_RDWR);
    shutdown(h.fd[0], SHUT_WR);
    assert_true(hung_up(h.fd[0]));
    request(&h, COLLRUN_SEND, 2, 6, 0, 2); /* to a rank that is gone: it waits */
    sync_with(&h, 1);
    request(&h, COLLRUN_SEND, 2, 4, 0, 3);
    request(&h, COLLRUN_RECV, 4, 2, 0, 4);
    expect_match(&h, 4, 4, 2, 3);
    expect_match(&h, 2, 3, 4, 4);
    close_harness(&h);
}

/* With all ranks connected, unread replies and unmatched requests. */
static void free_at_once_does_not_wait(void **state)
{
    struct harness h;
    (void)state;
    open_harness(&h, true);
    for (uint32_t i = 0; i < 500; i++)
        request(&h, i % 2 ? COLLRUN_SEND : COLLRUN_RECV, 0, 2, i, i);
    sync_with(&h, 1);
    coord_server_free(h.server, true);
    for (int i = 0; i < RANKS; i++) {
        assert_true(hung_up(h.fd[i]));
        close(h.fd[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_match_in_order),
        cmocka_unit_test(different_tags_overtake),
        cmocka_unit_test(any_source_takes_the_first_with_the_tag),
        cmocka_unit_test(each_epoch_has_an_end),
        cmocka_unit_test(random_requests_match_as_in_the_model),
        cmocka_unit_test(all_ranks_get_the_lowest_commitment),
        cmocka_unit_test(matches_and_commitments_share_a_connection),
        cmocka_unit_test(cuts_of_all_ranks_are_joined),
        cmocka_unit_test(wrong_hellos_are_rejected),
        cmocka_unit_test(a_second_connection_of_a_rank_is_rejected),
        cmocka_unit_test(a_rank_that_has_gone_does_not_come_back),
        cmocka_unit_test(a_receive_is_withdrawn_once),
        cmocka_unit_test(silent_connections_are_evicted),
        cmocka_unit_test(a_malformed_frame_ends_its_connection_only),
        cmocka_unit_test(frames_survive_any_cut),
        cmocka_unit_test(a_rank_that_disconnects_does_not_disturb_others),
        cmocka_unit_test(free_at_once_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * connect_all: members are threads; their rendezvous is a table in memory.
 */
#include "core/connect_all.h"

#include "base/loop.h"
#include "base/network.h"
#include "core/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { MEMBERS = 5, KEYS_MAX = 16, SECOND_NS = 1000000000 };

struct pair {
    char key[48];
    char value[256];
    size_t len;
};

struct store {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pair pairs[KEYS_MAX];
    uint32_t npairs;
    uint32_t awaited; /* a fence ends with that many pairs */
    int alive;        /* what alive returns */
};

struct member {
    struct store *store;
    uint32_t rank;
    uint64_t deadline_ns;
    struct collrun_rendezvous rendezvous;
    int fds[MEMBERS];
    int rc;
    char cause[768];
    pthread_t thread;
};

static int put(void *ctx, const char *key, const void *value, size_t len)
{
    struct store *s = ((struct member *)ctx)->store;
    pthread_mutex_lock(&s->lock);
    struct pair *p = &s->pairs[s->npairs++];
    snprintf(p->key, sizeof p->key, "%s", key);
    memcpy(p->value, value, len);
    p->len = len;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return COLLRUN_OK;
}

static int fence(void *ctx)
{
    struct store *s = ((struct member *)ctx)->store;
    pthread_mutex_lock(&s->lock);
    while (s->npairs < s->awaited)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return COLLRUN_OK;
}

static int get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    struct store *s = ((struct member *)ctx)->store;
    int rc = COLLRUN_ERR_NOT_FOUND;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->npairs; i++) {
        const struct pair *p = &s->pairs[i];
        if (strcmp(p->key, key) != 0 || p->len > capacity)
            continue;
        memcpy(value, p->value, p->len);
        *len = p->len;
        rc = COLLRUN_OK;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int alive(void *ctx)
{
    int rc = ((struct member *)ctx)->store->alive;
    return rc == COLLRUN_OK ? rc : error_cause(rc, "rank 9 failed");
}

static void *run(void *arg)
{
    struct member *m = arg;
    m->rendezvous = (struct collrun_rendezvous){.size = sizeof m->rendezvous,
                                                .ctx = m,
                                                .put = put,
                                                .get = get,
                                                .fence = fence,
                                                .alive = alive};
    m->rc = connect_all(&(struct connect_all){.rendezvous = &m->rendezvous,
                                              .address = "127.0.0.1",
                                              .rank = m->rank,
                                              .nranks = MEMBERS,
                                              .number = 3,
                                              .deadline_ns = m->deadline_ns},
                        m->fds);
    snprintf(m->cause, sizeof m->cause, "%s", m->rc == COLLRUN_OK ? "" : error_get()->cause);
    return NULL;
}

static void start(struct store *s, struct member *members, uint32_t n, uint64_t limit_ns)
{
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (uint32_t i = 0; i < n; i++) {
        members[i] = (struct member){.store = s, .rank = i, .deadline_ns = now_ns() + limit_ns};
        assert_int_equal(pthread_create(&members[i].thread, NULL, run, &members[i]), 0);
    }
}

static void join(struct member *members, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
}

/* Every two members exchange their ranks; then all sockets are closed. */
static void check_connections(struct member *members)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(members[i].rc, COLLRUN_OK);
        assert_int_equal(members[i].fds[i], -1);
        for (uint32_t k = 0; k < MEMBERS; k++)
            if (k != i)
                assert_int_equal(write(members[i].fds[k], &i, sizeof i), sizeof i);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        for (uint32_t k = 0; k < MEMBERS; k++) {
            uint32_t from = 0;
            if (k == i)
                continue;
            assert_int_equal(read(members[i].fds[k], &from, sizeof from), sizeof from);
            assert_int_equal(from, k);
            assert_int_equal(recv(members[i].fds[k], &from, 1, 0), -1); /* non-blocking */
        }
    }
    for (uint32_t i = 0; i < MEMBERS * MEMBERS; i++)
        if (i / MEMBERS != i % MEMBERS)
            close(members[i / MEMBERS].fds[i % MEMBERS]);
}

static void every_two_members_are_connected(void **state)
{
    struct store s = {.awaited = MEMBERS};
    struct member members[MEMBERS];
    (void)state;
    start(&s, members, MEMBERS, 20ull * SECOND_NS);
    join(members, MEMBERS);
    check_connections(members);
}

/* What connect_all publishes. */
struct listener {
    struct sockaddr_storage address;
    uint64_t len;
    uint64_t secret[2];
};

static struct listener listener_of(struct store *s, uint32_t rank)
{
    struct listener l = {.len = 0};
    char key[48];
    size_t len = 0;
    snprintf(key, sizeof key, "connect_all/3/%u", rank);
    assert_int_equal(get(&(struct member){.store = s}, key, &l, sizeof l, &len), COLLRUN_OK);
    assert_int_equal(len, sizeof l);
    return l;
}

/* Connects to the listener of a member that waits for the last one. */
static int intrude(struct store *s, uint32_t rank, const void *bytes, size_t len)
{
    const struct listener l = listener_of(s, rank);
    int fd;
    assert_int_equal(tcp_connect((const void *)&l.address, (socklen_t)l.len,
                                 now_ns() + 5ull * SECOND_NS, -1, &fd),
                     0);
    if (len > 0)
        assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
    return fd;
}

static void connections_without_the_secret_do_not_count(void **state)
{
    struct store s = {.awaited = MEMBERS - 1};
    struct member members[MEMBERS];
    uint64_t forged[3] = {0, 0, MEMBERS - 1};
    const size_t lengths[] = {0, 1, sizeof forged};
    int fds[96];
    char byte = 0;
    (void)state;
    start(&s, members, MEMBERS - 1, 20ull * SECOND_NS);
    struct member *last = &members[MEMBERS - 1];
    fence(&(struct member){.store = &s});
    for (int i = 0; i < 96; i++) /* silent, unfinished and forged ones: each more than slots */
        fds[i] = intrude(&s, 0, forged, lengths[i % 3]);
    *last = (struct member){
        .store = &s, .rank = MEMBERS - 1, .deadline_ns = now_ns() + 20ull * SECOND_NS};
    assert_int_equal(pthread_create(&last->thread, NULL, run, last), 0);
    join(members, MEMBERS);
    for (int i = 0; i < 96; i++) {
        send(fds[i], &byte, 1,
             MSG_NOSIGNAL); /* a silent one learns by it that the listener is gone */
        assert_true(read(fds[i], &byte, 1) <= 0);
        close(fds[i]);
    }
    check_connections(members);
}

static void a_member_that_is_slow_to_speak_keeps_its_connection(void **state)
{
    struct store s = {.awaited = MEMBERS - 1};
    struct member members[MEMBERS];
    struct member *last = &members[MEMBERS - 1];
    int silent[64];
    char byte;
    (void)state;
    start(&s, members, MEMBERS - 1, 20ull * SECOND_NS);
    fence(&(struct member){.store = &s});
    *last = (struct member){.rc = COLLRUN_OK, .fds = {[MEMBERS - 1] = -1}};
    for (uint32_t i = 0; i < MEMBERS - 1; i++)
        last->fds[i] = intrude(&s, i, NULL, 0);
    for (int i = 0; i < 64; i++)
        silent[i] = intrude(&s, 0, NULL, 0);
    /* When rank 0 has refused a last one, it has looked at all of them. */
    const uint64_t forged[3] = {0, 0, MEMBERS - 1};
    const int refused = intrude(&s, 0, forged, sizeof forged);
    while (recv(refused, &byte, 1, 0) < 0 && errno == EAGAIN)
        usleep(1000);
    close(refused);
    for (uint32_t i = 0; i < MEMBERS - 1; i++) {
        const struct listener l = listener_of(&s, i);
        const uint64_t hello[3] = {l.secret[0], l.secret[1], MEMBERS - 1};
        assert_int_equal(send(last->fds[i], hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    }
    join(members, MEMBERS - 1);
    check_connections(members);
    for (int i = 0; i < 64; i++)
        close(silent[i]);
}

static void a_missing_member_is_named(void **state)
{
    struct store s = {.awaited = MEMBERS - 1};
    struct member members[MEMBERS];
    (void)state;
    start(&s, members, MEMBERS - 1, SECOND_NS / 5);
    join(members, MEMBERS - 1);
    for (uint32_t i = 0; i < MEMBERS - 1; i++) {
        assert_int_equal(members[i].rc, COLLRUN_ERR_TIMEOUT);
        assert_string_equal(members[i].cause, "rank 4 has not connected");
        for (uint32_t k = 0; k < MEMBERS; k++)
            assert_int_equal(members[i].fds[k], -1);
    }
}

static void a_failed_job_ends_the_wait(void **state)
{
    struct store s = {.awaited = MEMBERS - 1, .alive = COLLRUN_ERR_PEER_FAILED};
    struct member members[MEMBERS];
    (void)state;
    uint64_t begin = now_ns();
    start(&s, members, MEMBERS - 1, 60ull * SECOND_NS);
    join(members, MEMBERS - 1);
    assert_true(now_ns() - begin < 30ull * SECOND_NS);
    assert_int_equal(members[0].rc, COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(members[0].cause, "rank 9 failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_two_members_are_connected),
        cmocka_unit_test(connections_without_the_secret_do_not_count),
        cmocka_unit_test(a_member_that_is_slow_to_speak_keeps_its_connection),
        cmocka_unit_test(a_missing_member_is_named),
        cmocka_unit_test(a_failed_job_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

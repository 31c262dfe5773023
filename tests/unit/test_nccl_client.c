/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's connection to the coordinator of the nccl backend, whose other end is the test: what is
 * taken for the answer to a question.
 */
#include "../../backends/nccl/coord/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int services_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    (void)format;
    return status;
}

static int services_connect(void *ctx, const struct sockaddr *address, uint32_t len,
                            uint64_t deadline_ns, int *fd)
{
    (void)ctx;
    (void)deadline_ns;
    *fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(*fd, address, len) == 0 ? COLLRUN_OK : COLLRUN_ERR_SYSTEM;
}

/* Each look takes a millisecond. */
static uint64_t services_now_ns(void)
{
    static uint64_t looks;
    return 1000000 * ++looks;
}

static const struct collrun_services services = {
    .fail = services_fail, .connect = services_connect, .now_ns = services_now_ns};

/* A client, and the coordinator's end of its connection. */
struct pair {
    struct coord_client *client;
    int fd;
};

static void get_frame(int fd, uint32_t type, struct coord_frame *out)
{
    assert_int_equal(recv(fd, out, sizeof *out, MSG_WAITALL), sizeof *out);
    assert_int_equal(out->type, type);
}

static void open_pair(struct pair *p)
{
    struct coord_addr addr = {0};
    struct coord_frame hello;
    int listener = -1;
    assert_int_equal(coord_listen(&services, "127.0.0.1", &addr, &listener), COLLRUN_OK);
    assert_int_equal(coord_connect(&services, &addr, 0, UINT64_MAX, &p->client), COLLRUN_OK);
    p->fd = accept(listener, NULL, NULL);
    assert_true(p->fd >= 0);
    get_frame(p->fd, COORD_HELLO, &hello);
    close(listener);
}

static void close_pair(struct pair *p)
{
    coord_client_free(p->client);
    close(p->fd);
}

/* Asks, and gives up at once. */
static void ask_in_vain(struct coord_client *client, uint32_t tag)
{
    const struct coord_question q = {.tag = tag};
    struct coord_answer a;
    assert_false(coord_ask(client, COORD_PROBE, &q, 1, 0, &a));
}

/* Answers the next question that has arrived, with its tag. False: the client has hung up. */
static bool answer_next(int fd)
{
    struct coord_frame f;
    if (recv(fd, &f, sizeof f, MSG_WAITALL) != sizeof f)
        return false;
    const struct coord_question q = f.question;
    f = (struct coord_frame){.type = COORD_ANSWER,
                             .answer = {.tag = q.tag, .yes = 1, .number = q.number}};
    return send(fd, &f, sizeof f, MSG_NOSIGNAL) == sizeof f;
}

static void *coordinator(void *arg)
{
    const int fd = *(const int *)arg;
    while (answer_next(fd))
        ;
    return NULL;
}

/* The coordinator was slow: its answer to a question that was given up arrives when the next one is
 * asked. */
static void an_answer_is_that_to_the_last_question(void **state)
{
    struct coord_answer a;
    struct pair p;
    pthread_t thread;
    (void)state;
    open_pair(&p);
    ask_in_vain(p.client, 1);
    for (uint32_t tag = 2; tag <= 3; tag++) {
        assert_true(answer_next(p.fd));
        ask_in_vain(p.client, tag);
    }
    assert_int_equal(pthread_create(&thread, NULL, coordinator, &p.fd), 0);
    for (uint32_t tag = 4; tag <= 6; tag++) {
        const struct coord_question q = {.tag = tag};
        assert_true(coord_ask(p.client, COORD_PROBE, &q, 1, UINT64_MAX, &a));
        assert_int_equal(a.tag, tag);
    }
    coord_client_close(p.client);
    pthread_join(thread, NULL);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_is_that_to_the_last_question)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the TCP backend's messages share: where the ranks are, blocking calls on the
 * harness's group, and test patterns that differ between messages.
 */
#ifndef TESTS_UNIT_TCP_MESSAGES_H
#define TESTS_UNIT_TCP_MESSAGES_H

#include "backend_harness.h"

#include <string.h>

#define MS 1000000u
#define LARGE (3u << 20)         /* bytes: several pieces */
#define EAGER_BYTES (32u << 10)  /* sent eagerly, whatever moves them */
#define EAGER_TCP (64u << 10)    /* the largest message that sockets take eagerly */
#define EAGER_LOCAL (256u << 10) /* the largest one that may leave early within a host */

/* All messages take sockets; shared memory; or one of them, by the pair of ranks. */
enum placement { EACH_ALONE, ONE_HOST, TWO_HOSTS };

/* `state`: of the test, whose group has one of these setups. */
static inline enum placement placement_of(void **state)
{
    return *(const enum placement *)*state;
}

static inline struct harness_options options_for(void **state, uint32_t nranks)
{
    static const char *const sockets_only[] = {"local", "tcp", NULL};
    static const uint32_t hosts[] = {0, 1, 1, 0, 0};
    const enum placement placement = placement_of(state);
    return (struct harness_options){.path = harness_backend_path("tcp"),
                                    .nranks = nranks,
                                    .host_of = placement == TWO_HOSTS ? hosts : NULL,
                                    .settings = placement == EACH_ALONE ? sockets_only : NULL};
}

static inline int each_alone(void **state)
{
    static enum placement placement = EACH_ALONE;
    *state = &placement;
    return 0;
}

static inline int one_host(void **state)
{
    static enum placement placement = ONE_HOST;
    *state = &placement;
    return 0;
}

static inline int two_hosts(void **state)
{
    static enum placement placement = TWO_HOSTS;
    *state = &placement;
    return 0;
}

/* Runs the tests with each placement. */
#define RUN_EVERYWHERE(tests)                                                                      \
    (cmocka_run_group_tests_name("each rank alone", tests, each_alone, NULL) +                     \
     cmocka_run_group_tests_name("one host", tests, one_host, NULL) +                              \
     cmocka_run_group_tests_name("two hosts", tests, two_hosts, NULL))

static inline int send_to(struct harness_rank *r, void *buf, size_t bytes, uint32_t peer,
                          uint32_t tag)
{
    const struct collrun_call call = harness_message(COLLRUN_SEND, buf, bytes, peer, tag);
    return harness_exec(r->group, &call, 1);
}

static inline int recv_from(struct harness_rank *r, void *buf, size_t bytes, uint32_t peer,
                            uint32_t tag)
{
    const struct collrun_call call = harness_message(COLLRUN_RECV, buf, bytes, peer, tag);
    return harness_exec(r->group, &call, 1);
}

static inline void fill(char *buf, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char)(i * 7 + salt);
}

static inline bool holds(const char *buf, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++)
        if (buf[i] != (char)(i * 7 + salt))
            return false;
    return true;
}

#endif

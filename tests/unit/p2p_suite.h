/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of messages that every backend must pass, as cmocka tests: order and tags, receives
 * from any source, several calls that progress together, early senders and late receivers, ends
 * that have left, died or disagree. A backend's test program says what it is, and runs
 * p2p_suites_run. What the tests share is here, for a backend's own tests, too: blocking calls on
 * the harness's group, and test patterns that differ between messages.
 */
#ifndef TESTS_UNIT_P2P_SUITE_H
#define TESTS_UNIT_P2P_SUITE_H

#include "backend_harness.h"

#include <string.h>

#define MS 1000000u
#define LARGE (3u << 20)         /* bytes: several pieces */
#define EAGER_BYTES (32u << 10)  /* sent eagerly, whatever moves them */
#define EAGER_NET (64u << 10)    /* the largest message that sockets take eagerly */
#define EAGER_LOCAL (256u << 10) /* the largest one that may leave early within a host */

/* All messages take the network; shared memory; or one of them, by the pair of ranks. */
enum p2p_placement { P2P_ALONE, P2P_ONE_HOST, P2P_TWO_HOSTS };

struct p2p_suite {
    const char *backend;
    enum p2p_placement placement;
    /* Why no rank may end before it is connected, or inside of a message; NULL: any rank may. */
    const char *no_ends;
};

/* Runs all tests with each suite, or those tests whose names match `filter`. Returns the number of
 * failures. */
int p2p_suites_run(const struct p2p_suite *suites, size_t n, const char *filter);
/* Skips a test in which a rank ends so, for a suite with no_ends. */
void p2p_skip_ends(void **state);
/* p2p_suites_run calls it: the tests of p2p_sources.c. */
int p2p_sources_run(const struct p2p_suite *suite);

/* `state`: of the test, which is the suite. */
static inline const struct p2p_suite *suite_of(void **state)
{
    return *state;
}

static inline struct harness_options options_for(void **state, uint32_t nranks)
{
    /* Hosts have no memory in common that UCX could use: `transports` is its option. */
    static const char *const settings[] = {"transports", "tcp", "local", "tcp", NULL};
    static const char *const several_hosts[] = {"transports", "tcp", NULL};
    static const uint32_t hosts[] = {0, 1, 1, 0, 0};
    const struct p2p_suite *s = suite_of(state);
    return (struct harness_options){.path = harness_backend_path(s->backend),
                                    .nranks = nranks,
                                    .host_of = s->placement == P2P_TWO_HOSTS ? hosts : NULL,
                                    .settings =
                                        s->placement == P2P_ALONE ? settings : several_hosts};
}

/* A group setup for tests of the TCP backend alone. */
static inline int each_alone(void **state)
{
    static struct p2p_suite alone = {.backend = "tcp", .placement = P2P_ALONE};
    *state = &alone;
    return 0;
}

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

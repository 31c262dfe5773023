/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the Gloo backend's messages share: blocking calls on the harness's group, and
 * test patterns that differ between messages.
 */
#ifndef TESTS_UNIT_GLOO_MESSAGES_H
#define TESTS_UNIT_GLOO_MESSAGES_H

#include "backend_harness.h"

#include <string.h>

#define MS 1000000u
#define LARGE (3u << 20)        /* bytes: several pieces */
#define EAGER_BYTES (64u << 10) /* the largest message that is sent eagerly */

static inline struct harness_options options_for(uint32_t nranks)
{
    return (struct harness_options){.path = harness_backend_path("gloo"), .nranks = nranks};
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

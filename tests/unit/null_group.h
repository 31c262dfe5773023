/* SPDX-License-Identifier: Apache-2.0
 *
 * A group without peers, agent or library behind it, for tests of what the engine does around a
 * backend: the backend of these groups accepts every call and does nothing. The test may look at
 * what arrived, and decide what comes back.
 */
#ifndef TESTS_UNIT_NULL_GROUP_H
#define TESTS_UNIT_NULL_GROUP_H

#include "group.h"

struct null_backend {
    unsigned calls;           /* how many have arrived */
    struct collrun_call last; /* the last of them */
    int answer;               /* what exec returns */
    unsigned aborts;          /* how often the group has been aborted */
};
extern struct null_backend null_backend;

/* `flags` are the backend's (enum collrun_backend_flags); NULL: out of memory. */
struct collrun_group *null_group_new(uint32_t rank, uint32_t nranks, uint64_t flags);
void null_group_free(struct collrun_group *g);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A group without peers, agent or library, for tests of the engine around a backend. The backend of
 * these groups accepts every call and does nothing; the test reads the calls and sets their result.
 */
#ifndef TESTS_UNIT_NULL_GROUP_H
#define TESTS_UNIT_NULL_GROUP_H

#include "comm/group.h"

struct null_backend {
    unsigned calls;           /* number of calls so far */
    unsigned longest;         /* calls of one array, at most */
    struct collrun_call last; /* the last call */
    int answer;               /* result of exec */
    unsigned aborts;          /* number of group_abort calls */
};
extern struct null_backend null_backend;

/* `flags` are the backend's (enum collrun_backend_flags); NULL: out of memory. */
struct collrun_group *null_group_new(uint32_t rank, uint32_t nranks, uint64_t flags);
void null_group_free(struct collrun_group *g);

#endif

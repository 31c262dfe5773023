/* SPDX-License-Identifier: Apache-2.0
 *
 * A group without peers, agent or library, for tests of the engine around a backend. The backend of
 * these groups accepts every call and does nothing; the test reads the calls and sets their result.
 */
#ifndef TESTS_UNIT_NULL_GROUP_H
#define TESTS_UNIT_NULL_GROUP_H

#include "group/group.h"

struct null_backend {
    unsigned calls;           /* number of calls so far */
    unsigned longest;         /* calls of one array, at most */
    struct collrun_call last; /* the last call */
    int answer;               /* result of exec */
    void (*inside)(void);     /* called by exec before it answers; or NULL */
    int source;               /* of what is received from any rank, */
    uint32_t tag;             /* and its tag, where the call asks for it */
    unsigned aborts;          /* number of group_abort calls */
};
extern struct null_backend null_backend;

/* `flags` are the backend's (enum collrun_backend_flags); NULL: out of memory. */
struct collrun_group *null_group_new(uint32_t rank, uint32_t nranks, uint64_t flags);
void null_group_free(struct collrun_group *g);

/* The group's messages with rank 1 go through this transport. NULL: out of memory. */
struct p2p *null_group_carry(struct collrun_group *g, const struct collrun_transport *transport);
/* For a transport that nothing arrives by: its `recv` and `progress`, which do nothing. */
int null_transport_recv(void *group, struct collrun_message *m, const void *packet, size_t len);
int null_transport_progress(void *group, uint64_t wait_ns);
/* A message of bytes with rank 1, which is only received or only sent. */
struct collrun_call null_group_message(enum collrun_kind kind, void *data, size_t len);
/* A request that has been started. */
struct collrun_request *null_group_start(struct collrun_group *g, struct collrun_call call);

#endif

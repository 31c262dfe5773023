/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges between the members of a scope that are on one host, through the memory that the ranks
 * of the host share (base/hostmem.h): no other process is involved, so forming a group takes
 * microseconds.
 *
 * An exchange is an allgather of a few bytes. The first member to arrive makes the scope, the last
 * one completes it and wakes the others. It also compares what the members must agree on, and may
 * hand out a segment.
 *
 * It fails for all members, with one error message, if
 * - members disagree about their backends or about the size of the segment (MISMATCH),
 * - a member has failed, or the job has,
 * - the deadline of the first member passes; the message names the ranks that are missing.
 * A member that arrives after the failure gets it immediately.
 */
#ifndef ENGINE_CORE_HOST_SCOPE_H
#define ENGINE_CORE_HOST_SCOPE_H

#include "base/desc.h"
#include "base/hostmem.h"

struct control;

/* The host scopes of the process. */
struct host_scopes {
    struct hostmem mem; /* mem.head NULL: the agent has given none */
    const struct desc *desc;
    uint32_t rank;             /* this one */
    const atomic_bool *failed; /* by world rank: process.failed */
    struct control *control;
    bool oversubscribed; /* the host has more ranks than cores */
};

struct host_scope_request {
    const char *name;                 /* of the scope; no other exchange of these members has it */
    const char *group;                /* for messages */
    const char *identity;             /* must be equal on all members */
    const struct desc_ranks *members; /* world ranks, all on this host */
    uint32_t index;                   /* of this rank among them */
    uint64_t timeout_ns;
    uint64_t segment_len; /* bytes; 0: no segment */
    const void *value; /* `value_len` bytes; of a longer one than HOSTMEM_VALUE_LEN the members */
    size_t value_len;  /* get the length and the beginning */
};

/* The values of all members, in their order. */
struct host_scope_values {
    void *data; /* one each `stride` bytes; longer ones are cut */
    size_t stride;
    size_t *lens; /* or NULL */
};

/* Blocks. `values`: or NULL. `*segment`: the slot that the members share, which each of them
 * releases (hostmem_segment_release). Outputs stay untouched on failure. */
int host_scope_exchange(struct host_scopes *s, const struct host_scope_request *q,
                        const struct host_scope_values *values, uint32_t *segment, struct diag *d);

/* Lets all members that wait on this host look at the state of the job again. Any thread. */
void host_scope_wake_all(struct host_scopes *s);

#endif

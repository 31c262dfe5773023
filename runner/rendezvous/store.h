/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous store, through which the members of a group exchange addresses, as with PMI. A
 * group that is being formed is a scope (name, generation, members). Members join it, put keys, get
 * keys, and enter fences; a fence gives every member all keys that were put since the last one. The
 * store is a state machine without I/O: frames enter by rdv_on_frame, answers leave by `send`, time
 * is an argument.
 *
 * A scope fails for all its members, with one error message, if
 *  - two members disagree about the members or about the backend,
 *  - a key is put twice,
 *  - a member exits,
 *  - the deadline passes; the message names the ranks that are missing.
 *
 * An agreement is a scope of one exchange: each member says how it is, and when all have done so
 * that have not exited, each of them gets the same list.
 */
#ifndef RUNNER_RENDEZVOUS_STORE_H
#define RUNNER_RENDEZVOUS_STORE_H

#include "base/desc.h"
#include "base/wire.h"

struct rdv;

struct rdv_output {
    /* One frame for each of these ranks. */
    void (*send)(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                 const struct buf *payload);
    void *ctx;
};

/* `desc` is borrowed. NULL: out of memory. */
struct rdv *rdv_new(const struct desc *desc, struct rdv_output output);
void rdv_free(struct rdv *rdv);

/* JOIN, PUT, GET, FENCE, LEAVE or AGREE from f->rank. Negative: the frame is malformed. */
int rdv_on_frame(struct rdv *rdv, const struct wire_frame *f, uint64_t now, struct diag *d);
/* True if a member has joined this scope and not all have left. */
bool rdv_has_scope(const struct rdv *rdv, const char *name);
/* A rank has exited: its scopes cannot be formed any more. `how`: "exited ...". */
void rdv_on_rank_exit(struct rdv *rdv, uint32_t rank, const char *how);
/* Fails the scopes whose deadline has passed. */
void rdv_expire(struct rdv *rdv, uint64_t now);
uint64_t rdv_next_deadline(const struct rdv *rdv); /* UINT64_MAX: none */
/* For tests: how many scopes exist. A scope is freed when all members have left. */
uint32_t rdv_open_scopes(const struct rdv *rdv);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a receiver for each long message of a peer: to read it from the sender's memory
 * (cma.h: one copy, made by one core), or to let the sender copy it through blocks (two copies, on
 * two cores at the same time). Which one is faster depends on the machine, on the core that the
 * peer has, and on whether the peer waits for its send. So the receiver measures both, prefers the
 * faster one, and tries the other one now and then.
 */
#ifndef SHM_TRANSPORT_REMOTE_POLICY_H
#define SHM_TRANSPORT_REMOTE_POLICY_H

#include <stddef.h>
#include <stdint.h>

enum remote_way { REMOTE_READ, REMOTE_BLOCKS };

enum {
    REMOTE_FIRST_TRIALS = 4, /* messages at the start that take turns */
    REMOTE_TRIAL_EVERY = 64  /* later, one of so many messages takes the slower way */
};

struct remote_policy {
    uint64_t ns_per_mib[2]; /* by enum remote_way; 0: not measured */
    uint32_t messages;
};

/* To be called once for each message. */
enum remote_way remote_policy_choose(struct remote_policy *p);

/* A message of `len` bytes, at least 1 MiB, has taken `ns`. */
void remote_policy_measured(struct remote_policy *p, enum remote_way way, size_t len, uint64_t ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP connections between all members of a group, for rendezvous->connect_all.
 *   - every member listens on its address, and publishes address and secret in the rendezvous
 *   - it connects to the lower ranks and begins with HELLO: the listener's secret and its own rank
 *   - it accepts the higher ranks
 *
 * Failure modes: a member is missing at the deadline (TIMEOUT, which names it), the job fails
 * (rendezvous->alive), a system call fails (SYSTEM). A connection without the secret is closed. One
 * that sends nothing is closed when a later one needs its slot.
 */
#ifndef ENGINE_CORE_CONNECT_ALL_H
#define ENGINE_CORE_CONNECT_ALL_H

#include <collrun/backend.h>

struct connect_all {
    const struct collrun_rendezvous *rendezvous;
    const char *address;            /* of this host, numeric */
    uint16_t first_port, last_port; /* to listen on; 0: any */
    uint32_t rank, nranks;
    uint32_t number;      /* of earlier calls in the same rendezvous: it makes the keys unique */
    uint64_t deadline_ns; /* on CLOCK_MONOTONIC */
    uint64_t stopped_ns;  /* base/standstill.h, when the deadline was set */
};

/* Fills fds[nranks] as rendezvous->connect_all states. On failure they are all -1. Returns a status
 * whose cause is stored. */
int connect_all(const struct connect_all *how, int *fds);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous of backend_harness: a key/value store in memory that all ranks map.
 * - One robust lock guards it, so that a rank which dies while it holds the lock does not hang the
 *   others. A waiting rank sleeps on a futex, the change counter.
 * - A memory file is opened through /proc/PID/fd of the rank that created it; that rank keeps it
 *   open until the rendezvous is over.
 */
#ifndef TESTS_UNIT_HARNESS_STORE_H
#define TESTS_UNIT_HARNESS_STORE_H

#include <collrun/backend.h>

#include <pthread.h>
#include <stdatomic.h>

#define HARNESS_STORE_ENTRIES 16384u
#define HARNESS_STORE_BYTES (16u << 20)
#define HARNESS_STORE_KEY 160u
#define HARNESS_RENDEZVOUS_FDS 64u

struct harness_entry {
    char key[HARNESS_STORE_KEY]; /* group, generation and the backend's own key */
    uint32_t offset, len;
};

struct harness_store {
    pthread_mutex_t lock;
    _Atomic uint32_t changes; /* futex */
    _Atomic uint32_t failed;  /* set: waits end with PEER_FAILED */
    uint32_t nentries, used;
    struct harness_entry entries[HARNESS_STORE_ENTRIES];
    char bytes[HARNESS_STORE_BYTES];
};

/* One rank's part in forming one group. */
struct harness_rendezvous {
    struct harness_store *store;
    const struct collrun_group_desc *desc;
    struct collrun_rendezvous table;
    uint64_t limit_ns; /* of one call */
    bool quiet;        /* a failure does not replace the backend's error */
    uint32_t generation, fences, meshes, nfds;
    int fds[HARNESS_RENDEZVOUS_FDS];
    int segment; /* given to the backend, and the caller's to close after the group; -1: none */
};

/* `store` is zeroed memory. */
void harness_store_init(struct harness_store *store);

/* Ends all waits, present and future. */
void harness_store_fail(struct harness_store *store);

void harness_rendezvous_open(struct harness_rendezvous *m, struct harness_store *store,
                             const struct collrun_group_desc *desc, uint64_t limit_ns);

/* Waits, up to a limit, until all members call it, then closes the memory files of this rank. */
void harness_rendezvous_close(struct harness_rendezvous *m);

#endif

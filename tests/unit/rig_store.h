/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous of backend_rig: a key/value store in memory that all ranks map, guarded by one
 * robust lock, so that a rank which dies inside does not hang the others. Waiting is a futex on a
 * change counter. Memory files are handed over through /proc/PID/fd of the rank that made them; it
 * keeps them open until the meeting is over.
 */
#ifndef TESTS_UNIT_RIG_STORE_H
#define TESTS_UNIT_RIG_STORE_H

#include <collrun/backend.h>

#include <pthread.h>
#include <stdatomic.h>

#define RIG_STORE_ENTRIES 16384u
#define RIG_STORE_BYTES (16u << 20)
#define RIG_STORE_KEY 160u
#define RIG_MEETING_FDS 64u

struct rig_entry {
    char key[RIG_STORE_KEY]; /* group, generation and the backend's own key */
    uint32_t offset, len;
};

struct rig_store {
    pthread_mutex_t lock;
    _Atomic uint32_t changes; /* futex */
    _Atomic uint32_t failed;  /* waits end with PEER_FAILED */
    uint32_t nentries, used;
    struct rig_entry entries[RIG_STORE_ENTRIES];
    char bytes[RIG_STORE_BYTES];
};

/* One rank in the formation of one group. */
struct rig_meeting {
    struct rig_store *store;
    const struct collrun_group_desc *desc;
    struct collrun_rendezvous rendezvous;
    uint64_t limit_ns; /* of one call */
    bool quiet;        /* failures leave no sentence: the backend's own stands */
    uint32_t generation, fences, nfds;
    int fds[RIG_MEETING_FDS];
};

/* `store` is zeroed memory. */
void rig_store_init(struct rig_store *store);

/* Ends every wait, now and later. */
void rig_store_fail(struct rig_store *store);

void rig_meeting_open(struct rig_meeting *meeting, struct rig_store *store,
                      const struct collrun_group_desc *desc, uint64_t limit_ns);

/* Waits (bounded) until all members have come this far, then closes the memory files kept for them.
 */
void rig_meeting_close(struct rig_meeting *meeting);

#endif

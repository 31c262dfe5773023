/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the ranks of one host share: one memory file per job and host. The agent makes
 * it; every rank gets it on descriptor HOSTMEM_FD.
 *
 *   head | segment references | scopes | segments
 *
 *   scopes    groups that are being formed: what their members exchange (core/host_scope.h)
 *   segments  memory of groups, in slots of one size; a backend maps what it needs of a slot
 *
 * - The file is sparse and has no name: only pages in use cost memory, and nothing stays behind
 *   after SIGKILL. Its size is sealed, so that no rank can shrink it while another one uses it.
 * - A slot counts the members that have not released it. The last one returns its pages to the
 *   system, so a slot is always handed out zeroed. The slot of a member that was killed is not used
 *   again.
 * - One robust lock guards scopes and slots: a rank that is killed while it holds the lock does not
 *   block the others.
 */
#ifndef ENGINE_BASE_HOSTMEM_H
#define ENGINE_BASE_HOSTMEM_H

#include "base/diag.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HOSTMEM_FD = 5, /* of collrun-engine */
    HOSTMEM_SEGMENTS = 8192,
    HOSTMEM_NAME_LEN = 640,
    HOSTMEM_IDENTITY_LEN = 256,
    HOSTMEM_TEXT_LEN = 512,
    HOSTMEM_VALUE_LEN = 504
};

enum hostmem_state { HOSTMEM_FREE, HOSTMEM_FORMING, HOSTMEM_COMPLETE, HOSTMEM_FAILED };

struct hostmem_member {
    uint32_t arrived;
    uint32_t len; /* of its value; if it is above HOSTMEM_VALUE_LEN, only the beginning is here */
    unsigned char value[HOSTMEM_VALUE_LEN];
};

/* All but the atomic members is written under the lock, and does not change once `state` is
 * COMPLETE or FAILED, except that more members may arrive after a failure. */
struct hostmem_scope {
    _Atomic uint32_t changes; /* the futex of the members that wait */
    /* enum hostmem_state. Released after what it publishes: the values of all members, or the
     * failure. A member that polls it without the lock acquires that. */
    _Atomic uint32_t state;
    /* Each member releases its reads of the scope. The last one, or a member that uses the place
     * again, acquires them. */
    _Atomic uint32_t nleft;
    uint32_t nmembers, narrived;
    uint32_t first; /* the world rank that the others are compared with */
    uint32_t segment;
    int32_t status; /* of a failure: enum collrun_status */
    uint64_t segment_len, timeout_ns;
    char name[HOSTMEM_NAME_LEN], identity[HOSTMEM_IDENTITY_LEN];
    char text[HOSTMEM_TEXT_LEN]; /* of a failure */
    struct hostmem_member members[];
};

struct hostmem_head {
    char magic[8];
    uint32_t nranks;             /* of this host */
    uint32_t nscopes, scope_len; /* bytes */
    uint32_t next_segment;       /* where to look for a free slot */
    uint64_t scopes_offset, segments_offset;
    uint64_t segment_len; /* the size of a slot in the file */
    uint64_t mapped_len;  /* up to the segments */
    pthread_mutex_t lock;
    /* 0: free; else members + 1. Each member releases its use of the slot. The last one acquires
     * that, returns the pages and releases the 0, which hostmem_segment_take acquires. */
    _Atomic uint32_t segment_refs[HOSTMEM_SEGMENTS];
};

/* One process's view. */
struct hostmem {
    struct hostmem_head *head;
    int fd;
};

/* The agent's side: a new file for `nranks` ranks. Negative, with the cause in d. */
int hostmem_make(uint32_t nranks, int *fd, struct diag *d);
/* A rank's side. False: `fd` is not such a file. Borrows the descriptor until hostmem_unmap. */
bool hostmem_map(struct hostmem *m, int fd);
void hostmem_unmap(struct hostmem *m); /* no effect on a zeroed struct */

void hostmem_lock(struct hostmem *m);
void hostmem_unlock(struct hostmem *m);

struct hostmem_scope *hostmem_scope_at(const struct hostmem *m, uint32_t index);

/* A slot for `nmembers` members, zeroed; the caller holds the lock. False: all are in use. */
bool hostmem_segment_take(struct hostmem *m, uint32_t nmembers, uint32_t *out);
/* Each member calls it once, after it has unmapped the memory. */
void hostmem_segment_release(struct hostmem *m, uint32_t segment);
uint64_t hostmem_segment_offset(const struct hostmem *m, uint32_t segment);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The last known activity of a rank: the runner's copy of its record (base/record.h), and its
 * description as text.
 */
#ifndef RUNNER_DIAGNOSE_SNAPSHOT_H
#define RUNNER_DIAGNOSE_SNAPSHOT_H

#include "base/wire.h"

struct snapshot_op { /* an operation that has not ended */
    uint64_t number, count;
    uint64_t age_ns;  /* since it was called */
    uint64_t idle_ns; /* since the thread that called it has last called an operation */
    int root_or_peer; /* a rank of the group; -1: none */
    uint32_t tag;
    uint8_t kind, dtype, op, function; /* as in record_view_op */
    uint64_t site;                     /* the address in the rank that called it; 0: not known */
};

struct group_snapshot {
    char name[64];
    char scope[64];              /* unique in the job */
    uint32_t members, rank;      /* how many; of this rank among them */
    bool messages;               /* the numbers count messages, not collectives */
    struct snapshot_op *pending; /* a few, the oldest first; of rank_snapshot.ops */
    uint32_t npending;
    uint64_t started, done, bytes, age_ns, count;
    int root_or_peer;
    uint8_t kind, dtype, op, function; /* as in record_view_op */
};

struct rank_snapshot {
    bool known;        /* a STATUS frame has been received */
    char state;        /* of its main thread, last read from /proc: R S D T Z; 0 = never read */
    uint32_t ended_by; /* the workload whose thread has ended the rank: its index + 1; 0: unknown */
    uint64_t in_fini;  /* of workloads: bit INDEX, of those below 64 */
    uint64_t fini_ns;  /* since the last of them has entered it */
    struct group_snapshot *groups; /* owned */
    struct snapshot_op *ops;       /* owned */
    uint32_t n;
};

/* Decodes the payload of a STATUS frame. False: malformed; `snapshot` is unchanged. */
bool snapshot_read(struct rank_snapshot *snapshot, const struct wire_frame *f);
void snapshot_fini(struct rank_snapshot *snapshot);

/* The last operation of the group's slot, as its library names it; numbered: with its group and
 * number. `tag`: of a message, which the slot does not know. */
void snapshot_call_text(const struct group_snapshot *g, uint32_t tag, char *out, size_t size);
void snapshot_call_numbered(const struct group_snapshot *g, uint32_t tag, char *out, size_t size);
/* "allreduce", "MPI_Allreduce" */
const char *snapshot_kind_name(const struct group_snapshot *g);
/* True if the rank is a member of the group. */
bool snapshot_has_group(const struct rank_snapshot *snapshot, const char *group);
/* True if the rank has called the group's collective with this number. */
bool snapshot_has_called(const struct rank_snapshot *snapshot, const char *group, uint64_t number);
/* Returns the number of operations that the rank has completed in the group; adds its bytes to
 * *bytes. */
uint64_t snapshot_total(const struct rank_snapshot *snapshot, const char *group, uint64_t *bytes);
/* The slot with the operation in progress, the oldest if there are several; NULL: none. */
const struct group_snapshot *snapshot_oldest(const struct rank_snapshot *snapshot);
/* Writes the operation in progress, the oldest if there are several:
 * "allreduce train#12 (1024 x float32, sum)". False: none. */
bool snapshot_inside(const struct rank_snapshot *snapshot, char *out, size_t size);
/* Writes the last completed operation, "after train#17", of the group with the most operations.
 * False: none. */
bool snapshot_after(const struct rank_snapshot *snapshot, char *out, size_t size);
/* How long ago it called the operation in progress, the oldest if there are several; or its last
 * one. False: it has called none. */
bool snapshot_age(const struct rank_snapshot *snapshot, uint64_t *age_ns);

#endif

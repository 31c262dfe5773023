/* SPDX-License-Identifier: Apache-2.0
 *
 * struct group_table: what the groups of a rank have in common. There is one, beside struct
 * process.
 *
 * - The open groups, by name: those of job.yaml and those made at run time.
 * - The closed ones that still have requests, and then the last few as tombstones, so that a call
 *   with a handle that outlived its group is answered, not undefined.
 * - The names that are being created.
 * - How often something was formed under a name in this process, so that the n-th time on one rank
 *   belongs to the n-th time on the others. A name is remembered for the life of the process, as
 *   all members must count alike. A name that collrun makes is used once: its group counts for
 *   itself, and nothing is left of it.
 * - The waits of threads for the other members of a group that are no operations (a create, split
 *   or shrink, collrun_finalize), as FORMING frames, for the report of a stall and the verdict at a
 *   time limit: a member that does not make the call is named there. A thread lists the wait on its
 *   stack. The service thread sends a frame for each that takes longer than FORMING_REPORT_NS, and
 *   another one when it has ended. Wait reports (observe/wait_report.h) list those with a number
 *   from then on. No report is certain while there is another one, unless it is collrun_finalize: a
 *   rank that calls no more is certain to.
 */
#ifndef ENGINE_GROUP_TABLE_H
#define ENGINE_GROUP_TABLE_H

#include "base/buf.h"
#include "base/desc.h"
#include "base/record_queue.h"
#include "base/wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define FORMING_REPORT_NS 300000000ull

struct collrun_group;
struct forming;
struct group_creation;
struct pq_ops;
struct process;

enum { GROUP_TOMBSTONES = 64 };

/* What the layer of operations does for a group. */
struct group_ops {
    const struct pq_ops *requests;                /* of its progress queues */
    void (*closing)(struct collrun_group *group); /* no call is inside, and none will be */
};

struct group_table {
    struct process *process;
    const struct group_ops *ops;
    pthread_mutex_t lock; /* of all that follows */
    struct collrun_group *open;
    struct collrun_group *closed;                       /* whose requests are not all freed */
    struct collrun_group *tombstones[GROUP_TOMBSTONES]; /* the last ones that were closed */
    uint32_t ntombstones;
    struct group_creation *creations; /* groups that are being created, or not yet waited for */
    atomic_bool finalizing; /* collrun_finalize has taken all groups: no thread calls any more */
    void *generations;      /* a tree of them, by name and members */
    struct forming *forming;
};

void group_table_init(struct group_table *t, struct process *process, const struct group_ops *ops);
/* In a forked child, whose copies of the groups belong to its parent: closes each for calls. */
void group_table_abandon(struct group_table *t);
/* Frees the tombstones and forgets the names. All groups are closed. */
void group_table_fini(struct group_table *t);

void group_table_add(struct group_table *t, struct collrun_group *g);
/* Out of the open groups; group_table.closed has it until its last request is freed. */
void group_table_close(struct group_table *t, struct collrun_group *g);
/* Drops one reference. After the last one the group is kept as a tombstone for a while. */
void group_unref(struct collrun_group *g);
struct collrun_group *group_find(struct group_table *t, const char *name); /* an open one; NULL */
/* `g` may be a dead pointer. */
bool group_is_open(struct group_table *t, const struct collrun_group *g);

/* Fails every open group and aborts its backends. From the service thread. */
void group_abort_all(struct group_table *t, int status, const char *why);
/* The same for the groups that `member`, a rank of the job, is in. */
void group_abort_with(struct group_table *t, uint32_t member, int status, const char *why);

/* ---- names that are being created ---- */

struct group_creation {
    const char *name; /* "": not known yet, or no other group can get it */
    bool has_request; /* ops/group_start.c */
    struct group_creation *next;
};
/* EXISTS if a group of this name is open or being created, INVALID once collrun_finalize has begun;
 * the error is set, and nothing else changed. */
int group_creation_add(struct group_table *t, struct group_creation *c);
void group_creation_remove(struct group_table *t, const struct group_creation *c);
bool group_is_being_created(struct group_table *t, const char *name);

/* ---- generations ---- */

/* What the members of a group do together, besides operations, again and again. */
enum generation_of { GENERATION_OF_SPLIT, GENERATION_OF_AGREEMENT, GENERATION_KINDS };

/* All return OK or NO_MEMORY, without a message. */

/* The next generation of this name and these members, from 0 on. */
int generation_next(struct group_table *t, const char *name, const struct desc_ranks *members,
                    uint32_t *out);
/* The generation of the group itself, once. */
int generation_of_group(struct collrun_group *g, uint32_t *out);
/* Numbers the group's splits or agreements: *number from 0 on; *generation is for the rendezvous.
 * Counts them in g->formed. */
int generation_within(struct collrun_group *g, enum generation_of what, uint32_t *number,
                      uint32_t *generation);
/* The id of a name and its members. */
uint64_t generation_id(const char *name, const struct desc_ranks *members);
/* Under the lock of the table: how often each name was used, as {u64 id, u64 times}, behind their
 * number as u32. False: they are more than GENERATION_LISTED, of which no more are listed. */
enum { GENERATION_LISTED = 256 };
bool generation_list(const struct group_table *t, struct buf *out);

/* ---- waits for members ---- */

struct forming {
    struct forming *next;
    enum wire_forming kind;
    const char *name;                 /* of the group; borrowed, like the members */
    const struct desc_ranks *members; /* world ranks */
    /* For a create, how often these members have created a group of this name, with this one
     * (generations), or one without a name. For a split, how often `parent` was split. 0: it is
     * not counted. All members count alike, so one that has counted less has not made this call. */
    uint64_t number;
    uint64_t id; /* of a create: generation_id */
    const struct collrun_group *parent;
    /* What the record has of it (thread_record.h), if this thread is the caller's. */
    uint64_t record_id; /* equal on all members, for this time alone; 0: it is not counted */
    bool requested;     /* a request of the caller is in the record instead */
    int thread;
    uint64_t since_ns;
    bool sent;
    struct record_thread *call;
    struct record_queue slot;
};

/* The id of the `number`-th time (from 1 on) that the members do what `of` names. */
uint64_t forming_record_id(uint64_t of, uint64_t number);
/* The caller fills in what comes before `thread`. `f` is listed until forming_end. */
void forming_begin(struct group_table *t, struct forming *f);
void forming_end(struct group_table *t, struct forming *f);
/* Called by the service thread at every tick. */
void forming_update(struct group_table *t);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank in the process of a test: a group whose backend is the test, the record that its calls
 * write, and cuts of it, which are read through a second mapping of the record, as another process
 * would. Several of them can send to each other.
 */
#ifndef TESTS_UNIT_RECORDED_RANK_H
#define TESTS_UNIT_RECORDED_RANK_H

#include "base/record_cut.h"
#include "null_group.h"
#include "progress/p2p.h"

#include <collrun/collrun.h>
#include <pthread.h>

enum { RANKS = 4, GROUP_ID = 77, PATIENCE_S = 30, MOST_TASKS = 16, MAIL = 256 };

extern const uint32_t world[RANKS]; /* the world ranks of the group's members */

struct letter {
    uint32_t source;
    struct collrun_envelope envelope;
};

/* What is sent arrives at once, unless it is held. */
struct end {
    uint32_t rank;
    struct end *peers[RANKS];
    pthread_mutex_t lock;
    struct letter mail[MAIL]; /* a ring */
    unsigned first, n;
    atomic_bool holds; /* sends are not done */
    atomic_bool fails; /* as when the group was aborted */
    struct collrun_message *held;
    struct p2p *p2p;
    atomic_ulong nsent; /* by the transport */
};

struct rank {
    struct record_head *head;
    void *bytes; /* the same, as a reader maps it */
    size_t len;
    struct collrun_group *group;
    struct end end;
    struct record_task tasks[MOST_TASKS];
    uint32_t ntasks;
    uint32_t words[MOST_TASKS]; /* of the last survey, by task */
    struct arena arena;
};

/* `carried`: messages go through the network; else the backend's exec has them. */
void rank_open(struct rank *r, uint32_t number, uint32_t nranks, bool carried);
void rank_close(struct rank *r);
/* A message for this end. */
void post_letter(struct end *to, uint32_t source, const struct collrun_envelope *envelope);

/* A thread that a survey of the rank finds, and that runs. */
void rank_add_task(struct rank *r, uint32_t tid);
struct record_cut rank_cut(struct rank *r);
/* What the channel with a member of the group counts; NULL: there is none. */
const struct record_cut_channel *rank_channel(const struct record_cut *cut, uint32_t peer,
                                              uint32_t tag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct message: one message from start to end, and the queues that hold them. p2p.c has those
 * that the coordinator matches before they are launched, direct.c those that are launched at their
 * call.
 */
#ifndef NCCL_MESSAGE_H
#define NCCL_MESSAGE_H

#include <collrun/backend.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coord_match_rep;
struct direct_end;
struct event;
struct nccl_group;
struct op;

enum message_state {
    MESSAGE_QUEUED,    /* not sent to the coordinator yet; a direct one: not launched yet */
    MESSAGE_REQUESTED, /* the coordinator looks for the other end */
    MESSAGE_MATCHED,   /* the other end is known */
    MESSAGE_IN_FLIGHT, /* on the GPUs */
    MESSAGE_DONE
};

struct message {
    struct message *next; /* in one of the queues of struct p2p, or of a direct_end */
    struct op *op;
    const struct collrun_call *call;
    struct event *before_evt; /* records what its caller's stream held; NULL: of the engine, or
                                 launched at its call */
    bool owns_before_evt;     /* false: it shares the event of the message before it */
    bool cross_dep;           /* that stream may wait for an unfinished operation */
    bool ends_epoch;          /* the last one of those that are launched together */
    enum message_state state;
    uint32_t id; /* while REQUESTED */
    /* From MATCHED on; of a direct one from IN_FLIGHT on. */
    uint32_t peer_rank; /* the communicator rank of the other end */
    uint32_t tag;       /* the sender's */
    size_t count;       /* elements that move: the sender's */
    /* A direct one. */
    struct direct_end *direct; /* NULL: it is none */
    struct event *after_evt;   /* behind it; NULL: it has no elements */
    bool owns_after_evt;       /* the last one of those that were launched together does */
    bool pinned;               /* a stream of the program waits for it */
    uint64_t seq;              /* its number among those that the direction has launched */
};

struct message_queue {
    struct message *first, **end;
};

static inline void message_queue_init(struct message_queue *q)
{
    q->first = NULL;
    q->end = &q->first;
}

static inline void message_push(struct message_queue *q, struct message *m)
{
    m->next = NULL;
    *q->end = m;
    q->end = &m->next;
}

static inline struct message *message_unlink(struct message_queue *q, struct message **link)
{
    struct message *m = *link;
    *link = m->next;
    if (!m->next)
        q->end = link;
    m->next = NULL;
    return m;
}

/* Takes out all messages of an op. */
void message_drop_all(struct message_queue *q, const struct op *op);
/* False if its caller's stream may wait for an operation that has not ended. */
bool message_is_ready(struct nccl_group *g, struct message *m);
/* Its end: the results of the call are written. */
void message_complete(const struct nccl_group *g, struct message *m);
/* Whether a call and the other end, as the coordinator reports it, agree about count and type. */
bool message_agrees(const struct collrun_call *c, const struct coord_match_rep *rep);
/* Fails the group because they do not; `tag` is the sender's. */
void message_mismatch(struct nccl_group *g, const struct collrun_call *call, uint32_t tag,
                      const struct coord_match_rep *rep);

#endif

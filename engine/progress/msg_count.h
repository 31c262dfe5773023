/* SPDX-License-Identifier: Apache-2.0
 *
 * The number of messages sent to and received from each member, by tag. One thread at a time counts
 * (the owner of the queue); another may read at the same time.
 */
#ifndef ENGINE_PROGRESS_MSG_COUNT_H
#define ENGINE_PROGRESS_MSG_COUNT_H

#include <collrun/types.h>

#include <stdatomic.h>

/* Size of the table at first and after it has grown. If it is full, counting stops. */
enum { MSG_COUNT_FEW = 64, MSG_COUNT_MOST = 4096 };

/* The thread that counts reads its own stores, relaxed. It releases a count, and `lost`, before the
 * message leaves what the reader has looked at first: the list of requests, or the blocking call.
 * So a reader that no longer finds a message there finds it here. A key whose counts are 0 yet, or
 * a key that is not seen yet, is one of messages that are still there. */
struct msg_count_entry {
    _Atomic uint64_t key; /* 1 + (member << 32 | tag); 0: free */
    _Atomic uint64_t sent, received;
};

struct msg_count_table {
    uint32_t size, used;
    struct msg_count_entry entries[];
};

struct msg_count {
    /* NULL: no message yet. Released with its entries, when it is new. */
    _Atomic(struct msg_count_table *) table;
    struct msg_count_table *outgrown; /* a reader may be in it */
    atomic_bool lost;                 /* too many tags, or out of memory: the counts are invalid */
};

/* A message to or from a member succeeded. */
void msg_count_add(struct msg_count *t, bool sent, uint32_t member, uint32_t tag);
/* The same for a call that the backend has matched. Without `source` or `received_tag` where the
 * call accepts any, the counts are lost. */
void msg_count_add_call(struct msg_count *t, const struct collrun_call *call);
void msg_count_fini(struct msg_count *t); /* no thread counts or reads any more */

static inline uint32_t msg_count_member(const struct msg_count_entry *e)
{
    return (uint32_t)((e->key - 1) >> 32);
}

static inline uint32_t msg_count_tag(const struct msg_count_entry *e)
{
    return (uint32_t)(e->key - 1);
}

#endif

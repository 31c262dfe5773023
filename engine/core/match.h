/* SPDX-License-Identifier: Apache-2.0
 *
 * struct match: which message belongs to which receive, for one receiver. It holds the posted
 * receives (their message has not arrived) and the unexpected messages (their receive has not been
 * posted). A pure data structure: no I/O, no locks, and no allocation per entry, because an entry
 * is embedded in a struct of the caller.
 *
 * Rules:
 *   - a receive takes messages of its tag or, with MATCH_ANY_TAG, of all tags of workloads; from
 *     its source or, with MATCH_ANY_SOURCE, from all
 *   - match_take_unexpected gives the oldest message that the receive takes
 *   - match_take_posted gives the oldest receive that takes the message
 *   - so messages of one source and tag are received in order of arrival, and receives are served
 *     in the order in which they were posted
 *
 * Cost: constant, however many entries are queued. Each queue is a hash table of lists, one list
 * for each pair of source and tag. An unexpected message is in two lists, (source, tag) and (any
 * source, tag), so every receive finds its oldest message at the head of one list. An arriving
 * message compares the heads of the lists of posted receives that can take it. After the first use
 * of MATCH_ANY_TAG, a message is also in (source, any tag) and (any source, any tag), and those
 * that were queued before are added, once. All unexpected messages are also in one list in order of
 * arrival.
 *
 * A receive that is posted while no other is stays outside the table: most messages need no hash.
 *
 * Failure modes: none. A hash table that cannot grow for lack of memory stays as it is, and is
 * slower.
 */
#ifndef ENGINE_CORE_MATCH_H
#define ENGINE_CORE_MATCH_H

#include <collrun/backend.h>
#include <stdbool.h>
#include <stdint.h>

#define MATCH_ANY_SOURCE UINT32_MAX
#define MATCH_ANY_TAG UINT32_MAX
/* Messages with this tag or a larger one are the engine's: MATCH_ANY_TAG does not take them. */
#define MATCH_ENGINE_TAG COLLRUN_ENGINE_TAG

/* An element of the list of one key. The lists are circular; the head is in the hash table. */
struct match_link {
    uint64_t key;
    struct match_link *next, *prev;
    struct match_link *chain; /* valid in a head: the head of the next list in its bucket */
};

enum { MATCH_EXACT, MATCH_OF_TAG, MATCH_OF_SOURCE, MATCH_OF_ALL, MATCH_LISTS };

/* A receive or a message. The caller fills in the first four members. The entry stays where it is
 * until it is taken out or dropped. */
struct match_entry {
    uint32_t source; /* of a receive: may be MATCH_ANY_SOURCE */
    uint32_t tag;    /* of a receive: may be MATCH_ANY_TAG */
    uint64_t count;
    uint32_t dtype;
    uint32_t nlists;                     /* of a message: that it is in */
    uint64_t order;                      /* of posting */
    struct match_link link[MATCH_LISTS]; /* a receive uses the first one only */
    struct match_entry *next, *prev;     /* of a message: in order of arrival */
};

enum { MATCH_FEW_BITS = 3 };

struct match_table {
    struct match_link **buckets; /* 1 << bits; `few` until the table has grown */
    uint32_t bits, nlists;
    struct match_link *few[1 << MATCH_FEW_BITS];
};

struct match {
    struct match_table posted, unexpected;
    struct match_entry *only; /* the one posted receive, if it is not in the table; else NULL */
    struct match_entry *oldest, *newest; /* of the unexpected messages */
    bool any_tag; /* MATCH_ANY_TAG was used: messages are in the lists of any tag, too */
    uint64_t nposted, nunexpected;
    uint64_t nposted_any; /* of the posted receives in the table, those of any source or tag */
    uint64_t order;       /* of the last receive that was posted */
};

typedef void match_drop_fn(struct match_entry *entry, void *ctx);

/* The struct points into itself: it stays where it is. */
void match_init(struct match *m);
/* Calls the one or the other function for every entry that is left; NULL: for none. They may free
 * the entry. */
void match_fini(struct match *m, match_drop_fn *drop_receive, match_drop_fn *drop_message,
                void *ctx);

/* Queue an entry that has found no partner. */
void match_add_posted(struct match *m, struct match_entry *receive);
void match_add_unexpected(struct match *m, struct match_entry *message);

/* Take the partner of an arriving message, or of a new receive, out of its queue. NULL: none. */
struct match_entry *match_take_posted(struct match *m, uint32_t source, uint32_t tag);
struct match_entry *match_take_unexpected(struct match *m, uint32_t source, uint32_t tag);
/* The message that match_take_unexpected would take; it stays queued. */
struct match_entry *match_find_unexpected(struct match *m, uint32_t source, uint32_t tag);

/* Takes out a receive that is posted. */
void match_withdraw_posted(struct match *m, struct match_entry *receive);
/* The oldest posted receive with this very source and tag, and the next newer one; NULL: none. */
struct match_entry *match_first_posted(struct match *m, uint32_t source, uint32_t tag);
struct match_entry *match_next_posted(struct match *m, const struct match_entry *receive);

/* ---- for backends ---- */

/* struct match, lent to backends: see struct collrun_match_ops in <collrun/backend.h>. */

extern const struct collrun_match_ops match_ops;

#endif

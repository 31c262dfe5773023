/* SPDX-License-Identifier: Apache-2.0
 *
 * Can anybody go on? Ranks that have said what all their threads wait for (watch/waits.h) are held
 * against each other: a wait may end if what it needs is posted, is under way, or can still be
 * called by a rank that may go on; a rank may go on if one of its threads may. Whoever is left can
 * never go on: the ranks wait for each other, or for one that has ended.
 *
 * Old words do not mislead. Suppose that one of those left did go on after it had spoken, and take
 * the first one: it needed another of them, which cannot have done so after it spoke, being later,
 * nor before, because then its word would say so.
 */
#ifndef WATCH_DEADLOCK_H
#define WATCH_DEADLOCK_H

#include "base/desc.h"
#include "watch/ranks.h"

/* A wait with a shorter time-out ends soon by itself, and the program may count on that. */
#define DEADLOCK_PATIENCE_NS 30000000000ull

/* True: some ranks can never go on; the sentence says which wait for whom. Only what is certain;
 * `explain` is for a job that has failed by a time-out: it takes unsure words and short time-outs,
 * too. */
bool deadlock_find(const struct desc *desc, const struct rank_state *ranks, bool explain,
                   struct diag *d);

#endif

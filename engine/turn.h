/* SPDX-License-Identifier: Apache-2.0
 *
 * What the holder of a lane's turn does with it: start or execute what is queued, ask what is
 * flying, finish what has ended.
 */
#ifndef ENGINE_TURN_H
#define ENGINE_TURN_H

#include "group.h"

/* Who takes the turn, and what for. */
struct errand {
    bool may_block; /* also what only exec can do */
    const struct collrun_request
        *awaited; /* enough when this one is finished; NULL: all there is */
};

/* Starts or executes what is queued. True if there was something. */
bool turn_drain_queue(struct lane *lane, const struct errand *errand);
/* Asks every started request once. True if one finished. */
bool turn_ask_flying(struct lane *lane);
/* Between two rounds without any progress. */
void turn_idle(unsigned round);

static inline bool request_is_finished(const struct collrun_request *r)
{
    return atomic_load_explicit(&r->status, memory_order_acquire) != COLLRUN_AGAIN;
}

static inline bool request_is_message(const struct collrun_request *r)
{
    return group_lane_of(r->calls[0].kind) == GROUP_MESSAGES;
}

#endif

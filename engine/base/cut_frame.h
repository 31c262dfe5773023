/* SPDX-License-Identifier: Apache-2.0
 *
 * The payload of SNAPSHOT: cuts of ranks (base/record_cut.h), as the agent of their host takes them
 * and the runner keeps them. The fields of each struct are listed once, in cut_frame.c, and both
 * functions are made of that list.
 *
 * - The head is struct cut_frame; then follow its `n` cuts.
 * - A cut is sent when it differs from the last one of its rank. A rank that goes on after a cut is
 *   sent once as MOVING, with the present words of its threads and nothing else: a call that its
 *   cut shows, and whose word is the same, has not returned.
 * - A list of members that is a range is sent as one: its first rank and its step.
 */
#ifndef ENGINE_BASE_CUT_FRAME_H
#define ENGINE_BASE_CUT_FRAME_H

#include "base/buf.h"
#include "base/record_cut.h"

struct cut_frame {
    uint64_t now_ns; /* CLOCK_MONOTONIC of the agent, which is that of all times in the cuts */
    uint64_t look;   /* the number of the LOOK that it answers, as its last frame; 0: none */
    uint32_t n;
};

void cut_frame_put(struct buf *out, const struct cut_frame *frame);
void cut_frame_put_cut(struct buf *out, const struct record_cut *cut);

/* Where these find that the bytes are no such payload, the reader is bad. */
struct cut_frame cut_frame_read(struct reader *r);
/* The cut is in the arena. Its numbers are in range for a job of `nranks` ranks: it can be given to
 * proofs, whatever the bytes are. */
void cut_frame_read_cut(struct reader *r, uint32_t nranks, struct arena *arena,
                        struct record_cut *cut);

#endif

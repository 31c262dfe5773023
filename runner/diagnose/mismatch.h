/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks to blame for calls that differ: of the records of all members the minority
 * (diagnose/align.h); without records, of the calls that the ranks are in; without either,
 * the ranks that the engine's error message names. The functions set culprits or suspects, calls,
 * field and the message of a verdict whose class and exit code are set.
 */
#ifndef RUNNER_DIAGNOSE_MISMATCH_H
#define RUNNER_DIAGNOSE_MISMATCH_H

#include "diagnose/verdict_types.h"

/* True if the rank has failed because its call of a collective differs from that of one other
 * member, and further members may not have called it yet: then no majority is known. */
bool mismatch_is_partial(const struct desc *desc, const struct rank_state *r);
/* For CAUSE_MISMATCH. */
void mismatch_blame(const struct evidence *e, struct arena *arena, struct verdict *v);
/* A wait, an error of a backend or a connection that broke may have a mismatch as its cause, if the
 * records show one: then the class becomes CAUSE_MISMATCH. */
bool mismatch_find_hidden(const struct evidence *e, struct arena *arena, struct verdict *v);
/* The same if members have destroyed a group, v->group if that is set, and others have called more
 * collectives in it, which did not complete. */
bool mismatch_find_destroyed(const struct evidence *e, struct arena *arena, struct verdict *v);
/* The same if ranks wait for each other in the creation of different groups, or did until the
 * time-out that the verdict is about. */
bool mismatch_find_forming(const struct evidence *e, struct arena *arena, struct verdict *v);
/* The culprits, which are set, have called operation v->number of v->group; `ended` will not: the
 * class becomes CAUSE_MISMATCH. */
void mismatch_blame_extra(const struct evidence *e, const struct desc_ranks *ended,
                          struct arena *arena, struct verdict *v);

/* Appends v->calls: "ranks 0 and 2-3 call MPI_Bcast(...) at main (a.c:12), rank 1 calls
 * MPI_Reduce(...)". */
void mismatch_append_calls(const struct evidence *e, const struct verdict *v, struct diag *d);

#endif

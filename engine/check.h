/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be known to be wrong with a call before anything is sent: enum values, counts and their
 * products, roots and peers, missing and overlapping buffers, operators on element types that they
 * have no meaning for, and what the backend cannot do at all. A refused call leaves the group as it
 * was.
 */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include <collrun/types.h>

struct collrun_group;

/* OK, INVALID or UNSUPPORTED; on failure collrun_error() holds the sentence. `call` is complete
 * (see call_import). */
int call_check(const struct collrun_group *g, const struct collrun_call *call);
/* Copies a caller's struct, of whatever age, into a complete one. INVALID if its size is none. */
int call_import(const struct collrun_group *g, const struct collrun_call *theirs,
                struct collrun_call *out);

/* Of a checked call: arrays that this kind, or this rank in it, does not use become NULL, so that
 * nobody reads them. */
void call_trim(const struct collrun_group *g, struct collrun_call *call);

/* Calls that a workload may mark with a tag use less than this; what the engine sends by itself has
 * it. */
#define TAG_ENGINE (1u << 31)

#endif

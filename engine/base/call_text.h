/* SPDX-License-Identifier: Apache-2.0
 *
 * A call as messages show it, in one format for engine, backends and runner:
 *   barrier()                      allreduce(8 x float32, sum)     broadcast(8 x float32, root 2)
 *   send(10 x int32, to 1, tag 3)  recv(10 x int32, from 0)        recv_any(10 x int32, tag 3)
 *   gatherv(float32, root 0)       recv(up to 8 x int32, from 0, any tag)   probe(from 2, tag 7)
 * or, with its group and number: allreduce train#1042 (8 x float32, sum).
 *
 * A tag of 0 and a root or peer below 0 are left out. The vector forms have a count per rank, so
 * none is shown. The functions read only kind, count, dtype, op, root, peer and tag of a call, and
 * `received` if its size includes that; values out of range print as "?". Output is always
 * terminated, and cut if `len` is too small.
 */
#ifndef ENGINE_BASE_CALL_TEXT_H
#define ENGINE_BASE_CALL_TEXT_H

#include <collrun/types.h>

enum { CALL_TEXT_LEN = 160 }; /* enough for any call without a group */

void call_text(const struct collrun_call *call, char *out, size_t len);
void call_text_numbered(const struct collrun_call *call, const char *group, uint64_t number,
                        char *out, size_t len);

#endif

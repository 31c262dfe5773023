/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction kernels behind collrun_services.reduce: thirteen element types times eleven
 * operators, n sources at a time, vectorised for the CPU found at run time. types.h defines what
 * the operators mean; this file decides what types.h leaves open:
 *   - AVG of integers is the wrapped SUM of the type, divided by the group's size, rounded toward
 *     zero. AVG of bool follows the same rule: (or) / size.
 *   - A bool byte other than 0 counts as 1; L* operators yield 0 or 1 even from a single source.
 *   - Sources combine from left to right, so a result depends on the order of `srcs` and on nothing
 *     else.
 *   - FLOAT16 and BFLOAT16 stay in float32 over all sources of one call and are rounded once, to
 *     nearest even.
 *   - MIN and MAX of equal values that differ in the sign of zero may return either.
 */
#ifndef ENGINE_CORE_REDUCE_H
#define ENGINE_CORE_REDUCE_H

#include "base/names.h"

/* Whether types.h gives `op` on `dtype` a meaning: B* and L* exist for integers and bool only. */
bool op_valid_for(enum collrun_op op, enum collrun_dtype dtype);

/* dst[i] = srcs[0][i] op srcs[1][i] op ..., nsrcs >= 1. dst may be any of the sources, and overlaps
 * none otherwise. No alignment is needed. With AVG and divisor > 0 the sums are divided; divisor 0
 * leaves plain sums. An (op, dtype) that op_valid_for refuses leaves dst as it is. Thread-safe. */
void reduce_vectors(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                    enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor);

/* Partial results, for reductions in several steps: float32 for half precision, else the dtype
 * itself. They are combined by reduce_vectors with that dtype and a divisor of 0.
 *   reduce_to_partial: the operand of one rank as a partial result of `op`.
 *   reduce_from_partial: a partial result as the result, rounded once; a divisor > 0 divides it, as
 *   AVG does.
 * `dst` may be `src` if both have the same dtype, and overlaps it in no other way. */
enum collrun_dtype reduce_partial_dtype(enum collrun_dtype dtype);
void reduce_to_partial(void *dst, const void *src, size_t count, enum collrun_dtype dtype,
                       enum collrun_op op);
void reduce_from_partial(void *dst, const void *src, size_t count, enum collrun_dtype dtype,
                         uint32_t divisor);

#endif

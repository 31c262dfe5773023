/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's element types and operators, with the results of NCCL, not better ones: half
 * precision is rounded after every addition, a floating AVG multiplies each input by 1/n before it
 * sums, an integer AVG divides toward zero at the end, MIN and MAX of floating values drop a NaN.
 */
#ifndef FAKE_ARITH_H
#define FAKE_ARITH_H

#include <stddef.h>

/* Bytes of an element; 0: no such type. */
size_t arith_size(int type);
/* out[i] = srcs[0][i] op ... op srcs[n-1][i]; the vectors need no alignment, out overlaps none. */
void arith_reduce(void *out, const char *const *srcs, int n, size_t count, int type, int op);

#endif

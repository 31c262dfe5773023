/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in words, for sentences about ranks that disagree: "allreduce(1000 x float32, sum)".
 */
#ifndef SHM_EXPLAIN_H
#define SHM_EXPLAIN_H

#include "step.h"

void explain_signature(const struct signature *s, char *out, size_t len);

/* Names as types.h spells them, in lower case; "?" for a number that is none. */
const char *dtype_name(unsigned dtype);

#endif

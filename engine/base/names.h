/* SPDX-License-Identifier: Apache-2.0
 *
 * The words for the numbers of types.h, as people type them: "reduce_scatterv", "bfloat16", "sum".
 * Every function returns NULL for a number that has no name, so it also answers whether an enum
 * value is one that this build knows.
 */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include <collrun/types.h>

const char *kind_name(enum collrun_kind kind);
const char *dtype_name(enum collrun_dtype dtype);
const char *op_name(enum collrun_op op);

#endif

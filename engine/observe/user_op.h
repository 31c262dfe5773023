/* SPDX-License-Identifier: Apache-2.0
 *
 * An operator of the caller, struct collrun_user_op. The engine alone executes calls that have one;
 * no backend sees them.
 */
#ifndef ENGINE_OBSERVE_USER_OP_H
#define ENGINE_OBSERVE_USER_OP_H

#include <collrun/types.h>

/* NULL, or what is wrong with it: "it has no name". */
const char *user_op_flaw(const struct collrun_user_op *op);

/* How many elements belong together; 1 for NULL. */
static inline size_t user_op_unit(const struct collrun_user_op *op)
{
    return op && op->unit ? (size_t)op->unit : 1;
}

/* Equal for operators that agree in all that ranks can compare: name, unit, commutative. 0: NULL.
 */
uint64_t user_op_hash(const struct collrun_user_op *op);

#endif

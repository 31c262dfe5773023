/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the numbers of types.h, as people type them: "reduce_scatterv", "bfloat16", "sum".
 * A number without a name is "?"; the _is_known functions answer whether this build has it. And the
 * sizes of element types.
 */
#ifndef ENGINE_BASE_NAMES_H
#define ENGINE_BASE_NAMES_H

#include <collrun/types.h>

/* In the place of an operator: the call has an operator of the caller (user_op). */
enum { OP_USER = 255 };

const char *kind_name(enum collrun_kind kind);
const char *dtype_name(enum collrun_dtype dtype);
/* "SIGKILL", "SIGRTMIN+3", "signal 99". Valid until the next call of this thread. */
const char *signal_name(int sig);
const char *op_name(enum collrun_op op);     /* of OP_USER: "user op" */
const char *status_text(int status);         /* "timed out"; what collrun_strstatus() returns */
const char *backend_flag_name(unsigned bit); /* "one_host" for bit 0; NULL past the last one */

/* In reports, the kind of what a rank in collrun_probe waits in. It is no kind of a call. */
#define KIND_PROBE ((enum collrun_kind)255)
/* In wait reports, the kinds of what a rank waits in for all members of a new group, and for all
 * members of a group that is split. */
#define KIND_CREATE ((enum collrun_kind)254)
#define KIND_SPLIT ((enum collrun_kind)253)

/* Bytes of one element; 0 if `dtype` is none of types.h. */
extern const uint8_t dtype_sizes[COLLRUN_DTYPE_COUNT];
static inline size_t dtype_size(enum collrun_dtype dtype)
{
    return (size_t)dtype < COLLRUN_DTYPE_COUNT ? dtype_sizes[dtype] : 0;
}

static inline bool kind_is_collective(enum collrun_kind kind)
{
    return !collrun_kind_is_message(kind) && kind != KIND_PROBE;
}

static inline bool kind_is_known(enum collrun_kind kind)
{
    return (unsigned)kind < COLLRUN_KIND_COUNT;
}

static inline bool dtype_is_known(enum collrun_dtype dtype)
{
    return (unsigned)dtype < COLLRUN_DTYPE_COUNT;
}

static inline bool op_is_known(enum collrun_op op)
{
    return (unsigned)op < COLLRUN_OP_COUNT;
}

#endif

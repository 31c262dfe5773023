/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that is equal on all members of a group: its backends, with their versions, and its
 * check.
 */
#ifndef ENGINE_GROUP_GROUP_IDENTITY_H
#define ENGINE_GROUP_GROUP_IDENTITY_H

#include "base/hostmem.h"

struct collrun_group;

/* "gloo 1.0 (Gloo 0.5), ABI 1; nccl 1.0, ABI 1, check: strict". One that is too long is cut, after
 * a hash of the whole. False: out of memory. */
bool group_identity(const struct collrun_group *g, char out[HOSTMEM_IDENTITY_LEN]);

#endif

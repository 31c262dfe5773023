/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend of a group that is made at run time.
 */
#ifndef ENGINE_GROUP_GROUP_BACKEND_H
#define ENGINE_GROUP_GROUP_BACKEND_H

#include "base/desc.h"

struct backend;
struct process;

/* By its name; NULL or "auto": the best backend of the job for these ranks. It is open. NOT_FOUND,
 * UNAVAILABLE, or UNSUPPORTED: it does not suit the ranks. */
int group_find_backend(struct process *p, const char *name, const struct desc_ranks *members,
                       struct backend **out, struct diag *d);

#endif

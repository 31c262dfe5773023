/* SPDX-License-Identifier: Apache-2.0
 *
 * struct registry: the backends of this process, by name. A backend is loaded when a group first
 * needs it: from its path in the job, else from the directory of installed backends
 * (lib/collrun/backends, beside this library). Only backends that the job names are loaded. Two
 * files with the same backend name are an error that shows both paths.
 */
#ifndef ENGINE_CORE_REGISTRY_H
#define ENGINE_CORE_REGISTRY_H

#include "core/backend.h"

#include <pthread.h>

struct process;

struct registry {
    pthread_mutex_t lock;
    struct backend **items;
    uint32_t n;
};

void registry_init(struct registry *r);
/* Loads and opens `name` unless that has been done. Case is ignored. NOT_FOUND if there is no
 * such backend. Borrowed. */
int registry_get(struct process *p, const char *name, struct backend **out, struct diag *d);
/* The same, but does not open it. */
int registry_load(struct process *p, const char *name, struct backend **out, struct diag *d);
/* Loads `name` unless that has been done, and asks it whether it works here; does not open it.
 * NOT_FOUND, UNAVAILABLE, or why it cannot be loaded. */
int registry_probe(struct process *p, const char *name, struct diag *d);
void registry_fini(struct registry *r); /* closes and frees */

/* Adds a loaded backend. EXISTS, with both paths, if its name is taken. On failure `b` stays the
 * caller's. */
int registry_add(struct registry *r, const struct backend *b, struct backend **out, struct diag *d);

#endif

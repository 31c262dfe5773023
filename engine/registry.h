/* SPDX-License-Identifier: Apache-2.0
 *
 * struct registry: the backends of this process, by name. A backend comes in when a group first
 * asks for it: from the path that the job gives for its name, else from the directory of installed
 * backends (lib/collrun/backends, beside this library). Nothing is loaded that nobody named. A name
 * that two files claim is an error that names both.
 */
#ifndef ENGINE_REGISTRY_H
#define ENGINE_REGISTRY_H

#include "backend.h"

#include <pthread.h>

struct engine;

struct registry {
    pthread_mutex_t lock;
    struct backend **items;
    uint32_t n;
};

void registry_init(struct registry *r);
/* Loads and opens `name` unless that has been done. Case does not count. NOT_FOUND if there is no
 * such backend. Borrowed. */
int registry_get(struct engine *e, const char *name, struct backend **out, struct diag *d);
void registry_fini(struct registry *r); /* closes and frees */

/* Takes a loaded backend in, or says whose name it claims. On failure `b` stays the caller's. */
int registry_add(struct registry *r, const struct backend *b, struct backend **out, struct diag *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct memory_kinds: the kinds of device memory that are open in this process. A kind is opened
 * when a group first needs it: those that the rank owns devices of before any group is formed, that
 * of a backend before the first group on that backend. It stays open until the rank ends.
 */
#ifndef ENGINE_CORE_MEMORY_KINDS_H
#define ENGINE_CORE_MEMORY_KINDS_H

#include "base/diag.h"
#include "core/memory_kind.h"

#include <pthread.h>

struct backend;
struct process;

struct memory_kinds {
    pthread_mutex_t lock;
    struct memory_kind_set open; /* first those that the rank owns devices of */
    uint32_t nowned;
};

void memory_kinds_init(struct memory_kinds *kinds);
/* Opens the kinds that the rank owns devices of, in the order of the desc. */
int memory_kinds_open_owned(struct process *p, struct diag *d);
/* The kind of a backend's device memory; NULL if it has none. NOT_FOUND if no backend of the job
 * declares it, EXISTS if two do. */
int memory_kinds_of_backend(struct process *p, struct backend *b, struct memory_kind **out,
                            struct diag *d);
/* True if the rank owns devices of the kind that the backend works on. Opens nothing. */
bool memory_kinds_owned_by(const struct process *p, const struct backend *b);
void memory_kinds_fini(struct memory_kinds *kinds); /* closes and frees */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct services: the functions of the engine for a backend (struct collrun_services), once
 * for the backend and once for each of its groups. Log texts are sent to the runner with the names
 * of backend and group in front. Failures are stored in the error record of the calling thread.
 * Options are looked up in the group first, then in the backend.
 */
#ifndef ENGINE_CORE_SERVICES_H
#define ENGINE_CORE_SERVICES_H

#include <collrun/backend.h>

struct control;
struct desc_kvs;
struct memory_kind;

struct services {
    struct collrun_services table; /* what backends get */
    struct control *control;       /* NULL: log texts are dropped */
    char log_prefix[160];          /* "shm", "shm, group train" */
    const uint32_t
        *world_rank;         /* of the group's members, by their rank; NULL: no group; borrowed */
    const struct desc *desc; /* of a group: to explain time-outs by its connections; else NULL */
    const char *address;     /* of this host */
    uint32_t host;           /* of this process */
    const struct memory_kind *kind;    /* of the backend's device memory; NULL: it has none */
    const struct desc_kvs *options[2]; /* in the order of look-up; either may be NULL; borrowed */
};

/* `s` must not move: its table points to it. */
void services_init(struct services *s, struct control *control, const struct desc_kvs *first,
                   const struct desc_kvs *second, const char *prefix_format, ...)
    __attribute__((format(printf, 5, 6)));

#endif

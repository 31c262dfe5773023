/* SPDX-License-Identifier: Apache-2.0
 *
 * struct services: what the engine lends to a backend (struct collrun_services), once for the
 * backend as a whole and once for each of its groups. Logging goes to the runner with the speaker's
 * name in front, failures to the calling thread's error record, options to the group's first and
 * then the backend's.
 */
#ifndef ENGINE_SERVICES_H
#define ENGINE_SERVICES_H

#include <collrun/backend.h>

struct control;
struct desc_kvs;

struct services {
    struct collrun_services lent;
    struct control *control; /* NULL: nobody listens */
    char speaker[160];       /* "shm", "shm, group train" */
    const struct desc_kvs
        *options[2]; /* in the order they are asked; either may be NULL; borrowed */
};

/* `s` must stay where it is: what is lent points to it. */
void services_init(struct services *s, struct control *control, const struct desc_kvs *first,
                   const struct desc_kvs *second, const char *speaker_format, ...)
    __attribute__((format(printf, 5, 6)));

#endif

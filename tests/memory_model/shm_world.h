/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of the shm backend whose ranks are the threads of a run.
 */
#ifndef TESTS_MEMORY_MODEL_SHM_WORLD_H
#define TESTS_MEMORY_MODEL_SHM_WORLD_H

#include <collrun/backend.h>

#include <stdbool.h>
#include <stdint.h>

struct shm_world {
    uint32_t nranks;
    bool oversubscribed; /* more ranks than cores */
    void *groups[4];     /* of each rank */
    char errors[4][512]; /* each rank's last one */
};
extern struct shm_world shm_world;

/* Before a run. The group of the run before is closed, if that ended well. `p2p` may be NULL. */
void shm_world_open(uint32_t nranks, bool oversubscribed, const struct collrun_p2p p2p[]);
int shm_world_exec(uint32_t rank, const struct collrun_call *call);
extern const struct collrun_backend collrun_backend_v1;

#endif

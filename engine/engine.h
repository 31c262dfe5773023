/* SPDX-License-Identifier: Apache-2.0
 *
 * struct engine: the process of one rank, as a whole. There is one; it lives from WELCOME to exit.
 * Every part that needs more than its own state is handed a pointer to it.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/desc.h"
#include "base/record.h"
#include "control.h"
#include "registry.h"
#include "waits.h"

struct collrun_ctx;
struct collrun_group;

/* How often a group of this name and these members has been formed in this process. */
struct generation {
    char *name;
    uint64_t hash;
    uint32_t next;
    struct generation *after;
};

enum { ENGINE_RETIRED = 64 };

struct engine {
    struct control control;
    struct arena arena; /* everything that lives as long as the process */
    struct desc desc;
    uint32_t rank, attempt, host;
    const char *address, *interface;
    uint32_t ncpus; /* of this host, for all its ranks together */
    uint32_t ngpus; /* that this rank owns */
    struct registry registry;
    struct record_page *record; /* what the agent reads of this rank; NULL: nobody does */
    struct waits waits;         /* the service thread's own */

    pthread_mutex_t groups_lock;
    struct collrun_group *groups; /* open ones, of job.yaml and made at run time */
    struct generation *generations;
    struct collrun_group *retired[ENGINE_RETIRED]; /* the last ones that were closed */
    uint32_t nretired;

    struct collrun_ctx *tasks; /* the workloads of this rank, in file order */
    uint32_t ntasks;
};

#endif

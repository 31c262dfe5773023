/* SPDX-License-Identifier: Apache-2.0
 *
 * What is remembered about the stalls of each group: whether it waits now, and how many stalls have
 * passed. A job may form any number of groups under new names: of more than STALL_EPISODES_MAX,
 * those that have not waited for the longest time are forgotten.
 */
#ifndef RUNNER_DIAGNOSE_STALL_EPISODES_H
#define RUNNER_DIAGNOSE_STALL_EPISODES_H

#include <stdbool.h>
#include <stdint.h>

enum { STALL_EPISODES_MAX = 1024 };

struct json_t;

struct stall_episode { /* of the oldest wait of one kind in one group */
    struct stall_episode *next;
    char scope[64];
    bool messages;
    uint64_t number; /* of the operation; 0: nothing waits */
    uint64_t since_ns;
    uint64_t report_ns;    /* the age at which it is reported next */
    unsigned passed;       /* stalls of this group that were reported and have passed */
    struct json_t *report; /* of the last block; NULL: not reported. The caller frees it. */
    bool present;
};

struct stall_episodes { /* all zero: none */
    struct stall_episode *first;
    uint32_t n;
    uint64_t left_out; /* groups that were forgotten */
};

/* Returns the episode of a group, a new one if it has none. `scope` has 64 bytes. */
struct stall_episode *stall_episodes_get(struct stall_episodes *e, const char *scope,
                                         bool messages);
/* Frees all; reports must have been freed. */
void stall_episodes_fini(struct stall_episodes *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank uses, as its agent last measured it (USAGE): CPU, memory, and the durations of its
 * operations in the last second, by group.
 */
#ifndef RUNNER_DIAGNOSE_USAGE_H
#define RUNNER_DIAGNOSE_USAGE_H

#include "base/wire.h"

struct usage_group {
    char name[64]; /* of a formation of this group; a name may be there twice */
    uint32_t operations;
    uint64_t sum_ns, longest_ns; /* of their durations, from call to end */
};

struct rank_usage {             /* all zero: not known */
    uint64_t cpu_us;            /* since the start of the process */
    uint64_t memory;            /* bytes */
    double cpu;                 /* CPUs that it used in the last second or so; -1: not known */
    uint64_t before_us;         /* cpu_us, at before_ns */
    uint64_t before_ns;         /* 0: none */
    struct usage_group *groups; /* owned */
    uint32_t n;
};

/* Decodes the payload of a USAGE frame. False: malformed; `u` is unchanged. */
bool usage_read(struct rank_usage *u, const struct wire_frame *f, uint64_t now_ns);
void usage_fini(struct rank_usage *u);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runner knows of each rank: how far it has come, and how it ended. Plain state, filled in
 * from frames by launch/supervise.c, read by cause.c.
 */
#ifndef WATCH_RANKS_H
#define WATCH_RANKS_H

#include "base/diag.h"
#include "base/wire.h"
#include "watch/seen.h"
#include "watch/waits.h"

#include <sys/types.h>

enum rank_stage {
    STAGE_WAITING,
    STAGE_SPAWNED,
    STAGE_ATTACHED,
    STAGE_READY,
    STAGE_RUNNING,
    STAGE_DONE,
    STAGE_IDLE,
    STAGE_FINISHING
};

struct rank_state {
    enum rank_stage stage;
    pid_t pid;
    const char *gpus;              /* UUIDs of those it sees, with commas; NULL: not known yet */
    uint64_t started_ns, ended_ns; /* when its process was said to be there, and to be gone */
    uint64_t sign_ns;              /* when its first bad sign arrived; 0 = none */
    enum rank_stage sign_stage;    /* how far it had come by then */
    bool told; /* it had been told to stop when that sign arrived: what it did then is a consequence
                */
    bool killed; /* collrun sent it SIGTERM or SIGKILL before it ended */
    bool failed; /* it said why: the next four */
    struct diag failure;
    enum wire_phase phase;
    uint32_t workload; /* index, or UINT32_MAX */
    char group[64];
    uint64_t operation; /* number in that group */
    struct seen seen;   /* what it was last seen doing; once it was told to stop: before that */
    bool seen_last;     /* that is so */
    struct waits waits; /* what its threads wait for, if they have stood still */
    bool exited;
    int status;                           /* of wait(2) */
    uint64_t user_us, system_us, max_rss; /* CPU time; bytes */
    char memory[96]; /* killed by the kernel for lack of memory: how much there was; else "" */
};

/* "waiting for its process", "loading plugins", ...: what a rank in this stage is doing. */
const char *rank_stage_text(enum rank_stage stage);

#endif

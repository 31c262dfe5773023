/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends marks of the collectives of this host's ranks (base/record.h) to the runner, which compares
 * those of all members of a group (diagnose/audit.h). Frame: WIRE_AUDIT.
 *
 * - Every AUDIT_SENDER_MS, at multiples of it by the clock, so that hosts with synchronised clocks
 *   look at the same time: the marks of the groups whose numbers have changed.
 * - A rank that has called only a few operations since the last look: all of their marks. More:
 *   the last ones and multiples of 64 and 4096, which members on other hosts send as well.
 * - A rank that has not called anything since then: all marks of its group that were left out.
 * - A rank that calls more than 4096 operations between two looks is looked at more often, since
 *   its record keeps marks of so many; not if all ranks are on this host, which looks at them at
 *   once.
 * - An operation in flight counts after AUDIT_SENDER_HOLD_MS, or once it has ended: backends that
 *   compare calls report a mismatch to the ranks first. With check: strict they all do, so it
 *   counts after AUDIT_SENDER_STRICT_MS.
 * - The rank ends, or closes a group: all marks, and that there will be no more.
 * - Groups with check: off send nothing.
 */
#ifndef RUNNER_AGENT_AUDIT_SENDER_H
#define RUNNER_AGENT_AUDIT_SENDER_H

#include "base/loop.h"
#include "base/record_view.h"

#include <stdbool.h>

struct agent;
struct rank_proc;

enum {
    AUDIT_SENDER_MS = 200,
    AUDIT_SENDER_SOON_MS = 25,
    AUDIT_SENDER_HOLD_MS = 40,
    AUDIT_SENDER_STRICT_MS = 2000
};

struct audit_sender_slot { /* what was sent of a group */
    uint64_t scope;        /* hash; 0: nothing */
    uint64_t number, done;
    uint64_t complete; /* all marks up to this number were sent that the record had */
    int status;
    bool ended;
};

struct audit_sender_rank {
    struct audit_sender_slot slots[RECORD_GROUPS];
    /* More than a quarter of the marks that a record keeps have changed since then, or of a few new
     * operations one is in flight. */
    bool soon;
};

struct audit_sender {
    struct agent *agent;
    struct loop_timer timer;
    struct audit_sender_rank *ranks; /* owned; of this host; NULL: nothing is audited */
};

/* Once the ranks were spawned. Without memory nothing is audited. */
void audit_sender_start(struct audit_sender *s, struct agent *a);
void audit_sender_stop(struct audit_sender *s); /* safe on a zeroed one */
/* The rank calls nothing more. */
void audit_sender_end_rank(struct audit_sender *s, const struct rank_proc *p);

struct audit_sender_look {
    uint64_t now_ns;
    bool one_host; /* has all ranks of the job */
    bool ended;    /* the rank calls nothing more */
};

/* Appends the payload of a frame with what is new; returns the number of groups in it. */
uint32_t audit_sender_pack(struct audit_sender_rank *sent, const struct record_view *v,
                           const struct audit_sender_look *look, struct buf *out);

/* ---- records ---- */

/* RECORDS: a copy of the flight recorder of each rank, which outlives the rank.
 * - The job fails: all operations that are recorded, up to a limit for the whole job.
 * - The ranks of this host have ended well: the last ones. The final audit may find that these were
 *   wrong when no agent is left to ask.
 * Only the first call has an effect. */
void records_send(struct agent *a, bool failed);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/ranks.h"

#include <stdlib.h>
#include <string.h>

static bool rank_keep(struct rank_frame *f, const void *bytes, size_t len)
{
    void *copy = malloc(len + 1);
    if (!copy)
        return false;
    memcpy(copy, bytes, len);
    free(f->bytes);
    *f = (struct rank_frame){copy, len};
    return true;
}

bool rank_read_status(struct rank_state *rank, const void *bytes, size_t len)
{
    return rank_keep(&rank->status_frame, bytes, len) &&
           snapshot_read(&rank->snapshot,
                         &(struct wire_frame){.type = WIRE_STATUS, .payload = bytes, .len = len});
}

bool rank_read_waits(struct rank_state *rank, const void *bytes, size_t len)
{
    return rank_keep(&rank->waits_frame, bytes, len) &&
           wait_report_read(
               &rank->wait_report,
               &(struct wire_frame){.type = WIRE_WAIT_REPORT, .payload = bytes, .len = len});
}

bool rank_record_set(struct rank_state *rank, const void *bytes, size_t len)
{
    rank_record_fini(rank);
    rank->record_bytes = malloc(len + 1); /* aligned, as a reader of records needs it */
    if (!rank->record_bytes)
        return false;
    memcpy(rank->record_bytes, bytes, len);
    rank->record_len = len;
    if (record_view_init(&rank->record, rank->record_bytes, len, NULL) == COLLRUN_OK)
        return true;
    rank_record_fini(rank);
    return false;
}

void rank_record_fini(struct rank_state *rank)
{
    free(rank->record_bytes);
    rank->record_bytes = NULL;
    rank->record_len = 0;
}

void rank_state_fini(struct rank_state *rank)
{
    snapshot_fini(&rank->snapshot);
    wait_report_fini(&rank->wait_report);
    stacks_fini(&rank->stacks);
    rank_forming_fini(&rank->forming);
    usage_fini(&rank->usage);
    rank_record_fini(rank);
    free(rank->status_frame.bytes);
    free(rank->waits_frame.bytes);
}

bool rank_has_ended(const struct rank_state *rank)
{
    return rank->finalizing || rank->phase >= PHASE_DONE;
}

const char *rank_phase_text(const struct rank_state *rank, enum rank_phase phase)
{
    static const char *const of_commands[] = {
        [PHASE_WAITING] = "not started", [PHASE_SPAWNED] = "starting its program",
        [PHASE_ATTACHED] = "running",    [PHASE_READY] = "running",
        [PHASE_RUNNING] = "running",     [PHASE_DONE] = "running",
        [PHASE_IDLE] = "running",        [PHASE_FINISHING] = "done",
    };
    static const char *const texts[] = {
        [PHASE_WAITING] = "not started",
        [PHASE_SPAWNED] = "loading its plugins",
        [PHASE_ATTACHED] = "forming its groups or in a workload's init",
        [PHASE_READY] = "ready",
        [PHASE_RUNNING] = "running",
        [PHASE_DONE] = "done",
        [PHASE_IDLE] = "idle",
        [PHASE_FINISHING] = "closing its groups",
    };
    return rank->command ? of_commands[phase] : texts[phase];
}

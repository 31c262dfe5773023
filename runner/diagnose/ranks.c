/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/ranks.h"

#include <stdio.h>
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

bool rank_is_gone(const struct rank_state *rank)
{
    return rank->exited && (!rank->stop_requested || rank->phase == PHASE_FINISHING);
}

bool rank_is_awaited(const struct rank_state *rank, const struct forming_wait *f)
{
    if (rank_is_gone(rank) || rank_forming_find(&rank->forming, f))
        return false;
    /* A rank of plugins calls nothing more only once its background workloads have ended, too. */
    if (f->kind == WIRE_FORMING_FINALIZE)
        return !rank->finalizing && rank->phase < PHASE_IDLE;
    return f->kind != WIRE_FORMING_CREATE || !snapshot_has_group(&rank->snapshot, f->name);
}

/* The oldest wait that is no operation; NULL: none. */
static const struct forming_wait *rank_forming_oldest(const struct rank_state *r)
{
    const struct forming_wait *oldest = NULL;
    for (uint32_t i = 0; i < r->forming.n; i++) {
        const struct forming_wait *f = &r->forming.items[i];
        oldest = !oldest || f->since_ns < oldest->since_ns ? f : oldest;
    }
    return oldest;
}

void rank_describe(const struct rank_state *rank, char *out, size_t size)
{
    const struct forming_wait *f = rank_forming_oldest(rank);
    char what[192] = "collrun_init";
    bool init = rank->command && rank->member && !rank->formed;
    if (snapshot_inside(&rank->snapshot, what, sizeof what) || init)
        snprintf(out, size, "in %s", what);
    else if (f)
        snprintf(out, size, "in %s", forming_text(f->kind, f->name, what, sizeof what));
    else
        snprintf(out, size, "outside any collective");
    const char *state = rank->snapshot.state == 'T'   ? ", stopped by a signal"
                        : rank->snapshot.state == 'D' ? ", waiting for the kernel"
                                                      : "";
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s", state);
}

bool rank_age(const struct rank_state *rank, uint64_t now_ns, uint64_t *age_ns, bool *inside)
{
    const struct forming_wait *f = rank_forming_oldest(rank);
    char what[192];
    *inside = snapshot_inside(&rank->snapshot, what, sizeof what);
    if (*inside || !f)
        return snapshot_age(&rank->snapshot, age_ns);
    *inside = true;
    *age_ns = f->since_ns < now_ns ? now_ns - f->since_ns : 0;
    return true;
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

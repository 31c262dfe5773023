/* SPDX-License-Identifier: Apache-2.0 */
#include "run/audit_watch.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "diagnose/audit.h"

#include <string.h>

/* What a rank needs to end after MISMATCH, such as for the traceback of Python. */
#define AUDIT_WATCH_REPORTED_NS 250000000ull
/* Between the calls of two ranks, a third one decides: so long it may take to come. */
#define AUDIT_WATCH_UNDECIDED_NS 1000000000ull

static void audit_watch_on_reported(struct loop_timer *t);
static void audit_watch_on_undecided(struct loop_timer *t);

void audit_watch_open(struct audit_watch *w)
{
    w->reported = (struct loop_timer){.fired = audit_watch_on_reported, .owner = w};
    w->undecided = (struct loop_timer){.fired = audit_watch_on_undecided, .owner = w};
    w->audit = audit_new(w->run->desc->nranks);
}

void audit_watch_close(struct audit_watch *w)
{
    audit_free(w->audit);
    w->audit = NULL;
}

static bool audit_watch_all_is_well(const struct audit_watch *w)
{
    for (uint32_t i = 0; i < w->run->desc->nranks; i++) {
        if (w->run->ranks[i].first_failure_ns)
            return false;
    }
    for (uint32_t i = 0; i < w->run->desc->nworkloads; i++) {
        if (w->run->desc->workloads[i].background)
            return false;
    }
    return true;
}

/* Marks of a rank arrive before its failure does. */
static bool audit_watch_is_judgeable(const struct audit_watch *w, const struct audit_finding *f,
                                     uint32_t ended)
{
    for (uint32_t i = 0; i < f->nranks; i++) {
        const struct rank_state *r = &w->run->ranks[f->ranks[i].rank];
        if (f->ranks[i].rank != ended && r->end != RANK_EXITED && r->phase < PHASE_IDLE)
            return false;
    }
    return audit_watch_all_is_well(w);
}

/* Ranks that end close their groups, too, and are judged then. Without a majority, the members that
 * have neither destroyed the group nor called more may decide who is wrong. */
static bool audit_watch_is_destroyed(const struct audit_watch *w, const struct audit_finding *f)
{
    for (uint32_t i = 0; i < f->nranks; i++) {
        const struct rank_state *r = &w->run->ranks[f->ranks[i].rank];
        if (!f->ranks[i].value && (r->end == RANK_EXITED || r->failed || rank_has_ended(r)))
            return false;
    }
    return (f->majority != UINT32_MAX || f->nranks == f->nmembers) && audit_watch_all_is_well(w);
}

static void audit_watch_stop(struct audit_watch *w, const struct audit_finding *f)
{
    struct diag d;
    w->found = true;
    diag_init(&d);
    audit_text(f, &d);
    debug_log(DEBUG_PROOF,
              "the marks of group %s differ at operation %llu, %u of %u members known: %s",
              f->group, (unsigned long long)f->number, f->nranks, f->nmembers, d.text);
    stop_on_job_failure(w->stop, CAUSE_MISMATCH, EXIT_FAILED, &d);
}

/* A rank that got MISMATCH goes on; `rank`: that one, which has ended without a failure. */
static bool audit_watch_is_ignored(const struct audit_watch *w, const struct audit_finding *f,
                                   uint32_t rank)
{
    for (uint32_t i = 0; i < f->nranks; i++) {
        uint32_t k = f->ranks[i].rank;
        if (!w->run->ranks[k].first_failure_ns && (rank == WIRE_HOST || rank == k))
            return true;
    }
    return false;
}

static void audit_watch_on_reported(struct loop_timer *t)
{
    struct audit_watch *w = t->owner;
    struct audit_finding finding;
    if (w->stop->step == STOP_NONE && audit_find_reported(w->audit, &finding) &&
        audit_watch_is_ignored(w, &finding, WIRE_HOST))
        audit_watch_stop(w, &finding);
}

static void audit_watch_on_undecided(struct loop_timer *t)
{
    struct audit_watch *w = t->owner;
    struct audit_finding finding;
    if (w->stop->step == STOP_NONE && audit_find(w->audit, true, &finding))
        audit_watch_stop(w, &finding);
}

/* Nothing ends a call of MPI that differs, so there is time for the marks of other ranks.
 * collrun's own groups compare calls themselves. */
static void audit_watch_decide(struct audit_watch *w, const struct audit_finding *f)
{
    const bool waits =
        strncmp(f->scope, "mpi:", 4) == 0 && f->majority == UINT32_MAX && f->nranks < f->nmembers;
    if (!waits)
        audit_watch_stop(w, f);
    else if (!w->undecided.at_ns)
        loop_timer_set(w->run->loop, &w->undecided, AUDIT_WATCH_UNDECIDED_NS);
}

/* The clock of a host is known after its first heartbeat. Hosts on this machine have its clock. */
static const int64_t *audit_watch_clock(const struct audit_watch *w, uint32_t rank, int64_t *ahead)
{
    const struct host *host = &w->run->hosts[w->run->desc->ranks[rank].host];
    *ahead = 0;
    bool remote = connector_is_remote(w->bring_up->connector, host->index);
    return !remote || host_clock_offset(&host->clock, ahead) ? ahead : NULL;
}

bool audit_watch_take(struct audit_watch *w, const struct wire_frame *f)
{
    struct audit_finding finding;
    int64_t ahead;
    if (!audit_take(w->audit, f, audit_watch_clock(w, f->rank, &ahead)))
        return false;
    if (w->stop->step == STOP_NONE && audit_find(w->audit, true, &finding))
        audit_watch_decide(w, &finding);
    else if (w->stop->step == STOP_NONE && !w->reported.at_ns &&
             audit_find_reported(w->audit, &finding))
        loop_timer_set(w->run->loop, &w->reported, AUDIT_WATCH_REPORTED_NS);
    if (w->stop->step == STOP_NONE && audit_find_destroyed(w->audit, &finding) &&
        audit_watch_is_destroyed(w, &finding)) {
        w->destroyed = true;
        audit_watch_stop(w, &finding);
    }
    return true;
}

void audit_watch_rank_ended(struct audit_watch *w, uint32_t rank)
{
    struct audit_finding finding;
    if (w->undecided.at_ns)
        audit_watch_on_undecided(&w->undecided);
    if (w->stop->step == STOP_NONE && audit_find_extra(w->audit, &finding) &&
        audit_watch_is_judgeable(w, &finding, rank))
        audit_watch_stop(w, &finding);
    else if (w->stop->step == STOP_NONE && audit_find_reported(w->audit, &finding) &&
             audit_watch_is_ignored(w, &finding, rank))
        audit_watch_stop(w, &finding);
}

/* Who is to blame: of an operation too many or too few, and of calls that differ, the minority. */
static void audit_watch_blame(struct audit_watch *w, const struct audit_finding *f)
{
    struct job_failure *job = &w->stop->job_failure;
    struct desc_ranks *list = f->majority == UINT32_MAX ? &job->suspects : &job->culprits;
    *list = (struct desc_ranks){arena_calloc(&w->run->arena, f->nranks, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; i < f->nranks; i++) {
        if (f->ranks[i].class != f->majority)
            list->items[list->n++] = f->ranks[i].rank;
    }
    job->group = arena_strdup(&w->run->arena, f->group);
    job->number = f->number;
    job->extra = f->difference == AUDIT_EXTRA || f->difference == AUDIT_DESTROYED;
}

void audit_watch_end(struct audit_watch *w)
{
    struct audit_finding finding;
    if (!w->found || !(w->destroyed ? audit_find_destroyed(w->audit, &finding)
                                    : audit_find(w->audit, true, &finding) ||
                                          audit_find_extra(w->audit, &finding) ||
                                          audit_find(w->audit, false, &finding)))
        return;
    audit_text(&finding, &w->stop->job_failure.diag);
    audit_watch_blame(w, &finding);
}

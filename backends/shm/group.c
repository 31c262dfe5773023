/* SPDX-License-Identifier: Apache-2.0
 *
 * The group's one failure; see group.h.
 */
#include "group.h"

#include "transport/doorbell.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

/* The thread that writes the failure needs a few hundred nanoseconds, unless it is killed
 * meanwhile. */
#define GROUP_FAILURE_WRITE_NS 100000000u

static void shm_group_wake_all(const struct shm_group *g)
{
    doorbell_wake(&g->seg.head->step_doorbell);
    for (uint32_t r = 0; r < SEGMENT_HANDLES * g->nranks; r++)
        doorbell_wake(&g->seg.all_doorbells[r]);
}

void shm_group_set_failure(struct shm_group *g, int status, const char *text)
{
    struct failure *f = g->failure;
    uint32_t none = FAILURE_NONE;
    if (atomic_compare_exchange_strong(&f->state, &none, FAILURE_BEING_WRITTEN)) {
        f->status = status;
        snprintf(f->text, sizeof f->text, "%s", text);
        atomic_store(&f->state, FAILURE_SET);
    }
    shm_group_wake_all(g);
}

void shm_group_abort_here(struct shm_group *g)
{
    if (atomic_load(&g->failure->state) == FAILURE_NONE) {
        atomic_store(&g->seg.processes[g->rank].aborted, 1);
        atomic_store(&g->aborted, true);
    }
    doorbell_wake(&g->seg.head->step_doorbell);
    doorbell_wake(&g->seg.doorbells[g->rank]);
}

int shm_group_report_failure(struct shm_group *g)
{
    const struct collrun_services *s = g->services;
    struct failure *f = g->failure;
    if (atomic_load(&g->aborted))
        return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group was aborted");
    const uint64_t give_up_ns = shm_group_now_ns(g) + GROUP_FAILURE_WRITE_NS;
    while (atomic_load(&f->state) != FAILURE_SET) {
        if (shm_group_now_ns(g) > give_up_ns)
            return s->fail(s->ctx, COLLRUN_ERR_ABORTED,
                           "the group failed, and the rank that detected it ended before it "
                           "recorded the reason");
        sched_yield();
    }
    return s->fail(s->ctx, f->status, "%s", f->text);
}

int shm_group_fail(struct shm_group *g, int status, const char *format, ...)
{
    char text[FAILURE_TEXT];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    shm_group_set_failure(g, status, text);
    return shm_group_report_failure(g);
}

int shm_group_fail_mismatch(struct shm_group *g, uint32_t rank_a, const struct collrun_call *a,
                            uint32_t rank_b, const struct collrun_call *b)
{
    const struct collrun_services *s = g->services;
    char text[FAILURE_TEXT];
    s->mismatch_text(s->ctx, rank_a, a, rank_b, b, text, sizeof text);
    shm_group_set_failure(g, COLLRUN_ERR_MISMATCH, text);
    return shm_group_report_failure(g);
}

int shm_group_fail_damaged(struct shm_group *g, uint32_t rank, const char *what)
{
    return shm_group_fail(g, COLLRUN_ERR_BACKEND,
                          "rank %u has written %s for rank %u: its memory is damaged", rank, what,
                          g->rank);
}

int shm_group_fail_timeout(struct shm_group *g, const uint32_t *missing, uint32_t nmissing)
{
    const struct collrun_services *s = g->services;
    char text[FAILURE_TEXT];
    s->timeout_text(s->ctx, g->rank, missing, nmissing, g->wait.timeout_ns, text, sizeof text);
    shm_group_set_failure(g, COLLRUN_ERR_TIMEOUT, text);
    return shm_group_report_failure(g);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Spin, yield, sleep, and time out; see wait.h.
 */
#include "transport/wait.h"

#include "transport/spread.h"

#include <sched.h>

#define SPINS_MAX 2000u
#define SPINS_MIN 8u
#define POLLS_PER_FAILURE_CHECK 64u /* while spinning */
#define SWITCH_NS 1500u             /* a yield that takes longer has run another thread */
/* Waking a rank that sleeps costs tens of microseconds, so a rank yields for long while no other
 * thread wants the core. */
#define YIELD_NS 1000000u
/* How long an oversubscribed group yields, and how long a yield takes that ran a thread which
 * computes. */
#define OVERSUBSCRIBED_YIELD_NS 200000u
#define SLICE_NS 500000u
#define SHORT_SLEEP_NS 200000u /* bounds the harm of a missed wake-up; see wait.h */
#define SLEEP_MAX_NS 500000000u

void wait_init(struct shm_group *g, enum wait_mode mode)
{
    const bool oversubscribed = mode != WAIT_DEDICATED;
    g->wait.oversubscribed = oversubscribed;
    g->wait.few_cores = mode == WAIT_FEW_CORES;
    g->wait.spins = oversubscribed ? 0 : SPINS_MAX;
    g->wait.yield_ns = oversubscribed ? 0 : YIELD_NS;
}

/* All ranks wait alike for collectives. For messages each rank chooses. */
void wait_begin_oversubscribed(struct shm_group *g)
{
    struct wait_state *s = &g->wait;
    const bool messages = g->sibling != NULL;
    _Atomic uint32_t *yields =
        messages ? &s->oversubscribed_yields : &g->seg.head->oversubscribed_yields;
    const bool leads = messages || g->rank == 0;
    s->yield_ns = yield_policy_begin(&s->policy, leads, g->services->now_ns, yields)
                      ? OVERSUBSCRIBED_YIELD_NS
                      : 0;
}

/* ---- time-outs ---- */

__attribute__((cold)) static void wait_set_deadline(struct shm_group *g, uint64_t now)
{
    g->wait.deadline_ns =
        g->wait.timeout_ns < UINT64_MAX - now ? now + g->wait.timeout_ns : UINT64_MAX;
    g->wait.stopped_ns = g->services->stopped_ns(g->services->ctx);
}

/* A deadline that has passed counts unless the process stood still meanwhile. */
__attribute__((cold)) static bool wait_has_expired(struct shm_group *g, uint64_t now)
{
    const uint64_t stopped_ns = g->services->stopped_ns(g->services->ctx);
    g->wait.deadline_ns += stopped_ns - g->wait.stopped_ns;
    g->wait.stopped_ns = stopped_ns;
    return now >= g->wait.deadline_ns;
}

__attribute__((cold)) static int wait_timed_out(struct shm_group *g, missing_fn *is_missing,
                                                const void *context)
{
    uint32_t missing[SEGMENT_MAX_RANKS];
    uint32_t nmissing = 0;
    if (!is_missing)
        return COLLRUN_AGAIN;
    for (uint32_t r = 0; r < g->nranks; r++)
        if (is_missing(g, context, r))
            missing[nmissing++] = r;
    return shm_group_fail_timeout(g, missing, nmissing);
}

/* ---- waiting ---- */

static void wait_sleep(struct wait *w, uint64_t now)
{
    const uint64_t left = w->g->wait.deadline_ns - now;
    const uint64_t most = w->visible ? SLEEP_MAX_NS : SHORT_SLEEP_NS;
    doorbell_sleep(w->doorbell, w->seq, left < most ? left : most);
}

/* True if the last yield ran another thread; in an oversubscribed group, one that computes.
 * Yielding then gives away whole time slices, and sleeping is better, since a wake-up ends it at
 * once. */
static bool wait_shares_core(const struct wait *w, uint64_t now)
{
    const uint64_t least = w->g->wait.oversubscribed ? SLICE_NS : SWITCH_NS;
    return w->yielded_ns != 0 && now - w->yielded_ns >= least;
}

/* After a yield in an oversubscribed group: what it has lost. */
static void wait_count_yield(struct wait *w, uint64_t now)
{
    if (wait_shares_core(w, now))
        w->lost_ns += now - w->yielded_ns;
    else if (w->yielded_ns != 0 && now - w->yielded_ns < SWITCH_NS)
        w->idle_ns += now - w->yielded_ns;
}

/* If a rank of lower number waits on the same core: moves to another core, and spins there. */
static bool wait_leave_core(struct wait *w, uint64_t now)
{
    struct shm_group *g = w->g;
    struct wait_state *s = &g->wait;
    spread_publish(g->seg.cores, g->rank);
    if (now - s->spread_ns < SPREAD_INTERVAL_NS ||
        !spread_is_shared(g->seg.cores, g->nranks, g->rank, true))
        return false;
    s->spread_ns = now;
    if (!spread_move(g->seg.cores, g->nranks, g->rank))
        return false;
    s->spins = SPINS_MAX;
    s->yield_ns = YIELD_NS;
    w->polls = 0;
    w->yielded_ns = w->yield_until_ns = 0;
    return true;
}

/* Yields as long as that pays, then announces that this rank sleeps; the next call sleeps. */
static int wait_long(struct wait *w, missing_fn *is_missing, const void *context)
{
    struct shm_group *g = w->g;
    const uint64_t now = shm_group_now_ns(g);
    if (g->wait.deadline_ns == 0)
        wait_set_deadline(g, now);
    if (now >= g->wait.deadline_ns && wait_has_expired(g, now))
        return wait_timed_out(g, is_missing, context);
    if (!g->wait.oversubscribed && !w->sleeping && wait_leave_core(w, now))
        return COLLRUN_OK;
    if (w->yield_until_ns == 0)
        w->yield_until_ns = now + g->wait.yield_ns;
    if (!w->sleeping)
        wait_count_yield(w, now);
    if (wait_shares_core(w, now))
        w->yield_until_ns = now;
    if (now < w->yield_until_ns) {
        w->yielded_ns = now;
        sched_yield();
        return COLLRUN_OK;
    }
    if (w->sleeping) {
        wait_sleep(w, now);
    } else {
        w->announced_ns = now;
        atomic_fetch_add(&w->doorbell->sleepers, 1);
    }
    w->sleeping = true;
    w->visible = now - w->announced_ns >= SHORT_SLEEP_NS;
    w->seq = atomic_load(&w->doorbell->seq);
    return COLLRUN_OK;
}

int wait_more(struct wait *w, missing_fn *is_missing, const void *context)
{
    const bool spinning = w->polls < w->g->wait.spins;
    if (++w->polls % POLLS_PER_FAILURE_CHECK == 0 || !spinning) {
        if (shm_group_has_failed(w->g)) {
            wait_end(w);
            return shm_group_report_failure(w->g);
        }
    }
    if (spinning) {
        wait_pause(w->polls);
        return COLLRUN_OK;
    }
    const int status = wait_long(w, is_missing, context);
    if (status != COLLRUN_OK)
        wait_end(w);
    return status;
}

/* Adapts how long the next wait spins and yields. While other threads want the core, spinning may
 * be what keeps the awaited rank from running. */
static void wait_adapt(const struct wait *w)
{
    struct wait_state *s = &w->g->wait;
    const bool spun = !w->sleeping && w->yielded_ns == 0;
    if (spun) {
        s->spins = s->spins < SPINS_MAX / 2 ? s->spins * 2 : SPINS_MAX;
        s->yield_ns = YIELD_NS;
    } else if (w->yielded_ns != 0 && wait_shares_core(w, shm_group_now_ns(w->g))) {
        if (spread_is_shared(w->g->seg.cores, w->g->nranks, w->g->rank, false))
            s->spins = s->spins / 2 > SPINS_MIN ? s->spins / 2 : SPINS_MIN;
        s->yield_ns = 0;
    }
}

static void wait_end_oversubscribed(struct wait *w)
{
    if (w->yielded_ns == 0)
        return;
    if (!w->sleeping)
        wait_count_yield(w, shm_group_now_ns(w->g)); /* the last one */
    w->g->wait.policy.lost_ns += w->lost_ns + (w->sleeping ? w->idle_ns : 0);
}

void wait_end(struct wait *w)
{
    if (w->polls > 0 && w->g->wait.oversubscribed)
        wait_end_oversubscribed(w);
    else if (w->polls > 0)
        wait_adapt(w);
    if (w->sleeping)
        atomic_fetch_sub(&w->doorbell->sleepers, 1);
    w->sleeping = false;
    w->polls = 0;
}

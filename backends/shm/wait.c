/* SPDX-License-Identifier: Apache-2.0
 *
 * Spin, yield, sleep; time-outs; the group's one failure. See wait.h for the contract.
 */
#include "wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_SPINS 2000u
#define LEAST_SPINS 8u
#define BRISK_SPINS 12u /* so many without a pause, which takes as long as a line needs to come */
#define POLLS_PER_LOOK 64u /* between two looks at the group's failure while spinning */
#define SWITCH_NS 1500u    /* a yield that takes longer has let somebody else run */
/* Waking a sleeper costs tens of microseconds, so not too soon, as long as nobody else wants the
 * core. */
#define YIELD_NS 1000000u
#define FIRST_NAP_NS 200000u /* bounds the harm of a ring that was missed; see wait.h */
#define LONGEST_NAP_NS 500000000u

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

void wait_init(struct shm_group *g)
{
    g->spins = g->crowded ? 0 : MOST_SPINS;
    g->yield_ns = g->crowded ? 0 : YIELD_NS;
}

/* ---- bells ---- */

void bell_wake(struct bell *bell)
{
    atomic_fetch_add(&bell->seq, 1);
    syscall(SYS_futex, &bell->seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the group's failure ---- */

static void wake_all(const struct shm_group *g)
{
    bell_wake(&g->seg.head->steps);
    for (uint32_t r = 0; r < g->nranks; r++)
        bell_wake(&g->seg.bells[r]);
}

void group_poison(struct shm_group *g, int status, const char *text)
{
    struct failure *f = g->failure;
    uint32_t none = FAILURE_NONE;
    if (atomic_compare_exchange_strong(&f->state, &none, FAILURE_BEING_WRITTEN)) {
        f->status = status;
        snprintf(f->text, sizeof(f->text), "%s", text);
        atomic_store(&f->state, FAILURE_SET);
    }
    wake_all(g);
    if (g->sibling)
        wake_all(g->sibling);
}

int group_failure(struct shm_group *g)
{
    const struct collrun_services *s = g->services;
    struct failure *f = g->failure;
    /* Its writer needs a few hundred nanoseconds, or was killed at it. */
    const uint64_t patience = now_ns() + 100000000u;
    while (atomic_load(&f->state) != FAILURE_SET) {
        if (now_ns() > patience)
            return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group failed");
        sched_yield();
    }
    return s->fail(s->ctx, f->status, "%s", f->text);
}

int group_fail(struct shm_group *g, int status, const char *format, ...)
{
    char text[FAILURE_TEXT];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    group_poison(g, status, text);
    return group_failure(g);
}

void rank_list_add(char *list, size_t len, uint32_t rank)
{
    const size_t used = strlen(list);
    if (used + 16 < len)
        snprintf(list + used, len - used, used ? ",%u" : "%u", rank);
    else if (used + 4 < len && list[used - 1] != '.')
        memcpy(list + used, "...", 4);
}

/* ---- waiting ---- */

static int timed_out(struct shm_group *g, missing_fn *missing, const void *context)
{
    char ranks[128] = "";
    missing(g, context, ranks, sizeof(ranks));
    return group_fail(g, COLLRUN_ERR_TIMEOUT, "rank %u waited %.1f s for rank%s %s", g->rank,
                      (double)g->timeout_ns / 1e9, strchr(ranks, ',') ? "s" : "", ranks);
}

int wait_expired(struct shm_group *g, uint64_t *deadline_ns, missing_fn *missing,
                 const void *context)
{
    const uint64_t now = now_ns();
    if (*deadline_ns == 0)
        *deadline_ns = g->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + g->timeout_ns;
    return now < *deadline_ns ? COLLRUN_OK : timed_out(g, missing, context);
}

static void nap(struct wait *w, uint64_t now)
{
    uint64_t ns = w->g->deadline_ns - now;
    const uint64_t longest = w->naps++ == 0 ? FIRST_NAP_NS : LONGEST_NAP_NS;
    if (ns > longest)
        ns = longest;
    const struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, &w->bell->seq, FUTEX_WAIT, w->seq, &t, NULL, 0);
}

/* Whether the last yield let somebody else run: then yielding gives away whole time slices, and
 * sleeping, from which one is woken at once, is better. */
static bool has_company(const struct wait *w, uint64_t now)
{
    return w->yielded_ns != 0 && now - w->yielded_ns >= SWITCH_NS;
}

/* Yields as long as that is right, then announces itself; the next time round it sleeps. */
static int wait_long(struct wait *w, missing_fn *missing, const void *context)
{
    struct shm_group *g = w->g;
    const uint64_t now = now_ns();
    if (g->deadline_ns == 0)
        g->deadline_ns = g->timeout_ns < UINT64_MAX - now ? now + g->timeout_ns : UINT64_MAX;
    if (now >= g->deadline_ns)
        return timed_out(g, missing, context);
    if (w->yield_until_ns == 0)
        w->yield_until_ns = now + g->yield_ns;
    if (has_company(w, now))
        w->yield_until_ns = now;
    if (now < w->yield_until_ns) {
        w->yielded_ns = now;
        sched_yield();
        return COLLRUN_OK;
    }
    if (w->sleeping)
        nap(w, now);
    else
        atomic_fetch_add(&w->bell->sleepers, 1);
    w->sleeping = true;
    w->seq = atomic_load(&w->bell->seq);
    return COLLRUN_OK;
}

int wait_more(struct wait *w, missing_fn *missing, const void *context)
{
    const bool spinning = w->polls < w->g->spins;
    if (++w->polls % POLLS_PER_LOOK == 0 || !spinning) {
        if (group_failed(w->g)) {
            wait_end(w);
            return group_failure(w->g);
        }
    }
    if (spinning) {
        if (w->polls > BRISK_SPINS)
            cpu_relax();
        return COLLRUN_OK;
    }
    const int status = wait_long(w, missing, context);
    if (status != COLLRUN_OK)
        wait_end(w);
    return status;
}

/* How long to spin and yield the next time. While others want the core, spinning may be what keeps
 * the awaited rank from coming. */
static void learn(const struct wait *w)
{
    struct shm_group *g = w->g;
    const bool spun = !w->sleeping && w->yielded_ns == 0;
    if (spun) {
        g->spins = g->spins < MOST_SPINS / 2 ? g->spins * 2 : MOST_SPINS;
        g->yield_ns = YIELD_NS;
    } else if (w->yielded_ns != 0 && has_company(w, now_ns())) {
        g->spins = g->spins / 2 > LEAST_SPINS ? g->spins / 2 : LEAST_SPINS;
        g->yield_ns = 0;
    }
}

void wait_end(struct wait *w)
{
    if (w->polls > 0 && !w->g->crowded)
        learn(w);
    if (w->sleeping)
        atomic_fetch_sub(&w->bell->sleepers, 1);
    w->sleeping = false;
    w->polls = 0;
}

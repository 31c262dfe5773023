/* SPDX-License-Identifier: Apache-2.0
 *
 * Members arrive under the lock of the shared memory, and sleep on the scope's `changes`. A member
 * that wakes others counts `changes` up first, so none can sleep through it. It wakes them after it
 * has released the lock, and leaving takes no lock: no member wakes up to wait for the lock.
 *
 * The service thread, which takes no lock either, wakes members when the job or a rank has failed.
 * A fence there and one in the wait order its two accesses with theirs: it finds the scope forming,
 * or they find the failure.
 *
 * A place is free again when all members have left. One that failed while a member never arrived is
 * reused once all places are taken.
 */
#include "core/host_scope.h"

#include "base/loop.h"
#include "base/parse.h"
#include "base/standstill.h"
#include "core/control.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How often a member polls before it sleeps, if every rank has a core: some 50 us, within which the
 * others of a split arrive. */
#define HOST_SCOPE_POLLS 4000

/* ---- waiting ---- */

static inline void host_scope_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static void host_scope_notify(struct hostmem_scope *s)
{
    atomic_fetch_add(&s->changes, 1);
    syscall(SYS_futex, &s->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void host_scope_sleep(struct hostmem_scope *s, uint32_t changes, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                   .tv_nsec = (long)(deadline_ns % 1000000000u)};
    /* WAIT_BITSET takes an absolute time. */
    syscall(SYS_futex, &s->changes, FUTEX_WAIT_BITSET, changes,
            deadline_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static bool host_scope_is_forming(const struct hostmem_scope *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire) == HOSTMEM_FORMING;
}

void host_scope_wake_all(struct host_scopes *h)
{
    atomic_thread_fence(memory_order_seq_cst); /* after the store of the failure */
    for (uint32_t i = 0; h->mem.head && i < h->mem.head->nscopes; i++) {
        struct hostmem_scope *s = hostmem_scope_at(&h->mem, i);
        if (host_scope_is_forming(s))
            host_scope_notify(s);
    }
}

/* ---- failing ---- */

/* The first failure is kept. The caller holds the lock, and then calls host_scope_unlock. */
static void host_scope_fail(struct hostmem_scope *s, const char *group, int status,
                            const char *what)
{
    if (!host_scope_is_forming(s))
        return;
    s->status = status;
    snprintf(s->text, sizeof s->text, "group \"%s\": %s", group, what);
    atomic_store_explicit(&s->state, HOSTMEM_FAILED, memory_order_release);
}

/* Wakes the members that wait if the scope is not forming any more. */
static void host_scope_unlock(struct host_scopes *h, struct hostmem_scope *s)
{
    hostmem_unlock(&h->mem);
    if (s && !host_scope_is_forming(s))
        host_scope_notify(s);
}

static void host_scope_expire(struct hostmem_scope *s, const struct host_scope_request *q)
{
    uint32_t *missing = calloc(s->nmembers, sizeof *missing), n = 0;
    char list[256] = "some ranks", what[HOSTMEM_TEXT_LEN - 16];
    for (uint32_t i = 0; missing && i < s->nmembers; i++) {
        if (!s->members[i].arrived)
            missing[n++] = q->members->items[i];
    }
    if (missing)
        rank_list_format(list, sizeof list, missing, n);
    snprintf(what, sizeof what, "rank%s %s did not join within %.1f s (%u of %u members)",
             n == 1 ? "" : "s", list, (double)s->timeout_ns / 1e9, n, s->nmembers);
    host_scope_fail(s, q->group, COLLRUN_ERR_TIMEOUT, what);
    free(missing);
}

/* Fails the scope if the runner has reported the failure of a member. */
static void host_scope_check_members(const struct host_scopes *h, struct hostmem_scope *s,
                                     const struct host_scope_request *q)
{
    for (uint32_t i = 0; i < s->nmembers; i++) {
        const uint32_t rank = q->members->items[i];
        char what[64];
        if (!atomic_load_explicit(&h->failed[rank], memory_order_acquire))
            continue;
        snprintf(what, sizeof what, "rank %u exited while the group was being formed", rank);
        host_scope_fail(s, q->group, COLLRUN_ERR_PEER_FAILED, what);
    }
}

/* ---- arriving, with the lock held ---- */

/* True if no member is inside; `all`: and none can arrive any more. */
static bool host_scope_has_ended(const struct hostmem_scope *s, bool all)
{
    const uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
    const uint32_t left = atomic_load_explicit(&s->nleft, memory_order_acquire);
    return state == HOSTMEM_FREE ||
           (state == HOSTMEM_FAILED && left == (all ? s->nmembers : s->narrived));
}

static void host_scope_make(struct hostmem_scope *s, const struct host_scope_request *q)
{
    s->nmembers = q->members->n;
    s->narrived = 0;
    atomic_store_explicit(&s->nleft, 0, memory_order_relaxed); /* `state` publishes it */
    s->first = q->members->items[q->index];
    s->status = COLLRUN_OK;
    s->segment_len = q->segment_len;
    s->timeout_ns = q->timeout_ns;
    snprintf(s->name, sizeof s->name, "%s", q->name);
    snprintf(s->identity, sizeof s->identity, "%s", q->identity);
    for (uint32_t i = 0; i < s->nmembers; i++)
        s->members[i].arrived = false;
    atomic_store_explicit(&s->state, HOSTMEM_FORMING, memory_order_release);
}

/* The scope of this name; a new one if there is none; NULL: there is no place for it. */
static struct hostmem_scope *host_scope_find(struct hostmem *m, const struct host_scope_request *q)
{
    struct hostmem_scope *unused = NULL, *stale = NULL;
    for (uint32_t i = 0; i < m->head->nscopes; i++) {
        struct hostmem_scope *s = hostmem_scope_at(m, i);
        if (host_scope_has_ended(s, true))
            unused = unused ? unused : s;
        else if (strcmp(s->name, q->name) == 0)
            return s;
        else if (!stale && host_scope_has_ended(s, false))
            stale = s;
    }
    unused = unused ? unused : stale;
    if (unused)
        host_scope_make(unused, q);
    return unused;
}

static void host_scope_compare(struct hostmem_scope *s, const struct host_scope_request *q)
{
    char what[HOSTMEM_TEXT_LEN - 16];
    const uint32_t rank = q->members->items[q->index];
    if (strncmp(s->identity, q->identity, sizeof s->identity - 1) != 0)
        snprintf(
            what, sizeof what,
            "ranks disagree about the backend or the check: rank %u has %.180s, rank %u has %.180s",
            s->first, s->identity, rank, q->identity);
    else if (s->segment_len != q->segment_len)
        snprintf(what, sizeof what,
                 "ranks %u and %u ask for %llu and %llu bytes of the same shared segment", s->first,
                 rank, (unsigned long long)s->segment_len, (unsigned long long)q->segment_len);
    else
        return;
    host_scope_fail(s, q->group, COLLRUN_ERR_MISMATCH, what);
}

static void host_scope_complete(struct hostmem *m, struct hostmem_scope *s,
                                const struct host_scope_request *q)
{
    char what[80];
    if (s->segment_len && !hostmem_segment_take(m, s->nmembers, &s->segment)) {
        snprintf(what, sizeof what, "all %d shared segments of this host are in use",
                 HOSTMEM_SEGMENTS);
        host_scope_fail(s, q->group, COLLRUN_ERR_NO_MEMORY, what);
        return;
    }
    atomic_store_explicit(&s->state, HOSTMEM_COMPLETE, memory_order_release);
}

/* How many bytes of a value are in the shared memory. */
static size_t host_scope_shared(size_t len)
{
    return len < HOSTMEM_VALUE_LEN ? len : HOSTMEM_VALUE_LEN;
}

static struct hostmem_scope *host_scope_arrive(struct host_scopes *h,
                                               const struct host_scope_request *q)
{
    struct hostmem_scope *s;
    hostmem_lock(&h->mem);
    s = host_scope_find(&h->mem, q);
    if (s && !s->members[q->index].arrived) {
        struct hostmem_member *me = &s->members[q->index];
        me->len = q->value_len < UINT32_MAX ? (uint32_t)q->value_len : UINT32_MAX;
        if (me->len)
            memcpy(me->value, q->value, host_scope_shared(me->len));
        me->arrived = true;
        s->narrived++;
        host_scope_compare(s, q);
        host_scope_check_members(h, s, q);
        if (s->narrived == s->nmembers && host_scope_is_forming(s))
            host_scope_complete(&h->mem, s, q);
    }
    host_scope_unlock(h, s);
    return s;
}

/* ---- the whole exchange ---- */

/* The last access to the scope: a failed one may be used for other members immediately. */
static void host_scope_leave(struct hostmem_scope *s)
{
    const uint32_t nmembers = s->nmembers;
    const bool complete = atomic_load_explicit(&s->state, memory_order_acquire) == HOSTMEM_COMPLETE;
    if (atomic_fetch_add_explicit(&s->nleft, 1, memory_order_acq_rel) + 1 == nmembers && complete)
        atomic_store_explicit(&s->state, HOSTMEM_FREE, memory_order_release);
}

/* Until the scope is complete or has failed. Returns the job's failure, if that comes first. */
static int host_scope_wait(struct host_scopes *h, struct hostmem_scope *s,
                           const struct host_scope_request *q, struct diag *d)
{
    uint64_t now = now_ns(), stopped = standstill_total(now);
    uint64_t deadline = deadline_after(now, q->timeout_ns);
    for (int i = 0; !h->oversubscribed && i < HOST_SCOPE_POLLS; i++) {
        if (!host_scope_is_forming(s))
            return COLLRUN_OK;
        host_scope_cpu_relax();
    }
    for (;;) {
        const uint32_t changes = atomic_load(&s->changes);
        if (!host_scope_is_forming(s))
            return COLLRUN_OK;
        atomic_thread_fence(memory_order_seq_cst); /* before the loads of the failure */
        if (control_aborted(h->control, d))
            return d->code;
        hostmem_lock(&h->mem);
        host_scope_check_members(h, s, q);
        if (host_scope_is_forming(s) && standstill_expired(now_ns(), &stopped, &deadline))
            host_scope_expire(s, q);
        host_scope_unlock(h, s);
        if (host_scope_is_forming(s))
            host_scope_sleep(s, changes, deadline);
    }
}

static void host_scope_copy_values(const struct hostmem_scope *s,
                                   const struct host_scope_values *out)
{
    for (uint32_t i = 0; i < s->nmembers; i++) {
        const struct hostmem_member *m = &s->members[i];
        const size_t shared = host_scope_shared(m->len);
        memcpy((char *)out->data + i * out->stride, m->value,
               shared < out->stride ? shared : out->stride);
        if (out->lens)
            out->lens[i] = m->len;
    }
}

int host_scope_exchange(struct host_scopes *h, const struct host_scope_request *q,
                        const struct host_scope_values *values, uint32_t *segment, struct diag *d)
{
    if (q->segment_len > h->mem.head->segment_len)
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED,
                        "group \"%s\": a shared segment of %llu bytes; %llu are possible here",
                        q->group, (unsigned long long)q->segment_len,
                        (unsigned long long)h->mem.head->segment_len);
    struct hostmem_scope *s = host_scope_arrive(h, q);
    if (!s)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY,
                        "group \"%s\": %u other groups are being formed on this host", q->group,
                        h->mem.head->nscopes);
    int rc = host_scope_wait(h, s, q, d);
    const uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
    if (rc == COLLRUN_OK && state == HOSTMEM_FAILED)
        rc = diag_set(d, s->status, "%s", s->text);
    if (rc == COLLRUN_OK && values)
        host_scope_copy_values(s, values);
    if (rc == COLLRUN_OK && s->segment_len)
        *segment = s->segment;
    host_scope_leave(s);
    return rc;
}

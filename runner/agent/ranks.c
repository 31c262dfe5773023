/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ranks.h"

#include "agent/tree.h"
#include "agent/uplink.h"
#include "base/debug.h"
#include "base/wire_fields.h"

#include <signal.h>
#include <unistd.h>

struct rank_proc *ranks_find(struct agent *a, uint32_t rank)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (a->ranks[i].rank == rank)
            return &a->ranks[i];
    }
    return NULL;
}

void ranks_send(struct agent *a, uint32_t rank, uint16_t type, const struct buf *payload)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if ((rank == WIRE_HOST || p->rank == rank) && p->spawned && !p->exited &&
            !(p->command && pmi_take(&p->pmi, type, payload->data, payload->len)))
            conn_send_buf(&p->control, type, p->rank, a->desc.attempt, payload);
    }
}

/* To every process of the rank, once: programs take a second signal for the order to end at once.
 * The process group exists a moment after fork. */
static void ranks_kill(const struct rank_proc *p, const struct tree *t, int sig)
{
    if (getpgid(p->pid) != p->pid)
        kill(p->pid, sig);
    kill(-p->pid, sig);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct tree_process *other = &t->items[i];
        if (other->rank == p && other->group != p->pid && other->pid != p->pid)
            kill(other->pid, sig);
    }
}

/* What is left of the rank when its own process ends may go on for timeouts.grace (agent.c). */
static void ranks_terminate(struct rank_proc *p, const struct tree *t)
{
    p->term_by_ns = deadline_after(now_ns(), p->agent->desc.grace_ns);
    ranks_kill(p, t, SIGTERM);
}

void ranks_note_memory(struct agent *a)
{
    for (uint32_t i = 0; i < a->nranks; i++)
        if (a->ranks[i].command && a->ranks[i].spawned && !a->ranks[i].exited)
            pmi_note_memory(&a->ranks[i].pmi);
}

void ranks_end_commands(struct agent *a)
{
    struct tree t;
    ranks_note_memory(a);
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (p->command && !p->member && p->pid && !p->exited && !p->terminated) {
            p->terminated = true;
            ranks_terminate(p, &t);
            ranks_kill(p, &t, SIGCONT);
        }
    }
    tree_fini(&t);
}

void ranks_abort(struct agent *a, int status, uint32_t culprit, const char *text)
{
    struct buf b;
    buf_init(&b);
    debug_log(DEBUG_STOP, "aborts all ranks of this host, status %d, culprit %d: %s", status,
              (int)culprit, text);
    wire_put_abort(&b, &(struct wire_abort){status, culprit, text});
    ranks_send(a, WIRE_HOST, WIRE_ABORT, &b);
    buf_fini(&b);
    a->aborted = true;
    ranks_end_commands(a);
}

void ranks_signal(struct agent *a, uint32_t rank, int sig)
{
    struct tree t;
    debug_log(DEBUG_STOP, "signal %d to rank %d (-1: all)", sig, (int)rank);
    if (sig == SIGKILL)
        ranks_note_memory(a);
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (rank != WIRE_HOST && p->rank != rank)
            continue;
        if (sig == SIGKILL)
            p->term_by_ns = 0;
        if (!p->pid || p->exited)
            continue;
        if (sig == SIGTERM)
            ranks_terminate(p, &t);
        else
            ranks_kill(p, &t, sig);
    }
    tree_fini(&t);
}

/* A shell that started the program would die of the signal, and a helper process that does not know
 * it as well. */
static pid_t ranks_find_warned(const struct rank_proc *p, const struct tree *t, int sig)
{
    const pid_t member = p->record ? (pid_t)atomic_load(&p->record->member) : 0;
    for (uint32_t i = 0; i < t->n && p->member; i++)
        if (t->items[i].pid == member && t->items[i].rank == p)
            return member;
    const pid_t handler = tree_find_handler(t, p->pid, sig);
    return handler ? handler : p->pid;
}

void ranks_warn(struct agent *a, int sig)
{
    struct tree t;
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        const struct rank_proc *p = &a->ranks[i];
        if (p->pid && !p->exited)
            kill(ranks_find_warned(p, &t, sig), sig);
    }
    tree_fini(&t);
}

bool ranks_await_terminated(struct agent *a)
{
    const uint64_t now = now_ns();
    bool may = false, found = false;
    struct tree t;
    for (uint32_t i = 0; i < a->nranks; i++)
        may = may || a->ranks[i].term_by_ns > now;
    if (!may)
        return false;
    tree_read(&t, a);
    for (uint32_t i = 0; i < t.n && !found; i++)
        found = t.items[i].rank && t.items[i].rank->term_by_ns > now;
    tree_fini(&t);
    return found;
}

void ranks_send_multicast(struct agent *a, const struct wire_frame *f)
{
    struct wire_multicast m;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_multicast(f, &arena, &m)) {
        const struct buf payload = buf_borrow(m.payload.data, m.payload.len);
        for (uint32_t i = 0; i < m.ranks.n; i++)
            ranks_send(a, m.ranks.items[i], m.type, &payload);
    } else {
        struct diag d;
        wire_malformed(&d, "MULTICAST frame");
        uplink_send_error(a, &d);
    }
    arena_fini(&arena);
}

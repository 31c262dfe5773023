/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ranks.h"

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

/* Once: programs take a second signal for the order to end at once. The process group exists a
 * moment after fork. */
static void ranks_kill(const struct rank_proc *p, int sig)
{
    if (getpgid(p->pid) != p->pid)
        kill(p->pid, sig);
    kill(-p->pid, sig);
}

void ranks_end_commands(struct agent *a)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (p->command && !p->member && p->pid && !p->exited && !p->terminated) {
            p->terminated = true;
            ranks_kill(p, SIGTERM);
            ranks_kill(p, SIGCONT);
        }
    }
}

void ranks_abort(struct agent *a, int status, uint32_t culprit, const char *text)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u32(&b, culprit);
    buf_put_str(&b, text);
    ranks_send(a, WIRE_HOST, WIRE_ABORT, &b);
    buf_fini(&b);
    a->aborted = true;
    ranks_end_commands(a);
}

void ranks_signal(struct agent *a, uint32_t rank, int sig)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if ((rank == WIRE_HOST || p->rank == rank) && p->pid && !p->exited) {
            ranks_kill(p, sig);
        }
    }
}

void ranks_send_multicast(struct agent *a, const struct wire_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, sizeof(uint32_t));
    size_t ranks_at = r.pos;
    r.pos += n * sizeof(uint32_t);
    uint16_t type = read_u16(&r);
    if (r.bad)
        return;
    const struct buf payload = buf_borrow(f->payload + r.pos, f->len - r.pos);
    struct reader ranks;
    reader_init(&ranks, f->payload + ranks_at, n * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        ranks_send(a, read_u32(&ranks), type, &payload);
}

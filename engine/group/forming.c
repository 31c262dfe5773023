/* SPDX-License-Identifier: Apache-2.0 */
#include "group/forming.h"

#include "base/loop.h"
#include "observe/wait_report.h"
#include "rank/engine.h"

static void forming_send(struct engine *e, const struct forming *f, bool waits)
{
    size_t mark;
    struct buf *out = control_begin(&e->control, WIRE_FORMING, &mark);
    buf_put_u8(out, waits);
    buf_put_u8(out, (uint8_t)f->kind);
    buf_put_str(out, f->name);
    buf_put_u64(out, now_ns() - f->since_ns);
    buf_put_u32(out, f->members->n);
    for (uint32_t i = 0; i < f->members->n; i++)
        buf_put_u32(out, f->members->items[i]);
    control_end(&e->control, mark);
}

static bool forming_is_reported(const struct forming *f)
{
    return f->number || f->kind == WIRE_FORMING_FINALIZE;
}

void forming_begin(struct engine *e, struct forming *f)
{
    f->since_ns = now_ns();
    f->thread = threads_caller();
    if (!forming_is_reported(f))
        wait_report_busy(&e->wait_report, 1);
    pthread_mutex_lock(&e->groups_lock);
    f->next = e->forming;
    e->forming = f;
    pthread_mutex_unlock(&e->groups_lock);
}

void forming_end(struct engine *e, struct forming *f)
{
    pthread_mutex_lock(&e->groups_lock);
    struct forming **p = &e->forming;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    pthread_mutex_unlock(&e->groups_lock);
    if (!forming_is_reported(f))
        wait_report_busy(&e->wait_report, -1);
    if (f->sent)
        forming_send(e, f, false);
}

void forming_update(struct engine *e)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct forming *f = e->forming; f; f = f->next) {
        if (f->sent || now_ns() < f->since_ns + FORMING_REPORT_NS)
            continue;
        f->sent = true;
        forming_send(e, f, true);
    }
    pthread_mutex_unlock(&e->groups_lock);
}

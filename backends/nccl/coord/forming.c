/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming communicators, as the coordinator sees it. A rank takes part in one formation at a time;
 * those of different ranks go on side by side, and each waits for earlier ones that need one of its
 * ranks.
 *
 * Happy path
 *   - all its ranks make their communicators, which launches nothing on a GPU;
 *   - they lock their GPUs one after the other, in the order of their world ranks. So two groups
 *     never wait for each other's locks: the holder of a lock only waits for higher ones;
 *   - with all GPUs locked they connect, each pair by a message, which waits for the other end;
 *   - when all ranks are ready to close, all lock their GPUs at once, without waiting, and close if
 *     all could.
 * Failures
 *   - a rank fails or leaves: all its ranks are sent the number of that one, and it fails;
 *   - a rank leaves before it may close: the others close without it.
 */
#include "forming.h"

#include <stdlib.h>
#include <string.h>

bool coord_forming_init(struct coord_forming *f, uint32_t nranks, uint32_t ndevs,
                        void (*send)(void *ctx, uint32_t rank, const struct coord_form *form),
                        void *ctx)
{
    *f = (struct coord_forming){
        .nranks = nranks, .ndevs = ndevs, .leaver = nranks, .send = send, .ctx = ctx};
    f->end = &f->first;
    f->ranks = calloc(nranks, sizeof *f->ranks);
    for (uint32_t i = 0; f->ranks && i < nranks; i++)
        f->ranks[i].world_rank = UINT32_MAX;
    return f->ranks != NULL;
}

void coord_forming_fini(struct coord_forming *f)
{
    while (f->first) {
        struct coord_formation *next = f->first->next;
        free(f->first);
        f->first = next;
    }
    free(f->ranks);
}

/* ---- one formation ---- */

static bool coord_formation_needs(const struct coord_forming *f, const struct coord_formation *n,
                                  uint32_t rank)
{
    return n->what.handle != COORD_DIRECT || rank == n->what.from / f->ndevs ||
           rank == n->what.to / f->ndevs;
}

/* The rank with the next higher world rank, of those that it needs; nranks: there is none. */
static uint32_t coord_formation_after(const struct coord_forming *f,
                                      const struct coord_formation *n, uint32_t rank)
{
    const struct coord_forming_rank *r = f->ranks;
    uint32_t next = f->nranks;
    for (uint32_t i = 0; i < f->nranks; i++)
        if (coord_formation_needs(f, n, i) &&
            (rank == f->nranks || r[i].world_rank > r[rank].world_rank) &&
            (next == f->nranks || r[i].world_rank < r[next].world_rank))
            next = i;
    return next;
}

static struct coord_form coord_formation_frame(const struct coord_formation *n,
                                               enum coord_form_step step)
{
    return (struct coord_form){.handle = (uint16_t)n->what.handle,
                               .step = (uint16_t)step,
                               .from = n->what.from,
                               .to = n->what.to};
}

static void coord_formation_send_all(const struct coord_forming *f, const struct coord_formation *n,
                                     const struct coord_form *form)
{
    for (uint32_t i = 0; i < f->nranks; i++)
        if (coord_formation_needs(f, n, i))
            f->send(f->ctx, i, form);
}

static void coord_formation_send(const struct coord_forming *f, const struct coord_formation *n,
                                 uint32_t rank, enum coord_form_step step)
{
    const struct coord_form form = coord_formation_frame(n, step);
    f->send(f->ctx, rank, &form);
}

static void coord_formation_step_all(const struct coord_forming *f, const struct coord_formation *n,
                                     enum coord_form_step step)
{
    const struct coord_form form = coord_formation_frame(n, step);
    coord_formation_send_all(f, n, &form);
}

static void coord_formation_fail(const struct coord_forming *f, struct coord_formation *n,
                                 uint32_t rank)
{
    struct coord_form form = coord_formation_frame(n, FORM_FAILED);
    form.number = rank;
    n->active = false;
    n->over = true;
    coord_formation_send_all(f, n, &form);
}

static void coord_formation_next_turn(const struct coord_forming *f, struct coord_formation *n,
                                      uint32_t after)
{
    n->turn = coord_formation_after(f, n, after);
    if (n->turn < f->nranks)
        coord_formation_send(f, n, n->turn, FORM_LOCK);
    else
        coord_formation_step_all(f, n, FORM_CONNECT);
}

/* True if all its ranks have replied to a step. */
static bool coord_formation_all(const struct coord_forming *f, struct coord_formation *n)
{
    uint32_t needed = 0;
    for (uint32_t i = 0; i < f->nranks; i++)
        needed += coord_formation_needs(f, n, i);
    bool all = ++n->nreplies == needed;
    if (all)
        n->nreplies = 0;
    return all;
}

/* ---- choosing the next ones ---- */

/* The rank that it needs and that has left; nranks: none. */
static uint32_t coord_forming_leaver_of(const struct coord_forming *f,
                                        const struct coord_formation *n)
{
    if (f->leaver < f->nranks && coord_formation_needs(f, n, f->leaver))
        return f->leaver;
    for (uint32_t i = 0; i < f->nranks; i++)
        if (f->ranks[i].left && coord_formation_needs(f, n, i))
            return i;
    return f->nranks;
}

/* Claims the ranks of a formation. True if no earlier one has claimed them, and all have joined. */
static bool coord_forming_claim(struct coord_forming *f, const struct coord_formation *n)
{
    bool clear = true;
    for (uint32_t i = 0; i < f->nranks; i++) {
        struct coord_forming_rank *r = &f->ranks[i];
        if (!coord_formation_needs(f, n, i))
            continue;
        clear = clear && !r->claimed && r->world_rank != UINT32_MAX;
        r->claimed = true;
    }
    return clear;
}

static void coord_forming_note_busy(struct coord_forming *f, const struct coord_formation *n,
                                    bool busy)
{
    for (uint32_t i = 0; i < f->nranks; i++)
        if (coord_formation_needs(f, n, i))
            f->ranks[i].busy = busy;
}

static void coord_forming_begin(struct coord_forming *f)
{
    for (uint32_t i = 0; i < f->nranks; i++)
        f->ranks[i].claimed = f->ranks[i].busy;
    for (struct coord_formation *n = f->first; n; n = n->next) {
        uint32_t leaver = n->over ? f->nranks : coord_forming_leaver_of(f, n);
        if (n->over || n->active)
            continue;
        if (leaver < f->nranks) {
            coord_formation_fail(f, n, leaver);
        } else if (coord_forming_claim(f, n)) {
            n->active = true;
            n->nreplies = 0;
            coord_forming_note_busy(f, n, true);
            uint32_t first = n->what.handle == COORD_DIRECT ? n->what.from / f->ndevs : 0;
            coord_formation_send(f, n, first, FORM_MAKE_ID);
        }
    }
}

/* ---- closing ---- */

static void coord_closing_send_all(const struct coord_forming *f, enum coord_form_step step,
                                   uint32_t number)
{
    const struct coord_form form = {
        .handle = COORD_CLOSING, .step = (uint16_t)step, .number = number};
    for (uint32_t i = 0; i < f->nranks; i++)
        f->send(f->ctx, i, &form);
}

static void coord_closing_begin(struct coord_forming *f)
{
    bool all = !f->closing.active && !f->closing.over;
    for (uint32_t i = 0; i < f->nranks; i++)
        all = all && f->ranks[i].ready && !f->ranks[i].busy;
    if (!all)
        return;
    f->closing = (struct coord_closing){.active = true};
    coord_closing_send_all(f, FORM_LOCK, 0);
}

static void coord_closing_on_reply(struct coord_forming *f, uint32_t rank, bool locked)
{
    bool all = true;
    f->ranks[rank].ready = locked;
    if (++f->closing.nreplies < f->nranks)
        return;
    for (uint32_t i = 0; i < f->nranks; i++)
        all = all && f->ranks[i].ready;
    f->closing.active = false;
    f->closing.over = all;
    coord_closing_send_all(f, all ? FORM_CLOSE : FORM_UNLOCK, 0);
}

static bool coord_closing_on_frame(struct coord_forming *f, uint32_t rank,
                                   enum coord_form_step step)
{
    if (f->closing.over) /* it crossed a FAILED */
        return true;
    if (step == FORM_READY && !f->ranks[rank].ready) {
        f->ranks[rank].ready = true;
        coord_closing_begin(f);
        return true;
    }
    if (!f->closing.active || (step != FORM_LOCKED && step != FORM_BUSY))
        return false;
    coord_closing_on_reply(f, rank, step == FORM_LOCKED);
    return true;
}

void coord_forming_all_closed(const struct coord_forming *f)
{
    coord_closing_send_all(f, FORM_END, 0);
}

static void coord_closing_leave(struct coord_forming *f, uint32_t rank)
{
    if (f->closing.over)
        return;
    f->closing.over = true;
    coord_closing_send_all(f, FORM_FAILED, rank);
}

/* ---- the interface ---- */

static void coord_forming_end(struct coord_forming *f, struct coord_formation *n)
{
    n->active = false;
    n->over = true;
    coord_forming_note_busy(f, n, false);
    coord_forming_begin(f);
    coord_closing_begin(f);
}

static struct coord_formation *coord_forming_find(const struct coord_forming *f, uint32_t handle,
                                                  uint32_t from, uint32_t to)
{
    struct coord_formation *n = f->first;
    while (n && (n->what.handle != handle || n->what.from != from || n->what.to != to))
        n = n->next;
    return n;
}

bool coord_forming_join(struct coord_forming *f, uint32_t rank, uint32_t world_rank)
{
    if (f->ranks[rank].world_rank != UINT32_MAX || world_rank == UINT32_MAX)
        return false;
    f->ranks[rank].world_rank = world_rank;
    coord_forming_begin(f);
    return true;
}

void coord_forming_leave(struct coord_forming *f, uint32_t rank)
{
    f->ranks[rank].left = true;
    f->leaver = f->leaver < f->nranks ? f->leaver : rank;
    for (struct coord_formation *n = f->first; n; n = n->next)
        if (n->active && coord_formation_needs(f, n, rank)) {
            coord_formation_fail(f, n, rank);
            coord_forming_note_busy(f, n, false);
        }
    coord_closing_leave(f, rank);
    coord_forming_begin(f);
}

bool coord_forming_want(struct coord_forming *f, const struct coord_want *what)
{
    if (coord_forming_find(f, what->handle, what->from, what->to))
        return true;
    struct coord_formation *n = calloc(1, sizeof *n);
    if (!n)
        return false;
    n->what = *what;
    *f->end = n;
    f->end = &n->next;
    coord_forming_begin(f);
    return true;
}

bool coord_forming_on_frame(struct coord_forming *f, uint32_t rank, const struct coord_form *form)
{
    if (form->handle == COORD_CLOSING)
        return coord_closing_on_frame(f, rank, (enum coord_form_step)form->step);
    struct coord_formation *n = coord_forming_find(f, form->handle, form->from, form->to);
    if (!n || !coord_formation_needs(f, n, rank))
        return false;
    if (!n->active) /* it crossed a FAILED, if that was sent */
        return n->over;
    switch (form->step) {
    case FORM_ID:
        coord_formation_send_all(f, n, form);
        return form->number < COORD_ID_PARTS &&
               rank == (n->what.handle == COORD_DIRECT ? n->what.from / f->ndevs : 0);
    case FORM_MADE:
        if (coord_formation_all(f, n))
            coord_formation_next_turn(f, n, f->nranks);
        return true;
    case FORM_LOCKED:
        if (rank != n->turn)
            return false;
        coord_formation_next_turn(f, n, rank);
        return true;
    case FORM_CONNECTED:
        if (coord_formation_all(f, n)) {
            coord_formation_step_all(f, n, FORM_END);
            coord_forming_end(f, n);
        }
        return true;
    case FORM_FAILED:
        coord_formation_fail(f, n, rank);
        coord_forming_end(f, n);
        return true;
    default:
        return false;
    }
}

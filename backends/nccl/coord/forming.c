/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming communicators, as the coordinator sees it: one handle at a time.
 *
 * Happy path
 *   - all ranks make their communicators, which launches nothing on a GPU;
 *   - they lock their GPUs one after the other, in the order of their world ranks. So two groups
 *     never wait for each other's locks: the holder of a lock only waits for higher ones;
 *   - with all GPUs locked they connect, each pair by a message, which waits for the other end.
 * Failures
 *   - a rank fails or leaves: all ranks are sent its number, and the handle fails.
 */
#include "forming.h"

#include <stdlib.h>
#include <string.h>

bool coord_forming_init(struct coord_forming *f, uint32_t nranks,
                        void (*send)(void *ctx, uint32_t rank, const struct coord_form *form),
                        void *ctx)
{
    *f =
        (struct coord_forming){.nranks = nranks, .active = COORD_HANDLES, .send = send, .ctx = ctx};
    f->world_rank = malloc(nranks * sizeof *f->world_rank);
    if (f->world_rank)
        memset(f->world_rank, 0xff, nranks * sizeof *f->world_rank);
    return f->world_rank != NULL;
}

void coord_forming_fini(struct coord_forming *f)
{
    free(f->world_rank);
}

/* ---- sending ---- */

static void coord_forming_send(struct coord_forming *f, uint32_t rank, enum coord_form_step step)
{
    f->send(f->ctx, rank,
            &(struct coord_form){.handle = (uint16_t)f->active, .step = (uint16_t)step});
}

static void coord_forming_send_all(struct coord_forming *f, const struct coord_form *form)
{
    for (uint32_t i = 0; i < f->nranks; i++)
        f->send(f->ctx, i, form);
}

static void coord_forming_step_all(struct coord_forming *f, enum coord_form_step step)
{
    coord_forming_send_all(
        f, &(struct coord_form){.handle = (uint16_t)f->active, .step = (uint16_t)step});
}

static void coord_forming_send_failed(struct coord_forming *f, enum coord_handle handle,
                                      uint32_t rank)
{
    f->over[handle] = true;
    coord_forming_send_all(
        f, &(struct coord_form){.handle = (uint16_t)handle, .step = FORM_FAILED, .number = rank});
}

/* ---- steps ---- */

/* Begins with the next handle that is wanted. */
static void coord_forming_begin(struct coord_forming *f)
{
    for (int h = 0; h < COORD_HANDLES; h++) {
        bool open = f->wanted[h] && !f->over[h];
        if (open && f->left)
            coord_forming_send_failed(f, (enum coord_handle)h, f->leaver);
        else if (open && f->active == COORD_HANDLES && f->joined == f->nranks) {
            f->active = (enum coord_handle)h;
            f->nreplies = 0;
            coord_forming_send(f, 0, FORM_MAKE_ID);
        }
    }
}

static void coord_forming_end(struct coord_forming *f)
{
    f->over[f->active] = true;
    f->active = COORD_HANDLES;
    coord_forming_begin(f);
}

/* The rank with the next higher world rank; nranks: there is none. */
static uint32_t coord_forming_after(const struct coord_forming *f, uint32_t rank)
{
    uint32_t next = f->nranks;
    for (uint32_t i = 0; i < f->nranks; i++)
        if ((rank == f->nranks || f->world_rank[i] > f->world_rank[rank]) &&
            (next == f->nranks || f->world_rank[i] < f->world_rank[next]))
            next = i;
    return next;
}

static void coord_forming_next_turn(struct coord_forming *f, uint32_t after)
{
    f->turn = coord_forming_after(f, after);
    if (f->turn < f->nranks)
        coord_forming_send(f, f->turn, FORM_LOCK);
    else
        coord_forming_step_all(f, FORM_CONNECT);
}

/* True if all ranks have replied to a step. */
static bool coord_forming_all(struct coord_forming *f)
{
    bool all = ++f->nreplies == f->nranks;
    if (all)
        f->nreplies = 0;
    return all;
}

/* ---- the interface ---- */

bool coord_forming_join(struct coord_forming *f, uint32_t rank, uint32_t world_rank)
{
    if (f->world_rank[rank] != UINT32_MAX || world_rank == UINT32_MAX)
        return false;
    f->world_rank[rank] = world_rank;
    f->joined++;
    coord_forming_begin(f);
    return true;
}

void coord_forming_leave(struct coord_forming *f, uint32_t rank)
{
    if (f->left)
        return;
    f->left = true;
    f->leaver = rank;
    f->active = COORD_HANDLES;
    coord_forming_begin(f);
}

void coord_forming_want(struct coord_forming *f, enum coord_handle handle)
{
    if (f->wanted[handle])
        return;
    f->wanted[handle] = true;
    coord_forming_begin(f);
}

bool coord_forming_on_frame(struct coord_forming *f, uint32_t rank, const struct coord_form *form)
{
    if (form->handle >= COORD_HANDLES)
        return false;
    if (form->handle != f->active)
        return f->over[form->handle] || f->left; /* it crossed a FAILED */
    switch (form->step) {
    case FORM_ID:
        coord_forming_send_all(f, form);
        return rank == 0 && form->number < COORD_ID_PARTS;
    case FORM_MADE:
        if (coord_forming_all(f))
            coord_forming_next_turn(f, f->nranks);
        return true;
    case FORM_LOCKED:
        if (rank != f->turn)
            return false;
        coord_forming_next_turn(f, rank);
        return true;
    case FORM_CONNECTED:
        if (coord_forming_all(f)) {
            coord_forming_step_all(f, FORM_END);
            coord_forming_end(f);
        }
        return true;
    case FORM_FAILED:
        coord_forming_send_failed(f, f->active, rank);
        coord_forming_end(f);
        return true;
    default:
        return false;
    }
}

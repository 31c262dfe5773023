/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend hands in pointers and gets pointers back, so that the layout of struct match_entry is
 * no part of the ABI. Entries that have been taken out are kept for the next ones.
 */
#include "core/match_ops.h"

#include "core/match.h"

#include <stddef.h>
#include <stdlib.h>

struct ops_entry {
    struct match_entry match; /* first: a pointer to it points to this struct */
    struct ops_entry *next;   /* while it is unused */
    void *item;
};

struct collrun_match {
    struct match match;
    struct ops_entry *unused;
    void (*drop)(void *item); /* during ops_close */
};

static struct collrun_match *match_ops_open(void)
{
    struct collrun_match *m = calloc(1, sizeof *m);
    if (m)
        match_init(&m->match);
    return m;
}

static struct ops_entry *match_entry_new(struct collrun_match *m, uint32_t source, uint32_t tag,
                                         void *item)
{
    struct ops_entry *e = m->unused;
    if (e)
        m->unused = e->next;
    else
        e = malloc(sizeof *e);
    if (e)
        *e = (struct ops_entry){.match = {.source = source, .tag = tag}, .item = item};
    return e;
}

/* The item of an entry that was taken out. */
static void *match_entry_give(struct collrun_match *m, struct match_entry *match)
{
    struct ops_entry *e = (struct ops_entry *)match;
    e->next = m->unused;
    m->unused = e;
    return e->item;
}

static int match_ops_post(struct collrun_match *m, uint32_t source, uint32_t tag, void *item,
                          void **message)
{
    struct match_entry *found = match_take_unexpected(&m->match, source, tag);
    *message = found ? match_entry_give(m, found) : NULL;
    if (found)
        return COLLRUN_OK;
    struct ops_entry *e = match_entry_new(m, source, tag, item);
    if (e)
        match_add_posted(&m->match, &e->match);
    return e ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* The tag is from the wire. */
static int match_ops_arrive(struct collrun_match *m, uint32_t source, uint32_t tag, void *item,
                            void **receive)
{
    *receive = NULL;
    if (tag == MATCH_ANY_TAG)
        return COLLRUN_ERR_BACKEND;
    struct match_entry *found = match_take_posted(&m->match, source, tag);
    *receive = found ? match_entry_give(m, found) : NULL;
    if (found)
        return COLLRUN_OK;
    struct ops_entry *e = match_entry_new(m, source, tag, item);
    if (e)
        match_add_unexpected(&m->match, &e->match);
    return e ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static void *match_ops_probe(struct collrun_match *m, uint32_t source, uint32_t tag)
{
    struct match_entry *found = match_find_unexpected(&m->match, source, tag);
    return found ? ((struct ops_entry *)found)->item : NULL;
}

static int match_ops_withdraw(struct collrun_match *m, uint32_t source, uint32_t tag, void *item)
{
    struct match_entry *e = match_first_posted(&m->match, source, tag);
    while (e && ((struct ops_entry *)e)->item != item)
        e = match_next_posted(&m->match, e);
    if (!e)
        return COLLRUN_ERR_NOT_FOUND;
    match_withdraw_posted(&m->match, e);
    match_entry_give(m, e);
    return COLLRUN_OK;
}

static void match_entry_drop(struct match_entry *match, void *ctx)
{
    struct ops_entry *e = (struct ops_entry *)match;
    struct collrun_match *m = ctx;
    if (m->drop)
        m->drop(e->item);
    free(e);
}

static void match_ops_close(struct collrun_match *m, void (*drop)(void *item))
{
    if (!m)
        return;
    m->drop = drop;
    match_fini(&m->match, match_entry_drop, match_entry_drop, m);
    for (struct ops_entry *e = m->unused, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(m);
}

const struct collrun_match_ops match_ops = {
    .size = (uint32_t)sizeof match_ops,
    .open = match_ops_open,
    .close = match_ops_close,
    .post = match_ops_post,
    .arrive = match_ops_arrive,
    .probe = match_ops_probe,
    .withdraw = match_ops_withdraw,
};

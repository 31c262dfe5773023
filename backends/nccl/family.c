/* SPDX-License-Identifier: Apache-2.0
 *
 * Families: who is in one, and what its members have in common. All fail together
 * (group_status.c); the last one that the program closes closes all, children before parents.
 */
#include "family.h"

#include "group.h"

#include <stdio.h>
#include <stdlib.h>

bool family_make_slots(struct nccl_group *g)
{
    struct family_slots *slots = calloc(1, sizeof *slots + g->ndevs * sizeof(ncclComm_t));
    if (!slots)
        return false;
    pthread_mutex_lock(&g->context->family_lock);
    slots->next = g->context->family_slots;
    g->context->family_slots = slots;
    pthread_mutex_unlock(&g->context->family_lock);
    g->family.made = slots->comms;
    return true;
}

void family_enter(struct nccl_group *g, struct nccl_group *parent)
{
    pthread_mutex_lock(&g->context->family_lock);
    struct nccl_group *root = parent->family.root;
    if (!root) {
        root = parent;
        root->family.root = root->family.newest = root;
        root->family.open = 1;
    }
    g->family.root = root;
    g->family.parent = parent;
    g->family.older = root->family.newest;
    root->family.newest = g;
    root->family.open++;
    g->queue = root->queue;
    pthread_mutex_unlock(&g->context->family_lock);
}

/* ---- closing ---- */

bool family_close(struct nccl_group *g)
{
    pthread_mutex_lock(&g->context->family_lock);
    struct nccl_group *root = g->family.root;
    bool now = !root || --root->family.open == 0;
    pthread_mutex_unlock(&g->context->family_lock);
    return now;
}

void family_leave(struct nccl_group *g)
{
    pthread_mutex_lock(&g->context->family_lock);
    struct nccl_group *root = g->family.root, **link = root ? &root->family.newest : NULL;
    while (link && *link && *link != g)
        link = &(*link)->family.older;
    if (link && *link)
        *link = g->family.older;
    pthread_mutex_unlock(&g->context->family_lock);
}

struct nccl_group *family_first(struct nccl_group *g)
{
    return g->family.root ? g->family.root->family.newest : g;
}

struct nccl_group *family_next(const struct nccl_group *g)
{
    return g->family.older;
}

void family_free_slots(struct context *context)
{
    struct family_slots *next;
    for (struct family_slots *s = context->family_slots; s; s = next) {
        next = s->next;
        free(s);
    }
}

/* ---- the queue of the family ---- */

struct nccl_group *family_counter(struct nccl_group *g)
{
    return g->family.root ? g->family.root : g;
}

void family_lock_launch(struct nccl_group *g)
{
    if (g->family.root)
        pthread_mutex_lock(&g->family.root->family.launch_lock);
}

void family_unlock_launch(struct nccl_group *g)
{
    if (g->family.root)
        pthread_mutex_unlock(&g->family.root->family.launch_lock);
}

/* "dp, tp" */
static void family_names(const struct nccl_group *root, char *out, size_t len)
{
    const struct nccl_group *last = NULL; /* that was written */
    size_t at = 0;
    out[0] = '\0';
    while (last != root->family.newest && at < len) {
        const struct nccl_group *m = root->family.newest;
        while (m->family.older != last && m->family.older)
            m = m->family.older;
        at += (size_t)snprintf(out + at, len - at, "%s%s", last ? ", " : "", m->name);
        last = m;
    }
}

void family_timeout_text(const struct op *op, char *out, size_t len)
{
    struct nccl_group *g = op->group;
    char names[100];
    out[0] = '\0';
    pthread_mutex_lock(&g->context->family_lock);
    const struct nccl_group *root = g->family.root;
    if (root)
        family_names(root, names, sizeof names);
    pthread_mutex_unlock(&g->context->family_lock);
    if (!root)
        return;
    snprintf(out, len,
             "; groups %s share a communicator (option share), and of their collectives on this "
             "rank this is number %llu, %s: all ranks must start them in one order",
             names, (unsigned long long)op->sched.seq + 1,
             op->sched.launched ? "on the GPU" : "behind one that has not ended");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the backend that declares a kind, loads it without opening it, and opens the kind. A kind
 * that cannot be opened here (UNAVAILABLE) is kept, with the reason: the process then has no
 * pointers to such memory.
 */
#include "core/memory_kinds.h"

#include "base/names.h"
#include "core/error.h"
#include "core/process.h"
#include "core/signals.h"
#include "core/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct open_kind {
    struct memory_kind kind; /* first: items point to it */
    struct services services;
    const struct backend *owner;
};

void memory_kinds_init(struct memory_kinds *kinds)
{
    *kinds = (struct memory_kinds){0};
    pthread_mutex_init(&kinds->lock, NULL);
}

static struct open_kind *memory_kinds_find(const struct memory_kinds *kinds, const char *name)
{
    for (uint32_t i = 0; i < kinds->open.n; i++)
        if (strcmp(kinds->open.items[i]->name, name) == 0)
            return (struct open_kind *)kinds->open.items[i];
    return NULL;
}

/* The devices of the rank, and their numbers: in the mask if there is one, else in the host. */
static int memory_kinds_number(const struct process *p, struct memory_kind *kind, struct diag *d)
{
    const struct desc_rank *me = &p->desc.ranks[p->rank];
    for (uint32_t i = 0; i < me->ndevices; i++) {
        const struct desc_device *device = &me->devices[i];
        if (strcmp(p->desc.kinds[device->kind].name, kind->name) != 0)
            continue;
        if (kind->ndevices == MEMORY_KIND_DEVICES)
            return diag_set(d, COLLRUN_ERR_UNSUPPORTED, "rank %u owns more than %d %s devices",
                            p->rank, MEMORY_KIND_DEVICES, kind->title);
        int32_t number = (int32_t)(kind->table.mask ? kind->ndevices : device->index);
        kind->renumbered = kind->renumbered || number != (int32_t)kind->ndevices;
        kind->numbers[kind->ndevices++] = number;
    }
    return COLLRUN_OK;
}

static int memory_kinds_start(struct open_kind *o, struct diag *d)
{
    struct memory_kind *kind = &o->kind;
    struct thread_tag tag;
    struct signals_before before;
    error_clear_cause();
    signals_begin(&before);
    thread_tag_begin(&tag, o->owner->name, true);
    int rc = kind->table.open ? kind->table.open(&o->services.table, &kind->state) : COLLRUN_OK;
    thread_tag_end(&tag);
    signals_end(&before);
    const char *cause = error_get()->cause[0] ? error_get()->cause : status_text(rc);
    kind->usable = rc == COLLRUN_OK;
    if (rc == COLLRUN_ERR_UNAVAILABLE)
        snprintf(kind->reason, sizeof kind->reason, "%.255s", cause);
    else if (rc != COLLRUN_OK)
        return diag_set(d, rc, "backend \"%s\" failed to open memory of kind \"%s\": %s",
                        o->owner->name, kind->name, cause);
    return COLLRUN_OK;
}

/* A rank that owns devices which its process cannot use. */
static void memory_kinds_warn(struct process *p, const struct memory_kind *kind)
{
    char text[512];
    if (kind->usable || !kind->ndevices)
        return;
    snprintf(text, sizeof text,
             "this rank owns %u %s device%s, but its process cannot use their memory: %s",
             kind->ndevices, kind->title, kind->ndevices == 1 ? "" : "s", kind->reason);
    control_log(&p->control, COLLRUN_LOG_INFO, text);
}

static int memory_kinds_add(struct process *p, const struct backend *owner, struct open_kind **out,
                            struct diag *d)
{
    struct memory_kind_set *open = &p->kinds.open;
    if (open->n == MEMORY_KINDS_MAX)
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED, "more than %d kinds of memory in one process",
                        MEMORY_KINDS_MAX);
    struct open_kind *o = calloc(1, sizeof *o);
    if (!o)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for backend \"%s\"", owner->name);
    o->owner = owner;
    o->kind.table = owner->kind;
    o->kind.title = owner->kind.title;
    snprintf(o->kind.name, sizeof o->kind.name, "%s", owner->kind.name);
    services_init(&o->services, &p->control, owner->services.options[0], NULL, "%s", owner->name);
    int rc = memory_kinds_number(p, &o->kind, d);
    if (rc == COLLRUN_OK)
        rc = memory_kinds_start(o, d);
    if (rc != COLLRUN_OK) {
        free(o);
        return rc;
    }
    pthread_mutex_init(&o->kind.blocks.lock, NULL);
    memory_kinds_warn(p, &o->kind);
    open->items[open->n++] = &o->kind;
    *out = o;
    return COLLRUN_OK;
}

/* The backend that job.yaml's plan expects to declare a kind; NULL in *out: the plan has none. */
static int memory_kinds_planned(struct process *p, const char *name, const struct backend **out,
                                struct diag *d)
{
    const struct desc *desc = &p->desc;
    struct backend *b;
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        if (strcmp(desc->kinds[i].name, name) != 0)
            continue;
        int rc = registry_load(p, desc->backends[desc->kinds[i].backend].name, &b, d);
        if (rc != COLLRUN_OK)
            return rc;
        if (!b->declares_kind || strcmp(b->kind.name, name) != 0)
            return diag_set(d, COLLRUN_ERR_NOT_FOUND,
                            "backend \"%s\" (%s) declares no memory of kind \"%s\"", b->name,
                            b->path, name);
        *out = b;
        return COLLRUN_OK;
    }
    return COLLRUN_OK;
}

/* Opens the kind with the table of the planned backend; without one, with that of `b`. */
static int memory_kinds_get(struct process *p, const struct backend *b, const char *name,
                            struct open_kind **out, struct diag *d)
{
    const struct backend *owner = NULL;
    *out = memory_kinds_find(&p->kinds, name);
    if (*out)
        return COLLRUN_OK;
    int rc = memory_kinds_planned(p, name, &owner, d);
    if (rc != COLLRUN_OK)
        return rc;
    if (!owner && b && b->declares_kind)
        owner = b;
    if (!owner)
        return diag_set(d, COLLRUN_ERR_NOT_FOUND,
                        "no backend of this job declares memory of kind \"%s\"", name);
    return memory_kinds_add(p, owner, out, d);
}

int memory_kinds_open_owned(struct process *p, struct diag *d)
{
    struct open_kind *o;
    int rc = COLLRUN_OK;
    pthread_mutex_lock(&p->kinds.lock);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < p->desc.nkinds; i++)
        if (desc_rank_devices(&p->desc.ranks[p->rank], i))
            rc = memory_kinds_get(p, NULL, p->desc.kinds[i].name, &o, d);
    p->kinds.nowned = p->kinds.open.n;
    pthread_mutex_unlock(&p->kinds.lock);
    return rc;
}

int memory_kinds_of_backend(struct process *p, struct backend *b, struct memory_kind **out,
                            struct diag *d)
{
    struct open_kind *o = NULL;
    *out = NULL;
    if (!(b->memory & COLLRUN_MEMORY_DEVICE))
        return COLLRUN_OK;
    pthread_mutex_lock(&p->kinds.lock);
    int rc = memory_kinds_get(p, b, b->kind.name, &o, d);
    if (rc == COLLRUN_OK)
        b->services.kind = *out = &o->kind;
    else if (rc == COLLRUN_ERR_NOT_FOUND)
        diag_wrap(d, "backend \"%s\"", b->name);
    pthread_mutex_unlock(&p->kinds.lock);
    return rc;
}

bool memory_kinds_owned_by(const struct process *p, const struct backend *b)
{
    const struct desc_rank *me = &p->desc.ranks[p->rank];
    for (uint32_t i = 0; i < me->ndevices; i++)
        if (b->kind.name && strcmp(p->desc.kinds[me->devices[i].kind].name, b->kind.name) == 0)
            return true;
    return false;
}

void memory_kinds_fini(struct memory_kinds *kinds)
{
    for (uint32_t i = 0; i < kinds->open.n; i++) {
        struct memory_kind *kind = kinds->open.items[i];
        memory_kind_host_drop(kind);
        if (kind->usable && kind->table.close)
            kind->table.close(kind->state);
        pthread_mutex_destroy(&kind->blocks.lock);
        free((struct open_kind *)kind);
    }
    pthread_mutex_destroy(&kinds->lock);
    *kinds = (struct memory_kinds){0};
}

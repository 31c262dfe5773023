/* SPDX-License-Identifier: Apache-2.0
 *
 * See table.h. One lock for all of it: groups come and go rarely, and no operation takes it.
 */
#include "group/table.h"

#include "base/loop.h"
#include "core/process.h"
#include "core/rendezvous.h"
#include "core/threads.h"
#include "group/group.h"
#include "group/thread_record.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The generation of what belongs to a name that is used once: a workload may have used the same
 * name before. */
#define GENERATION_UNIQUE UINT32_C(0x80000000)

/* ---- open and closed groups ---- */

void group_table_init(struct group_table *t, struct process *process, const struct group_ops *ops)
{
    t->process = process;
    t->ops = ops;
    pthread_mutex_init(&t->lock, NULL);
}

void group_table_abandon(struct group_table *t)
{
    pthread_mutex_init(&t->lock, NULL); /* another thread of the parent may have held it */
    for (struct collrun_group *g = t->open; g; g = g->next)
        group_mark_closed(g);
}

struct collrun_group *group_find(struct group_table *t, const char *name)
{
    pthread_mutex_lock(&t->lock);
    struct collrun_group *g = t->open;
    while (g && strcmp(g->id.name, name) != 0)
        g = g->next;
    pthread_mutex_unlock(&t->lock);
    return g;
}

bool group_is_open(struct group_table *t, const struct collrun_group *g)
{
    pthread_mutex_lock(&t->lock);
    const struct collrun_group *p = t->open;
    while (p && p != g)
        p = p->next;
    pthread_mutex_unlock(&t->lock);
    return p != NULL;
}

void group_table_add(struct group_table *t, struct collrun_group *g)
{
    pthread_mutex_lock(&t->lock);
    g->next = t->open;
    t->open = g;
    pthread_mutex_unlock(&t->lock);
}

static void group_unlink(struct collrun_group **list, const struct collrun_group *g)
{
    while (*list && *list != g)
        list = &(*list)->next;
    if (*list)
        *list = g->next;
}

void group_table_close(struct group_table *t, struct collrun_group *g)
{
    pthread_mutex_lock(&t->lock);
    group_unlink(&t->open, g);
    g->next = t->closed;
    t->closed = g;
    pthread_mutex_unlock(&t->lock);
}

/* Replaces the oldest tombstone. A thread that is late may have had a request of one, which was
 * refused. */
static void group_keep_tombstone(struct collrun_group *g)
{
    struct group_table *t = g->table;
    struct collrun_group *oldest = NULL;
    pthread_mutex_lock(&t->lock);
    if (!g->is_tombstone) {
        g->is_tombstone = true;
        group_unlink(&t->closed, g);
        struct collrun_group **slot = &t->tombstones[t->ntombstones++ % GROUP_TOMBSTONES];
        oldest = *slot;
        *slot = g;
    }
    pthread_mutex_unlock(&t->lock);
    if (oldest)
        group_free(oldest);
}

void group_unref(struct collrun_group *g)
{
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        group_keep_tombstone(g);
}

void group_abort_all(struct group_table *t, int status, const char *why)
{
    pthread_mutex_lock(&t->lock);
    for (struct collrun_group *g = t->open; g; g = g->next)
        group_abort(g, status, why);
    pthread_mutex_unlock(&t->lock);
}

void group_abort_with(struct group_table *t, uint32_t member, int status, const char *why)
{
    pthread_mutex_lock(&t->lock);
    for (struct collrun_group *g = t->open; g; g = g->next) {
        if (desc_ranks_find(&g->id.members, member) >= 0)
            group_abort(g, status, why);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- names that are being created ---- */

/* Under the lock. */
static bool group_name_is_taken(const struct group_table *t, const char *name)
{
    const struct group_creation *c = t->creations;
    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    const struct collrun_group *g = t->open;
    while (g && strcmp(g->id.name, name) != 0)
        g = g->next;
    return *name && (c || g);
}

int group_creation_add(struct group_table *t, struct group_creation *c)
{
    pthread_mutex_lock(&t->lock);
    /* collrun_finalize sets it under the lock, once no thread creates a group: a creation that
     * began later would wait for members that the job no longer has. */
    const bool ended = atomic_load(&t->finalizing), taken = group_name_is_taken(t, c->name);
    if (!ended && !taken) {
        c->next = t->creations;
        t->creations = c;
    }
    pthread_mutex_unlock(&t->lock);
    if (ended)
        return error_set(COLLRUN_ERR_INVALID,
                         "a group cannot be created: collrun_finalize has ended this rank");
    return taken ? error_set(COLLRUN_ERR_EXISTS, "a group \"%s\" is open or being created", c->name)
                 : COLLRUN_OK;
}

void group_creation_remove(struct group_table *t, const struct group_creation *c)
{
    pthread_mutex_lock(&t->lock);
    struct group_creation **p = &t->creations;
    while (*p && *p != c)
        p = &(*p)->next;
    if (*p)
        *p = c->next;
    pthread_mutex_unlock(&t->lock);
}

bool group_is_being_created(struct group_table *t, const char *name)
{
    pthread_mutex_lock(&t->lock);
    const struct group_creation *c = t->creations;
    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    pthread_mutex_unlock(&t->lock);
    return *name && c;
}

/* ---- generations ---- */

struct generation {
    char *name;
    uint64_t hash; /* of the members */
    uint32_t next;
};

static int generation_compare(const void *a, const void *b)
{
    const struct generation *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void generation_free(void *g)
{
    free(((struct generation *)g)->name);
    free(g);
}

/* Under the lock. NULL: out of memory. */
static struct generation *generation_find(struct group_table *t, const struct generation *key)
{
    struct generation *const *found = tfind(key, &t->generations, generation_compare);
    if (found)
        return *found;
    struct generation *g = malloc(sizeof *g);
    if (!g)
        return NULL;
    *g = (struct generation){.name = strdup(key->name), .hash = key->hash};
    if (g->name && tsearch(g, &t->generations, generation_compare))
        return g;
    generation_free(g);
    return NULL;
}

int generation_next(struct group_table *t, const char *name, const struct desc_ranks *members,
                    uint32_t *out)
{
    const struct generation key = {.name = (char *)name, .hash = rendezvous_hash(members)};
    pthread_mutex_lock(&t->lock);
    struct generation *g = generation_find(t, &key);
    if (g)
        *out = g->next++;
    pthread_mutex_unlock(&t->lock);
    return g ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

int generation_of_group(struct collrun_group *g, uint32_t *out)
{
    if (!g->id.is_unique)
        return generation_next(g->table, g->id.name, &g->id.members, out);
    *out = GENERATION_UNIQUE;
    return COLLRUN_OK;
}

int generation_within(struct collrun_group *g, enum generation_of what, uint32_t *number,
                      uint32_t *generation)
{
    char name[512]; /* one of job.yaml may end in a host's name */
    *number = atomic_fetch_add_explicit(&g->formed[what], 1, memory_order_relaxed);
    if (g->id.is_unique) {
        *generation = *number | GENERATION_UNIQUE;
        return COLLRUN_OK;
    }
    snprintf(name, sizeof name, "%s, %s", g->id.name,
             what == GENERATION_OF_SPLIT ? "split" : "agreement");
    const int rc = generation_next(g->table, name, &g->id.members, number);
    *generation = *number;
    return rc;
}

static uint64_t generation_make_id(const char *name, uint64_t hash)
{
    return (rendezvous_hash_text(name) ^ hash) * UINT64_C(0x9e3779b97f4a7c15) + hash;
}

uint64_t generation_id(const char *name, const struct desc_ranks *members)
{
    return generation_make_id(name, rendezvous_hash(members));
}

struct generation_lister {
    struct buf entries;
    uint32_t n;
};

static void generation_list_one(const void *node, VISIT visit, void *arg)
{
    struct generation_lister *l = arg;
    const struct generation *g = *(struct generation *const *)node;
    if ((visit != postorder && visit != leaf) || l->n++ >= GENERATION_LISTED)
        return;
    buf_put_u64(&l->entries, generation_make_id(g->name, g->hash));
    buf_put_u64(&l->entries, g->next);
}

bool generation_list(const struct group_table *t, struct buf *out)
{
    struct generation_lister l = {0};
    buf_init(&l.entries);
    twalk_r(t->generations, generation_list_one, &l);
    buf_put_u32(out, l.n < GENERATION_LISTED ? l.n : GENERATION_LISTED);
    buf_put(out, l.entries.data, l.entries.len);
    const bool all = l.n <= GENERATION_LISTED && !l.entries.failed;
    buf_fini(&l.entries);
    return all;
}

/* ---- waits for members ---- */

static void forming_send(struct group_table *t, const struct forming *f, bool waits)
{
    size_t mark;
    struct buf *out = control_begin(&t->process->control, WIRE_FORMING, &mark);
    buf_put_u8(out, waits);
    buf_put_u8(out, (uint8_t)f->kind);
    buf_put_str(out, f->name);
    buf_put_u64(out, now_ns() - f->since_ns);
    buf_put_u32(out, f->members->n);
    for (uint32_t i = 0; i < f->members->n; i++)
        buf_put_u32(out, f->members->items[i]);
    control_end(&t->process->control, mark);
}

static bool forming_is_reported(const struct forming *f)
{
    return f->number || f->kind == WIRE_FORMING_FINALIZE;
}

uint64_t forming_record_id(uint64_t of, uint64_t number)
{
    return number
               ? ((of ^ number * UINT64_C(0xc4ceb9fe1a85ec53)) * UINT64_C(0x9e3779b97f4a7c15) | 1)
               : 0;
}

void forming_begin(struct group_table *t, struct forming *f)
{
    const struct thread_record_form form = {
        .id = f->record_id, .name = f->name, .members = f->members};
    f->call = f->requested ? NULL : thread_record_form(t->process, &form, &f->slot);
    f->since_ns = now_ns();
    f->thread = (int)syscall(SYS_gettid);
    if (!forming_is_reported(f))
        threads_busy(&t->process->busy, 1);
    pthread_mutex_lock(&t->lock);
    f->next = t->forming;
    t->forming = f;
    pthread_mutex_unlock(&t->lock);
}

void forming_end(struct group_table *t, struct forming *f)
{
    pthread_mutex_lock(&t->lock);
    struct forming **p = &t->forming;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    pthread_mutex_unlock(&t->lock);
    if (!forming_is_reported(f))
        threads_busy(&t->process->busy, -1);
    if (f->sent)
        forming_send(t, f, false);
    thread_record_form_end(f->call, &f->slot);
}

void forming_update(struct group_table *t)
{
    pthread_mutex_lock(&t->lock);
    for (struct forming *f = t->forming; f; f = f->next) {
        if (f->sent || now_ns() < f->since_ns + FORMING_REPORT_NS)
            continue;
        f->sent = true;
        forming_send(t, f, true);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the end ---- */

void group_table_fini(struct group_table *t)
{
    for (uint32_t i = 0; i < GROUP_TOMBSTONES; i++) {
        if (t->tombstones[i])
            group_free(t->tombstones[i]);
        t->tombstones[i] = NULL;
    }
    tdestroy(t->generations, generation_free);
    t->generations = NULL;
}

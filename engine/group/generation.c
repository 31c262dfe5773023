/* SPDX-License-Identifier: Apache-2.0 */
#include "group/generation.h"

#include "core/rendezvous.h"
#include "group/group.h"
#include "rank/engine.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of what belongs to a name that is used once: a workload may have used the same name before. */
#define GENERATION_UNIQUE UINT32_C(0x80000000)

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
static struct generation *generation_find(struct engine *e, const struct generation *key)
{
    struct generation *const *found = tfind(key, &e->generations, generation_compare);
    if (found)
        return *found;
    struct generation *g = malloc(sizeof *g);
    if (!g)
        return NULL;
    *g = (struct generation){.name = strdup(key->name), .hash = key->hash};
    if (g->name && tsearch(g, &e->generations, generation_compare))
        return g;
    generation_free(g);
    return NULL;
}

int generation_next(struct engine *e, const char *name, const struct desc_ranks *members,
                    uint32_t *out)
{
    const struct generation key = {.name = (char *)name, .hash = rendezvous_hash(members)};
    pthread_mutex_lock(&e->groups_lock);
    struct generation *g = generation_find(e, &key);
    if (g)
        *out = g->next++;
    pthread_mutex_unlock(&e->groups_lock);
    return g ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

int generation_of_group(struct collrun_group *g, uint32_t *out)
{
    if (!g->id.is_unique)
        return generation_next(g->engine, g->id.name, &g->id.members, out);
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
    const int rc = generation_next(g->engine, name, &g->id.members, number);
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

bool generation_list(const struct engine *e, struct buf *out)
{
    struct generation_lister l = {0};
    buf_init(&l.entries);
    twalk_r(e->generations, generation_list_one, &l);
    buf_put_u32(out, l.n < GENERATION_LISTED ? l.n : GENERATION_LISTED);
    buf_put(out, l.entries.data, l.entries.len);
    const bool all = l.n <= GENERATION_LISTED && !l.entries.failed;
    buf_fini(&l.entries);
    return all;
}

void generation_forget_all(struct engine *e)
{
    tdestroy(e->generations, generation_free);
    e->generations = NULL;
}

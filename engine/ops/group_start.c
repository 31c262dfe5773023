/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that are created beside other work: collrun_group_create_start and
 * collrun_group_split_start. A thread forms the group as the blocking calls do; the caller gets a
 * request.
 *
 * - The arguments are checked, and names and numbers are taken, before the call returns: the order
 *   of the calls pairs the creations of the members, not the order in which their threads run.
 * - The request is in the queue of its creation, in which nothing else ever is: waiters find the
 *   lock and the condition there.
 * - The thread is joined when the request is freed.
 */
#include "ops/request.h"

#include "base/loop.h"
#include "base/thread.h"
#include "core/process.h"
#include "core/threads.h"
#include "group/group.h"
#include "group/group_make.h"
#include "group/thread_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct creation {
    struct collrun_request request; /* of a split: with a reference to the parent */
    struct group_creation listed;
    struct progress_queue queue;
    struct group_table *table;
    struct collrun_group **out;
    struct desc_ranks members;
    struct group_spec spec;   /* of a create; */
    struct group_split split; /* of a split */
    struct request_op posted; /* in the record, as is the slot of the formation */
    struct record_queue slot;
    char *name; /* of the new group; "": not known before the split is made */
    pthread_t thread;
};

static void creation_finish(struct creation *c, int status)
{
    struct collrun_request *r = &c->request;
    if (status != COLLRUN_OK && (r->failure = malloc(sizeof *r->failure)))
        error_hand_over(r->failure);
    pthread_mutex_lock(&c->queue.lock);
    atomic_store_explicit(&r->status, status, memory_order_release);
    pthread_cond_broadcast(&c->queue.changed);
    pthread_mutex_unlock(&c->queue.lock);
}

static void *creation_run(void *arg)
{
    struct creation *c = arg;
    struct collrun_group *g = NULL;
    thread_name("create");
    int rc = c->request.group ? group_make_split(c->request.group, &c->split, &g)
                              : group_make(c->table, &c->spec, &g);
    if (rc == COLLRUN_OK)
        *c->out = g;
    creation_finish(c, rc);
    return NULL;
}

/* ---- life ---- */

static void creation_fini(struct creation *c)
{
    group_creation_remove(c->table, &c->listed);
    pq_stop(&c->queue);
    pq_fini(&c->queue);
    free(c->members.items);
    free(c->name);
}

static void creation_release(struct collrun_request *r)
{
    struct creation *c = (struct creation *)r;
    pthread_join(c->thread, NULL);
    record_queue_close(&c->slot);
    creation_fini(c);
}

/* Takes `members`. NULL: the error message is composed. */
static struct creation *creation_new(struct group_table *t, const char *name,
                                     struct desc_ranks members, struct collrun_group **out)
{
    struct creation *c = calloc(1, sizeof *c);
    char *copy = strdup(name);
    if (!c || !copy) {
        free(c);
        free(copy);
        free(members.items);
        error_set(COLLRUN_ERR_NO_MEMORY, "group \"%s\": out of memory", name);
        return NULL;
    }
    c->table = t;
    c->name = copy;
    c->listed.name = copy;
    c->listed.has_request = true;
    c->members = members;
    c->out = out;
    c->request.pq = &c->queue;
    c->request.release = creation_release;
    atomic_init(&c->request.status, COLLRUN_AGAIN);
    pq_init(&c->queue, &(struct pq_config){.busy = &t->process->busy});
    return c;
}

/* `id`: struct forming.record_id. Counted before the thread begins, so it is at all members before
 * the request of any of them is finished. */
static void creation_record(struct creation *c, uint64_t id)
{
    struct collrun_group *parent = c->request.group;
    const struct thread_record_form form = {.id = id,
                                            .name = parent ? parent->id.name : c->name,
                                            .members = parent ? &parent->id.members : &c->members};
    c->posted.handle = thread_record_form_post(c->table->process, &form, &c->slot);
    c->request.writer = c->table->process->writer;
    c->request.posted = &c->posted;
    c->request.nrecord = 1;
}

static int creation_start(struct creation *c, uint64_t id, struct collrun_request **out)
{
    int rc = group_creation_add(c->table, &c->listed), err;
    if (rc == COLLRUN_OK)
        creation_record(c, id);
    if (rc == COLLRUN_OK && (err = thread_start(&c->thread, 0, creation_run, c)) != 0)
        rc = error_set(COLLRUN_ERR_SYSTEM, "group \"%s\": cannot start a thread: %s", c->name,
                       strerror(err));
    if (rc == COLLRUN_OK) {
        *out = &c->request;
        return rc;
    }
    record_queue_close(&c->slot);
    creation_fini(c);
    free(c);
    return rc;
}

/* One that was not waited for; NULL: none. */
static struct creation *creation_find(struct group_table *t)
{
    pthread_mutex_lock(&t->lock);
    struct group_creation *l = t->creations;
    while (l && !l->has_request)
        l = l->next;
    pthread_mutex_unlock(&t->lock);
    return l ? (struct creation *)((char *)l - offsetof(struct creation, listed)) : NULL;
}

void group_start_end_all(struct group_table *t)
{
    char text[512];
    struct diag why;
    struct creation *c = creation_find(t);
    if (!c)
        return;
    diag_init(&why);
    diag_set(&why, COLLRUN_ERR_ABORTED, "the job has ended");
    control_abort(&t->process->control, &why);
    for (; c; c = creation_find(t)) {
        snprintf(text, sizeof text, "the creation of group \"%s\" was never waited for",
                 *c->name ? c->name : "(no name)");
        control_warn(&t->process->control, COLLRUN_LOG_WARN, text);
        collrun_wait(&c->request);
    }
}

/* ---- starting ---- */

int collrun_group_create_start(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                               struct collrun_group **out, struct collrun_request **request)
{
    struct desc_ranks members = {0};
    struct group_spec spec;
    char unnamed[GROUP_NAME_LEN];
    if (!out || !request)
        return error_set(COLLRUN_ERR_INVALID,
                         "collrun_group_create_start: the output pointer for the %s is NULL",
                         out ? "request" : "group");
    int rc = group_plan(ctx, options, &members, unnamed, NULL, &spec);
    if (rc != COLLRUN_OK) {
        free(members.items);
        return rc;
    }
    struct creation *c = creation_new(ctx->groups, spec.name, members, out);
    if (!c)
        return COLLRUN_ERR_NO_MEMORY;
    c->spec = spec;
    c->spec.is_listed = true;
    c->spec.name = c->name;
    c->spec.members = &c->members;
    c->spec.is_requested = true;
    return creation_start(c, forming_record_id(spec.id, spec.count), request);
}

int collrun_group_split_start(struct collrun_group *parent, int color, int key, const char *name,
                              struct collrun_group **out, struct collrun_request **request)
{
    struct group_split split = {.color = color, .key = key, .name = name};
    if (!parent || !out || !request)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_split_start: the %s is NULL",
                         !parent ? "group"
                         : !out  ? "output pointer for the group"
                                 : "output pointer for the request");
    int rc = group_enter(parent, "split");
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_plan_split(parent, &split);
    if (rc == COLLRUN_OK)
        atomic_fetch_add_explicit(&parent->refs, 1, memory_order_relaxed);
    group_leave(parent);
    if (rc != COLLRUN_OK)
        return rc;
    struct creation *c =
        creation_new(parent->table, color >= 0 && name ? name : "", (struct desc_ranks){0}, out);
    if (!c) {
        group_unref(parent);
        return COLLRUN_ERR_NO_MEMORY;
    }
    c->split = split;
    c->split.is_listed = true;
    c->split.is_requested = true;
    c->split.name = c->name;
    c->request.group = parent;
    rc = creation_start(c, group_split_record_id(parent, &c->split), request);
    if (rc != COLLRUN_OK)
        group_unref(parent);
    return rc;
}

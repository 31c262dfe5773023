/* SPDX-License-Identifier: Apache-2.0
 *
 * See recorded_rank.h. The transport of a rank is `end`; its functions run in the thread that makes
 * progress, whichever that is.
 */
#include "recorded_rank.h"

#include "core/backend.h"
#include "group/thread_record.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

const uint32_t world[RANKS] = {5, 6, 7, 8};

/* ---- the network: what is sent arrives at once, unless it is held ---- */

void post_letter(struct end *to, uint32_t source, const struct collrun_envelope *envelope)
{
    pthread_mutex_lock(&to->lock);
    if (to->n == MAIL)
        abort();
    to->mail[(to->first + to->n++) % MAIL] =
        (struct letter){.source = source, .envelope = *envelope};
    pthread_mutex_unlock(&to->lock);
}

static int end_send(void *group, struct collrun_message *m)
{
    struct end *e = group;
    atomic_fetch_add(&e->nsent, 1);
    if (e->peers[m->peer])
        post_letter(e->peers[m->peer], e->rank, &m->envelope);
    if (e->holds)
        e->held = m;
    else
        e->p2p->table.done(e->p2p->table.ctx, m);
    return COLLRUN_OK;
}

static int end_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    struct end *e = group;
    (void)packet, (void)len;
    e->p2p->table.done(e->p2p->table.ctx, m);
    return COLLRUN_OK;
}

static int end_progress(void *group, uint64_t wait_ns)
{
    struct end *e = group;
    struct letter letter;
    (void)wait_ns;
    if (e->fails)
        return COLLRUN_ERR_ABORTED;
    pthread_mutex_lock(&e->lock);
    const bool any = e->n != 0;
    if (any) {
        letter = e->mail[e->first];
        e->first = (e->first + 1) % MAIL;
        e->n--;
    }
    struct collrun_message *held = e->holds ? NULL : e->held;
    e->held = held ? NULL : e->held;
    pthread_mutex_unlock(&e->lock);
    if (held)
        e->p2p->table.done(e->p2p->table.ctx, held);
    if (any)
        return e->p2p->table.arrived(e->p2p->table.ctx, letter.source, &letter.envelope, "", 0) ==
                       COLLRUN_OK
                   ? COLLRUN_AGAIN
                   : COLLRUN_ERR_BACKEND;
    if (!held)
        sched_yield();
    return held ? COLLRUN_AGAIN : COLLRUN_OK;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = end_send,
    .recv = end_recv,
    .progress = end_progress,
};

/* ---- a rank ---- */

void rank_open(struct rank *r, uint32_t number, uint32_t nranks, bool carried)
{
    memset(r, 0, sizeof *r);
    const int fd = record_make(world[number], 1024);
    r->head = record_map(fd);
    assert_non_null(r->head);
    r->len = record_len(r->head);
    r->bytes = mmap(NULL, r->len, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(r->bytes != MAP_FAILED);
    close(fd);
    r->group = null_group_new(number, nranks, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    struct collrun_group *g = r->group;
    for (uint32_t i = 0; i < nranks; i++)
        g->id.members.items[i] = world[i];
    g->timeout_ns = 600000000000u;
    g->calls.timeout_ticks = UINT64_C(1) << 40;
    g->calls.eager_limit = 64;
    g->process->rank = world[number];
    g->process->record = r->head;
    g->process->writer = record_writer_open(r->head, RECORD_TAP_ENGINE, RECORD_LEVEL_MULTIPLE);
    for (int i = 0; i < 2; i++)
        record_queue_open(&g->calls.record[i], r->head,
                          &(struct record_queue_info){.name = "g",
                                                      .scope = "g",
                                                      .members = nranks,
                                                      .rank = number,
                                                      .messages = i == GROUP_MESSAGES,
                                                      .id = GROUP_ID,
                                                      .world = world});
    struct backend *b = g->backends[0].backend;
    memcpy(b->native[COLLRUN_RECV_ANY], b->native[COLLRUN_RECV], sizeof b->native[0]);
    r->end.rank = number;
    pthread_mutex_init(&r->end.lock, NULL);
    if (carried) {
        r->end.p2p = null_group_carry(g, &transport);
        assert_non_null(r->end.p2p);
        r->end.p2p->handle = &r->end;
        b->has_transport = true;
    }
    arena_init(&r->arena);
}

void rank_close(struct rank *r)
{
    struct record_writer *w = r->group->process->writer;
    null_group_free(r->group);
    record_writer_close(w);
    munmap(r->bytes, r->len);
    record_unmap(r->head, r->len);
    arena_fini(&r->arena);
}

void rank_add_task(struct rank *r, uint32_t tid)
{
    r->tasks[r->ntasks++] = (struct record_task){.tid = tid};
}

/* The words are equal in both surveys of a cut that is accepted. */
static bool survey(void *ctx, struct arena *a, struct record_survey *out)
{
    struct rank *r = ctx;
    struct record_view v;
    (void)a;
    if (record_view_init(&v, r->bytes, r->len, NULL) != COLLRUN_OK)
        return false;
    const struct record_thread *threads = (const void *)(v.bytes + v.at.threads);
    for (uint32_t i = 0; i < r->ntasks; i++) {
        r->words[i] = 0;
        for (uint32_t k = 1; k < RECORD_THREADS; k++)
            if (atomic_load(&threads[k].tid) == r->tasks[i].tid)
                r->words[i] = atomic_load(&threads[k].word);
    }
    *out = (struct record_survey){.tasks = r->tasks, .ntasks = r->ntasks};
    return true;
}

struct record_cut rank_cut(struct rank *r)
{
    struct record_view v;
    struct record_cut cut;
    assert_int_equal(record_view_init(&v, r->bytes, r->len, NULL), COLLRUN_OK);
    assert_true(record_cut_take(&v, false, survey, r, &r->arena, &cut));
    return cut;
}

const struct record_cut_channel *rank_channel(const struct record_cut *cut, uint32_t peer,
                                              uint32_t tag)
{
    for (uint32_t i = 0; i < cut->nchannels; i++)
        if (cut->channels[i].peer == world[peer] && cut->channels[i].tag == tag)
            return &cut->channels[i];
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs over several groups.
 * - The seed gives one list of steps, the same on all ranks. Each step is an operation of one
 *   group, whose name ("w-" and its world ranks) says which ranks take part. A rank executes its
 *   steps.
 * - The order of the list is total, so blocking calls cannot deadlock; as a start never blocks,
 *   waits may be arbitrarily late.
 * - With several threads, each has its own groups and its own list.
 * - A failure names seed and step; the same seed, groups and thread count replay it.
 *
 * With `shuffle` there is no common order: each rank starts a stretch of the list in a different
 * order, except for steps of one group, and waits only at the end of the stretch.
 */
#include "conform.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 40, MOST_GROUPS = 32, STRETCH = 16 };

struct fuzz_group {
    int size;
    struct team *team; /* NULL: this rank is not in it */
};

struct fuzz {
    struct conform run; /* the totals of this thread */
    struct fuzz_group groups[MOST_GROUPS];
    int ngroups;
    uint64_t random;       /* the program's; the same on all ranks */
    uint64_t local_random; /* this rank's own: when to wait */
    struct trial pool[POOL];
    bool busy[POOL];
    uint64_t step;
    bool plain; /* nothing but collectives that any backend can have many of in flight */
};

static uint64_t draw(struct fuzz *f, uint64_t n)
{
    f->random = mix(f->random);
    return f->random % n;
}

static size_t draw_count(struct fuzz *f)
{
    switch (draw(f, 16)) {
    case 0:
        return 0;
    case 1:
        return 4096 + draw(f, 16384);
    case 2:
        return draw(f, 8) == 0 ? 100000 + draw(f, 50000) : 1;
    default:
        return 1 + draw(f, 100);
    }
}

static bool may_draw(const struct fuzz *f, enum collrun_kind kind, bool p2p)
{
    return collrun_kind_is_message(kind) == p2p && kind_in_scope(&f->run, kind);
}

/* Draws the same numbers on every rank, member or not. */
static struct shape draw_shape(struct fuzz *f, int size)
{
    struct shape s = {0};
    bool p2p = size > 1 && draw(f, 3) == 0 && !f->plain;
    do
        s.kind = p2p ? COLLRUN_SEND : (enum collrun_kind)draw(f, COLLRUN_KIND_COUNT);
    while (!may_draw(f, s.kind, p2p));
    do {
        s.dtype = (enum collrun_dtype)draw(f, COLLRUN_DTYPE_COUNT);
        s.op = (enum collrun_op)draw(f, COLLRUN_OP_COUNT);
    } while (!dtype_in_scope(&f->run, s.dtype) || !op_in_scope(&f->run, s.op) ||
             !op_applies(s.dtype, s.op));
    if (f->plain)
        s.dtype = COLLRUN_INT32, s.op = COLLRUN_SUM;
    s.root = (int)draw(f, (uint64_t)size);
    s.from = (int)draw(f, (uint64_t)size);
    s.to = (s.from + 1 + (int)draw(f, size > 1 ? (uint64_t)size - 1 : 1)) % size;
    s.count = draw_count(f);
    s.in_place = draw(f, 4) == 0 && has_in_place(s.kind) && !f->plain;
    s.misalign = (unsigned)draw(f, 4) % 2;
    s.layout = is_v(s.kind) ? (enum layout)draw(f, 3) : LAYOUT_PACKED;
    s.tag = p2p && f->run.full && f->run.async ? (uint32_t)draw(f, 3) : 0;
    return s;
}

static void settle(struct fuzz *f, int slot, int status)
{
    f->busy[slot] = false;
    if (!trial_verify(&f->pool[slot], status))
        fail(&f->run, "fuzz: seed %llu, noticed at step %llu", (unsigned long long)f->run.seed,
             (unsigned long long)f->step);
}

/* Sometimes tests, sometimes waits for, one request in flight. */
static void settle_some(struct fuzz *f)
{
    f->local_random = mix(f->local_random);
    int slot = (int)(f->local_random % POOL);
    if (!f->busy[slot])
        return;
    int status = (f->local_random >> 8) % 2 == 0 ? collrun_test(f->pool[slot].request)
                                                 : collrun_wait(f->pool[slot].request);
    if (status != COLLRUN_AGAIN)
        settle(f, slot, status);
}

static int free_slot(struct fuzz *f)
{
    for (int i = 0; i < POOL; i++)
        if (!f->busy[i])
            return i;
    f->local_random = mix(f->local_random);
    int slot = (int)(f->local_random % POOL);
    settle(f, slot, collrun_wait(f->pool[slot].request));
    return slot;
}

static void do_step(struct fuzz *f, struct team *team, struct shape s, bool blocking)
{
    if (s.kind == COLLRUN_SEND && team->rank == s.to)
        s.kind = COLLRUN_RECV;
    else if (s.kind == COLLRUN_SEND && team->rank != s.from) {
        team->serial++;
        return;
    }
    int slot = free_slot(f);
    struct trial *t = &f->pool[slot];
    if (team->dead)
        return;
    trial_prepare(t, team, &s);
    if (blocking && s.tag == 0) {
        settle(f, slot, trial_block(t));
        return;
    }
    int status = collrun_start(team->group, &t->call, &t->request);
    f->busy[slot] = status == COLLRUN_OK;
    if (status != COLLRUN_OK)
        settle(f, slot, status);
}

static void walk(struct fuzz *f)
{
    for (f->step = 0; f->step < f->run.steps; f->step++) {
        const struct fuzz_group *g = &f->groups[draw(f, (uint64_t)f->ngroups)];
        struct shape s = draw_shape(f, g->size);
        bool blocking = !f->run.async || draw(f, 3) == 0;
        if (g->team != NULL)
            do_step(f, g->team, s, blocking);
        if (f->run.async)
            settle_some(f);
    }
}

/* ---- shuffled ---- */

struct step {
    struct team *team;
    struct shape shape;
};

/* One group's steps stay in order; often it is that group's turn for a while. */
static void start_in_any_order(struct fuzz *f, struct step *steps, int n)
{
    struct team *team = NULL;
    while (n > 0) {
        int i = 0;
        f->local_random = mix(f->local_random);
        if (team == NULL || f->local_random % 4 == 0)
            team = steps[(f->local_random >> 8) % (uint64_t)n].team;
        while (i < n && steps[i].team != team)
            i++;
        if (i == n) {
            team = NULL;
            continue;
        }
        do_step(f, team, steps[i].shape, false);
        memmove(&steps[i], &steps[i + 1], (size_t)(--n - i) * sizeof *steps);
    }
}

static int in_flight(const struct fuzz *f)
{
    int n = 0;
    for (int i = 0; i < POOL; i++)
        n += f->busy[i];
    return n;
}

static void walk_shuffled(struct fuzz *f)
{
    for (f->step = 0; f->step < f->run.steps; f->step += STRETCH) {
        struct step steps[STRETCH];
        int n = 0;
        if (f->step / STRETCH % 8 == 0)
            f->plain = draw(f, 2);
        for (int i = 0; i < STRETCH; i++) {
            const struct fuzz_group *g = &f->groups[draw(f, (uint64_t)f->ngroups)];
            struct step s = {g->team, draw_shape(f, g->size)};
            if (s.team != NULL)
                steps[n++] = s;
        }
        start_in_any_order(f, steps, n);
        while (in_flight(f) > POOL - STRETCH)
            settle_some(f);
    }
}

static void *fuzz_thread(void *arg)
{
    struct fuzz *f = arg;
    f->run.shuffle ? walk_shuffled(f) : walk(f);
    for (int i = 0; i < POOL; i++) {
        if (f->busy[i])
            settle(f, i, collrun_wait(f->pool[i].request));
        trial_free(&f->pool[i]);
    }
    return NULL;
}

/* Splits the groups among the threads, those this rank is not in included. */
static int share_out(struct conform *run, struct team *teams, int nteams, struct fuzz *threads,
                     int n)
{
    char names[2048], *rest = names;
    int index = 0;
    snprintf(names, sizeof names, "%s", collrun_param_string(run->ctx, "teams"));
    for (char *name; (name = strtok_r(NULL, " ", &rest)) != NULL; index++) {
        struct fuzz *f = &threads[index % n];
        if (f->ngroups == MOST_GROUPS)
            break;
        struct fuzz_group *g = &f->groups[f->ngroups++];
        *g = (struct fuzz_group){0};
        for (const char *at = name; *at != '\0'; at++)
            g->size += *at == '-';
        for (int i = 0; i < nteams; i++)
            if (strcmp(teams[i].name, name) == 0)
                g->team = &teams[i], teams[i].run = &f->run;
    }
    return index;
}

void suite_fuzz(struct conform *run, struct team *teams, int nteams, int nthreads)
{
    struct fuzz *threads = calloc((size_t)nthreads, sizeof *threads);
    pthread_t *ids = calloc((size_t)nthreads, sizeof *ids);
    if (threads == NULL || ids == NULL)
        abort();
    for (int i = 0; i < nthreads; i++) {
        threads[i].run = *run;
        threads[i].random = mix(run->seed * 64 + (uint64_t)i);
        threads[i].local_random =
            mix(run->seed + (uint64_t)collrun_world_rank(run->ctx) * 1000 + (uint64_t)i);
    }
    int ngroups = share_out(run, teams, nteams, threads, nthreads);
    if (ngroups < nthreads)
        fail(run, "fuzz: %d threads need as many groups, there are %d", nthreads, ngroups);
    else
        for (int i = 0; i < nthreads; i++)
            if (pthread_create(&ids[i], NULL, fuzz_thread, &threads[i]) != 0)
                abort();
    for (int i = 0; ngroups >= nthreads && i < nthreads; i++) {
        pthread_join(ids[i], NULL);
        run->cases += threads[i].run.cases;
        run->failures += threads[i].run.failures;
        run->unsupported += threads[i].run.unsupported;
    }
    free(threads);
    free(ids);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of several groups, and messages beside collectives, in orders that differ by rank. All
 * of it must complete, whatever threads are used.
 */
#include "drill.h"

#include <pthread.h>

/* Rank 0 starts two collectives, then sends; rank 1 receives before it comes to them. */
void drill_overtake(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 20), *out = cuda_new(0, COUNT * 4);
    void *letter = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_request *r[2] = {NULL};
    for (int i = 0; i < 100; i++) /* nothing that was seen so far tells of what comes */
        ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    for (int round = 0; round < 20 && !d->failures; round++) {
        if (d->rank && ok(d, collrun_recv(d->g, letter, COUNT, COLLRUN_INT32, 0), "recv"))
            expect_given(d, 0, letter, COUNT, 0, 20, "a message");
        for (int i = 0; i < 2; i++)
            ok(d, collrun_start(d->g, &c, &r[i]), "start");
        if (!d->rank)
            ok(d, collrun_send(d->g, in, COUNT, COLLRUN_INT32, 1), "send");
        if (ok(d, collrun_wait_all(r, 2), "wait_all"))
            expect_sum(d, 0, out, 20, "allreduce before a message");
    }
}

/* All walk through one list: a message from rank 2 to 1, two collectives, a message from 0 to 1.
 * Rank 2 is late, and rank 1 must not be kept from its message by the one from rank 0, which cannot
 * begin there before the collectives. */
void drill_walk(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 21), *out = cuda_new(0, COUNT * 4);
    void *early = cuda_new(0, COUNT * 4), *last = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_call first = message_call(COLLRUN_SEND, in, 0, 1), second = first;
    struct collrun_request *r[4] = {NULL};
    for (int i = 0; i < 100; i++)
        ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    if (d->rank == 1) {
        first = message_call(COLLRUN_RECV, early, 0, 2);
        second = message_call(COLLRUN_RECV, last, 0, 0);
    }
    if (d->rank == 2)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (d->rank != 0)
        ok(d, collrun_start(d->g, &first, &r[0]), "start");
    if (d->rank == 2)
        ok(d, collrun_wait_all(r, 1), "the first message");
    for (int i = 1; i < 3; i++)
        ok(d, collrun_start(d->g, &c, &r[i]), "start");
    if (d->rank != 2)
        ok(d, collrun_start(d->g, &second, &r[3]), "start");
    if (!ok(d, collrun_wait_all(r, 4), "wait_all"))
        return;
    expect_sum(d, 0, out, 21, "allreduce beside messages");
    if (d->rank == 1) {
        expect_given(d, 0, early, COUNT, 2, 21, "the message of rank 2");
        expect_given(d, 0, last, COUNT, 0, 21, "the message of rank 0");
    }
}

/* ---- several groups ---- */

struct driver {
    struct drill *d;
    struct collrun_group *g;
    int salt, failures;
};

static void *drive(void *arg)
{
    struct driver *v = arg;
    struct drill d = *v->d;
    d.failures = 0;
    d.g = v->g;
    d.rank = collrun_rank(v->g);
    d.places = collrun_size(v->g);
    void *in = device_values(0, d.rank, COUNT, v->salt), *out = cuda_new(0, COUNT * 4);
    for (int i = 0; i < 30 && !d.failures; i++)
        if (ok(&d, collrun_allreduce(v->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM),
               "allreduce"))
            expect_sum(&d, 0, out, v->salt, "allreduce beside another group");
    v->failures = d.failures;
    return NULL;
}

/* Two groups over the same GPUs, each from its own thread. */
void drill_groups(struct drill *d)
{
    struct driver drivers[2] = {{.d = d, .salt = 12}, {.d = d, .salt = 13}};
    pthread_t threads[2];
    drivers[0].g = d->g;
    if (!ok(d, collrun_group_get(d->ctx, "second", &drivers[1].g), "the second group"))
        return;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, drive, &drivers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        d->failures += drivers[i].failures;
    }
}

/* Collectives of a group, started and not waited for, from a thread of their own or not. */
struct pair {
    struct drill *d;
    struct collrun_group *g;
    void *in, *out;
    struct collrun_request *r[2];
};

static void *start_pair(void *arg)
{
    struct pair *p = arg;
    struct collrun_call c = allreduce_call(p->in, p->out);
    for (int i = 0; i < 2; i++)
        ok(p->d, collrun_start(p->g, &c, &p->r[i]), "start");
    return NULL;
}

static void run_pair(struct pair *p, bool in_thread)
{
    pthread_t thread;
    if (!in_thread) {
        start_pair(p);
        return;
    }
    pthread_create(&thread, NULL, start_pair, p);
    pthread_join(thread, NULL);
}

static bool find_pairs(struct drill *d, struct pair *pairs)
{
    for (int i = 0; i < 2; i++)
        pairs[i] = (struct pair){.d = d,
                                 .g = d->g,
                                 .in = device_values(0, d->rank, COUNT, 22),
                                 .out = cuda_new(0, COUNT * 4)};
    return ok(d, collrun_group_get(d->ctx, "second", &pairs[1].g), "the second group");
}

/* Each rank starts on another group first. */
static void cross_pairs(struct drill *d, struct pair *pairs, bool in_threads)
{
    for (int round = 0; round < 50 && !d->failures; round++) {
        for (int i = 0; i < 2; i++)
            run_pair(&pairs[(d->rank + i) % 2], in_threads);
        for (int i = 0; i < 2; i++)
            ok(d, collrun_wait_all(pairs[i].r, 2), "wait_all");
    }
    for (int i = 0; i < 2; i++)
        expect_sum(d, 0, pairs[i].out, 22, "allreduce");
}

/* From threads, of which the first collectives know nothing. */
void drill_threads(struct drill *d)
{
    struct pair pairs[2];
    if (!find_pairs(d, pairs))
        return;
    for (int i = 0; i < 100 && !d->failures; i++) {
        run_pair(&pairs[0], false);
        ok(d, collrun_wait_all(pairs[0].r, 2), "wait_all");
    }
    cross_pairs(d, pairs, true);
}

/* From one thread; and one rank waits for the second group before it comes to the first. */
void drill_inverse(struct drill *d)
{
    struct pair pairs[2];
    if (!find_pairs(d, pairs))
        return;
    cross_pairs(d, pairs, false);
    for (int round = 0; round < 20 && !d->failures; round++) {
        if (d->rank == 0)
            run_pair(&pairs[0], false);
        run_pair(&pairs[1], round % 2);
        ok(d, collrun_wait_all(pairs[1].r, 2), "wait_all");
        if (d->rank != 0)
            run_pair(&pairs[0], false);
        ok(d, collrun_wait_all(pairs[0].r, 2), "wait_all");
    }
}

/* Chains by a stream, which differ by rank: a collective of the first group begins after one of the
 * second, or of the third, and is followed by one of the other. */
void drill_chains(struct drill *d)
{
    struct collrun_group *g[3] = {d->g};
    struct collrun_request *r[3] = {NULL};
    void *stream = cuda_new_stream(0), *out[3], *in = device_values(0, d->rank, COUNT, 23);
    const int early = 1 + d->rank % 2, late = 3 - early;
    if (!ok(d, collrun_group_get(d->ctx, "second", &g[1]), "the second group") ||
        !ok(d, collrun_group_get(d->ctx, "third", &g[2]), "the third group"))
        return;
    for (int i = 0; i < 3; i++)
        out[i] = cuda_new(0, COUNT * 4);
    for (int round = 0; round < 20 && !d->failures; round++) {
        const int order[3] = {early, 0, late};
        for (int i = 0; i < 3; i++) {
            struct collrun_call c = allreduce_call(in, out[order[i]]);
            c.stream = i == 1 ? stream : NULL;
            ok(d, collrun_start(g[order[i]], &c, &r[i]), "start");
            if (i == 0)
                ok(d, collrun_wait_stream(r[i], 0, stream), "wait_stream");
        }
        ok(d, collrun_wait_all(r, 3), "wait_all");
        for (int i = 0; i < 3; i++)
            expect_sum(d, 0, out[i], 23, "allreduce in a chain");
    }
}

/* ---- groups that are formed meanwhile ---- */

static void *form_one(void *arg)
{
    struct driver *v = arg;
    struct drill d = *v->d;
    int ranks[MOST];
    char name[32];
    struct collrun_group_options o = {.size = sizeof o, .ranks = ranks};
    d.failures = 0;
    o.backend = collrun_group_backend(v->d->g);
    o.nranks = d.size;
    o.name = name;
    for (int i = 0; i < d.size; i++)
        ranks[i] = collrun_world_rank_of(v->d->g, i);
    for (int round = 0; round < 5 && !d.failures; round++) {
        snprintf(name, sizeof name, "formed-%d-%d", v->salt, round);
        pause_ms((d.rank + v->salt + round) % 2 * 5);
        if (!ok(&d, collrun_group_create(d.ctx, &o, &v->g), "group_create"))
            break;
        struct driver one = {.d = &d, .g = v->g, .salt = v->salt};
        drive(&one);
        d.failures += one.failures;
        ok(&d, collrun_group_destroy(v->g), "group_destroy");
    }
    v->failures = d.failures;
    return NULL;
}

/* Two threads of each rank form groups at once, in different orders. */
void drill_forming(struct drill *d)
{
    struct driver drivers[2] = {{.d = d, .salt = 24}, {.d = d, .salt = 25}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, form_one, &drivers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        d->failures += drivers[i].failures;
    }
}

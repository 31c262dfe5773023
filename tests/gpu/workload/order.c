/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of several groups, and messages beside collectives, in orders that differ by rank. All
 * of them must complete, from any threads.
 */
#include "workload.h"

#include <pthread.h>

/* Rank 0 starts two collectives, then sends; rank 1 receives before it starts them. */
void gpu_overtake(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 20), *out = cuda_new(0, COUNT * 4);
    void *buffer = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_request *r[2] = {NULL};
    for (int i = 0; i < 100; i++) /* the history is regular, what follows is not */
        ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    for (int round = 0; round < 20 && !t->failures; round++) {
        if (t->rank && ok(t, collrun_recv(t->g, buffer, COUNT, COLLRUN_INT32, 0), "recv"))
            expect_values(t, 0, buffer, COUNT, 0, 20, "a message");
        for (int i = 0; i < 2; i++)
            ok(t, collrun_start(t->g, &c, &r[i]), "start");
        if (!t->rank)
            ok(t, collrun_send(t->g, in, COUNT, COLLRUN_INT32, 1), "send");
        if (ok(t, collrun_wait_all(r, 2), "wait_all"))
            expect_sum(t, 0, out, 20, "allreduce before a message");
    }
}

/* All ranks have one program: a message from rank 2 to 1, two collectives, a message from 0 to 1.
 * Rank 2 is late. The message from rank 0, which cannot start before the collectives, must not keep
 * rank 1 from receiving the one from rank 2. */
void gpu_late_sender(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 21), *out = cuda_new(0, COUNT * 4);
    void *early = cuda_new(0, COUNT * 4), *last = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_call first = message_call(COLLRUN_SEND, in, 0, 1), second = first;
    struct collrun_request *r[4] = {NULL};
    for (int i = 0; i < 100; i++)
        ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    if (t->rank == 1) {
        first = message_call(COLLRUN_RECV, early, 0, 2);
        second = message_call(COLLRUN_RECV, last, 0, 0);
    }
    if (t->rank == 2)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (t->rank != 0)
        ok(t, collrun_start(t->g, &first, &r[0]), "start");
    if (t->rank == 2)
        ok(t, collrun_wait_all(r, 1), "the first message");
    for (int i = 1; i < 3; i++)
        ok(t, collrun_start(t->g, &c, &r[i]), "start");
    if (t->rank != 2)
        ok(t, collrun_start(t->g, &second, &r[3]), "start");
    if (!ok(t, collrun_wait_all(r, 4), "wait_all"))
        return;
    expect_sum(t, 0, out, 21, "allreduce beside messages");
    if (t->rank == 1) {
        expect_values(t, 0, early, COUNT, 2, 21, "the message of rank 2");
        expect_values(t, 0, last, COUNT, 0, 21, "the message of rank 0");
    }
}

/* ---- several groups ---- */

struct driver {
    struct gpu_test *t;
    struct collrun_group *g;
    int salt, failures;
};

static void *drive(void *arg)
{
    struct driver *v = arg;
    struct gpu_test t = *v->t;
    t.failures = 0;
    t.g = v->g;
    t.rank = collrun_rank(v->g);
    t.comm_size = collrun_size(v->g);
    void *in = device_values(0, t.rank, COUNT, v->salt), *out = cuda_new(0, COUNT * 4);
    for (int i = 0; i < 30 && !t.failures; i++)
        if (ok(&t, collrun_allreduce(v->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM),
               "allreduce"))
            expect_sum(&t, 0, out, v->salt, "allreduce beside another group");
    v->failures = t.failures;
    return NULL;
}

/* Two groups on the same GPUs, each driven by one thread. */
void gpu_groups(struct gpu_test *t)
{
    struct driver drivers[2] = {{.t = t, .salt = 12}, {.t = t, .salt = 13}};
    pthread_t threads[2];
    drivers[0].g = t->g;
    if (!ok(t, collrun_group_get(t->ctx, "second", &drivers[1].g), "the second group"))
        return;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, drive, &drivers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        t->failures += drivers[i].failures;
    }
}

/* Two collectives of a group, started without waiting, in a separate thread or not. */
struct pair {
    struct gpu_test *t;
    struct collrun_group *g;
    void *in, *out;
    struct collrun_request *r[2];
};

static void *start_pair(void *arg)
{
    struct pair *p = arg;
    struct collrun_call c = allreduce_call(p->in, p->out);
    for (int i = 0; i < 2; i++)
        ok(p->t, collrun_start(p->g, &c, &p->r[i]), "start");
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

static bool find_pairs(struct gpu_test *t, struct pair *pairs)
{
    for (int i = 0; i < 2; i++)
        pairs[i] = (struct pair){.t = t,
                                 .g = t->g,
                                 .in = device_values(0, t->rank, COUNT, 22),
                                 .out = cuda_new(0, COUNT * 4)};
    return ok(t, collrun_group_get(t->ctx, "second", &pairs[1].g), "the second group");
}

/* The ranks start with different groups. */
static void cross_pairs(struct gpu_test *t, struct pair *pairs, bool in_threads)
{
    for (int round = 0; round < 50 && !t->failures; round++) {
        for (int i = 0; i < 2; i++)
            run_pair(&pairs[(t->rank + i) % 2], in_threads);
        for (int i = 0; i < 2; i++)
            ok(t, collrun_wait_all(pairs[i].r, 2), "wait_all");
    }
    for (int i = 0; i < 2; i++)
        expect_sum(t, 0, pairs[i].out, 22, "allreduce");
}

/* From threads that did not exist during the first collectives. */
void gpu_threads(struct gpu_test *t)
{
    struct pair pairs[2];
    if (!find_pairs(t, pairs))
        return;
    for (int i = 0; i < 100 && !t->failures; i++) {
        run_pair(&pairs[0], false);
        ok(t, collrun_wait_all(pairs[0].r, 2), "wait_all");
    }
    cross_pairs(t, pairs, true);
}

/* From one thread; then one rank waits for the second group before it starts on the first. */
void gpu_inverse(struct gpu_test *t)
{
    struct pair pairs[2];
    if (!find_pairs(t, pairs))
        return;
    cross_pairs(t, pairs, false);
    for (int round = 0; round < 20 && !t->failures; round++) {
        if (t->rank == 0)
            run_pair(&pairs[0], false);
        run_pair(&pairs[1], round % 2);
        ok(t, collrun_wait_all(pairs[1].r, 2), "wait_all");
        if (t->rank != 0)
            run_pair(&pairs[0], false);
        ok(t, collrun_wait_all(pairs[0].r, 2), "wait_all");
    }
}

/* Chains by a stream, which differ by rank: a collective of the first group starts after one of the
 * second (or third) group, and one of the third (or second) follows. */
void gpu_chains(struct gpu_test *t)
{
    struct collrun_group *g[3] = {t->g};
    struct collrun_request *r[3] = {NULL};
    void *stream = cuda_new_stream(0), *out[3], *in = device_values(0, t->rank, COUNT, 23);
    int early = 1 + t->rank % 2, late = 3 - early;
    if (!ok(t, collrun_group_get(t->ctx, "second", &g[1]), "the second group") ||
        !ok(t, collrun_group_get(t->ctx, "third", &g[2]), "the third group"))
        return;
    for (int i = 0; i < 3; i++)
        out[i] = cuda_new(0, COUNT * 4);
    for (int round = 0; round < 20 && !t->failures; round++) {
        int order[3] = {early, 0, late};
        for (int i = 0; i < 3; i++) {
            struct collrun_call c = allreduce_call(in, out[order[i]]);
            c.stream = i == 1 ? stream : NULL;
            ok(t, collrun_start(g[order[i]], &c, &r[i]), "start");
            if (i == 0)
                ok(t, collrun_wait_stream(r[i], 0, stream), "wait_stream");
        }
        ok(t, collrun_wait_all(r, 3), "wait_all");
        for (int i = 0; i < 3; i++)
            expect_sum(t, 0, out[i], 23, "allreduce in a chain");
    }
}

/* ---- groups formed in between ---- */

static void *form_one(void *arg)
{
    struct driver *v = arg;
    struct gpu_test t = *v->t;
    int ranks[MAX_BLOCKS];
    char name[32];
    struct collrun_group_options o = {.size = sizeof o, .ranks = ranks};
    t.failures = 0;
    o.backend = collrun_group_backend(v->t->g);
    o.nranks = t.size;
    o.name = name;
    for (int i = 0; i < t.size; i++)
        ranks[i] = collrun_world_rank_of(v->t->g, i);
    for (int round = 0; round < 5 && !t.failures; round++) {
        snprintf(name, sizeof name, "formed-%d-%d", v->salt, round);
        pause_ms((t.rank + v->salt + round) % 2 * 5);
        if (!ok(&t, collrun_group_create(t.ctx, &o, &v->g), "group_create"))
            break;
        struct driver one = {.t = &t, .g = v->g, .salt = v->salt};
        drive(&one);
        t.failures += one.failures;
        ok(&t, collrun_group_destroy(v->g), "group_destroy");
    }
    v->failures = t.failures;
    return NULL;
}

/* Two threads of each rank form groups at the same time, in different orders. */
void gpu_forming(struct gpu_test *t)
{
    struct driver drivers[2] = {{.t = t, .salt = 24}, {.t = t, .salt = 25}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, form_one, &drivers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        t->failures += drivers[i].failures;
    }
}

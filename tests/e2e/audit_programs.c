/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that call collectives one after the other; one of them makes a mistake in one operation.
 *   mistake   none, op, dtype, root, kind, count, counts, extra (one more at the end), two (more),
 *             started (one more, and its request is never waited for), destroy (the group, instead
 *             of the operation); name, order (of a group of the first three that is created);
 * barrier (while the others split the group), run (returns without its part in the creation);
 *             threads (no mistake: two threads create two groups, each rank in another order),
 *             alarm (no mistake: it creates the group once a signal handler lets it)
 *   rank, at  who makes it, and in which operation (from 1)
 *   steps     operations of each rank
 *   pause_us  before each of them; before those of the `late_ranks` ranks from `late` on, late_us
 *             more; and jitter_us at most, at random, before those of each rank
 *   group     the group to use; with `split`, one made from it with the name "half", of every
 *             second rank, or of all for `destroy`
 * After a failure, the rank that made the mistake prints for how long it went on.
 */
#include <collrun/workload.h>

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 8, MOST = 64 };

struct program {
    struct collrun_group *whole, *g;
    const char *mistake;
    int rank, size, at;
    float *in, *out; /* MOST elements each, where the backend of the group works */
};

static const struct collrun_param params[] = {
    {.name = "mistake", .type = COLLRUN_PARAM_STRING, .help = "what", .def = "none"},
    {.name = "group", .type = COLLRUN_PARAM_STRING, .help = "its name", .def = "world"},
    {.name = "split", .type = COLLRUN_PARAM_BOOL, .help = "in a part of it", .def = "false"},
    {.name = "rank", .type = COLLRUN_PARAM_INT, .help = "who makes it", .def = "1"},
    {.name = "at", .type = COLLRUN_PARAM_INT, .help = "in which operation", .def = "5"},
    {.name = "steps", .type = COLLRUN_PARAM_INT, .help = "operations", .def = "10"},
    {.name = "pause_us", .type = COLLRUN_PARAM_INT, .help = "before each", .def = "0"},
    {.name = "jitter_us", .type = COLLRUN_PARAM_INT, .help = "before each, at most", .def = "0"},
    {.name = "late", .type = COLLRUN_PARAM_INT, .help = "a slow rank", .def = "-1"},
    {.name = "late_ranks", .type = COLLRUN_PARAM_INT, .help = "so many, from it", .def = "1"},
    {.name = "late_us", .type = COLLRUN_PARAM_INT, .help = "its further pause", .def = "0"},
    {0}};

static int equal_counts(struct program *p, size_t first)
{
    size_t sends[MOST], receives[MOST];
    for (int i = 0; i < p->size; i++)
        sends[i] = receives[i] = 1;
    if (first != 1)
        receives[(p->rank + 1) % p->size] = first;
    return collrun_alltoallv(p->g, p->in, sends, NULL, p->out, receives, NULL, COLLRUN_FLOAT32);
}

/* One operation, with a mistake or ("none") without. */
static int step(struct program *p, int i, const char *mistake)
{
    bool is_root = strcmp(mistake, "root") == 0;
    if (strcmp(mistake, "kind") == 0)
        return collrun_allgather(p->g, p->in, p->out, COUNT, COLLRUN_FLOAT32);
    if (strcmp(p->mistake, "counts") == 0 && i == p->at)
        return equal_counts(p, strcmp(mistake, "counts") == 0 ? 2 : 1);
    if (strcmp(p->mistake, "root") == 0 && i == p->at)
        return collrun_broadcast(p->g, p->in, COUNT, COLLRUN_FLOAT32, is_root ? 1 : 0);
    return collrun_allreduce(p->g, p->in, p->out, strcmp(mistake, "count") == 0 ? 1 : COUNT,
                             strcmp(mistake, "dtype") == 0 ? COLLRUN_INT32 : COLLRUN_FLOAT32,
                             strcmp(mistake, "op") == 0 ? COLLRUN_MAX : COLLRUN_SUM);
}

/* Operations that no other rank calls. */
static int add_steps(struct program *p)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    struct collrun_request *request;
    bool two = strcmp(p->mistake, "two") == 0;
    if (strcmp(p->mistake, "started") == 0) {
        call.send = p->in;
        call.recv = p->out;
        call.count = COUNT;
        call.dtype = COLLRUN_FLOAT32;
        return collrun_start(p->g, &call, &request);
    }
    int rc = 0;
    if (two || strcmp(p->mistake, "extra") == 0)
        rc = collrun_broadcast(p->g, p->in, 1, COLLRUN_FLOAT32, p->rank);
    return two && !rc ? collrun_broadcast(p->g, p->in, 2, COLLRUN_FLOAT32, p->rank) : rc;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int open_group(struct collrun_ctx *ctx, struct program *p)
{
    const int parts = strcmp(p->mistake, "destroy") == 0 ? 1 : 2;
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &p->whole);
    p->g = p->whole;
    if (!rc && collrun_param_bool(ctx, "split"))
        rc = collrun_group_split(p->whole, collrun_rank(p->whole) % parts, 0, "half", &p->g);
    if (!rc)
        rc = collrun_alloc(p->g, MOST * sizeof(float), (void **)&p->in);
    if (!rc)
        rc = collrun_alloc(p->g, MOST * sizeof(float), (void **)&p->out);
    if (!rc) {
        p->rank = collrun_rank(p->g);
        p->size = collrun_size(p->g);
    }
    return rc;
}

struct creator {
    struct collrun_ctx *ctx;
    const char *name;
    bool later;
    int rc;
};

/* A thread that neither waits for this one nor has called anything may create its group later. */
static void *create_in_thread(void *arg)
{
    static const int all[] = {0, 1, 2, 3};
    struct creator *c = arg;
    const struct collrun_group_options o = {
        .size = sizeof o, .name = c->name, .ranks = all, .nranks = 4};
    struct collrun_group *g;
    if (c->later)
        usleep(1200000);
    c->rc = collrun_group_create(c->ctx, &o, &g);
    return NULL;
}

static int create_in_threads(struct collrun_ctx *ctx, const struct program *p)
{
    struct creator c[] = {{ctx, "a", p->rank % 2, 0}, {ctx, "b", !(p->rank % 2), 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, create_in_thread, &c[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return c[0].rc ? c[0].rc : c[1].rc;
}

static sem_t alarmed;

static void on_alarm(int sig)
{
    (void)sig;
    sem_post(&alarmed);
}

static void await_alarm(void)
{
    sem_init(&alarmed, 0, 0);
    signal(SIGALRM, on_alarm);
    alarm(2);
    while (sem_wait(&alarmed) < 0)
        continue;
}

static int create(struct collrun_ctx *ctx, const struct program *p, bool mine)
{
    static const int ranks[] = {0, 1, 2}, turned[] = {2, 1, 0};
    const bool name = strcmp(p->mistake, "name") == 0, order = strcmp(p->mistake, "order") == 0,
               leaves = strcmp(p->mistake, "run") == 0, waits = strcmp(p->mistake, "alarm") == 0;
    const struct collrun_group_options o = {.size = sizeof o,
                                            .name = name && mine ? "news" : "new",
                                            .ranks = order && mine ? turned : ranks,
                                            .nranks = 3};
    struct collrun_group *g;
    if (waits && mine)
        await_alarm();
    if (strcmp(p->mistake, "threads") == 0)
        return create_in_threads(ctx, p);
    if (strcmp(p->mistake, "barrier") == 0)
        return mine ? collrun_barrier(p->g) : collrun_group_split(p->g, 0, 0, NULL, &g);
    return (name || order || waits || (leaves && !mine)) && p->rank < 3
               ? collrun_group_create(ctx, &o, &g)
               : 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct program p = {.mistake = collrun_param_string(ctx, "mistake")};
    int steps = (int)collrun_param_int(ctx, "steps"),
        pause = (int)collrun_param_int(ctx, "pause_us");
    int rc = open_group(ctx, &p);
    (void)state;
    bool mine = p.rank == collrun_param_int(ctx, "rank");
    int64_t first_late = collrun_param_int(ctx, "late");
    bool late = first_late >= 0 && p.rank >= first_late &&
                p.rank < first_late + collrun_param_int(ctx, "late_ranks");
    double begun = 0;
    rc = rc ? rc : create(ctx, &p, mine);
    p.at = (int)collrun_param_int(ctx, "at");
    srandom((unsigned)getpid());
    for (int i = 1; !rc && i <= steps; i++) {
        bool wrong = mine && i == p.at;
        int jitter = (int)collrun_param_int(ctx, "jitter_us");
        jitter = jitter ? (int)(random() % jitter) : 0;
        if (pause || late || jitter)
            usleep((useconds_t)(pause + jitter + (late ? collrun_param_int(ctx, "late_us") : 0)));
        /* The others call theirs meanwhile: of two calls alone, which is wrong is not known,
         * and a call on a group that has failed is none. */
        if (wrong && pause)
            usleep(300000);
        begun = wrong ? seconds() : begun;
        if (wrong && strcmp(p.mistake, "destroy") == 0) {
            rc = collrun_group_destroy(p.g);
            return rc ? rc : collrun_barrier(p.whole);
        }
        rc = step(&p, i, wrong ? p.mistake : "none");
    }
    if (!rc && strcmp(p.mistake, "destroy") == 0)
        rc = collrun_group_destroy(p.g);
    if (!rc && strcmp(p.mistake, "destroy") == 0)
        rc = collrun_barrier(p.whole);
    if (!rc && mine)
        rc = add_steps(&p);
    if (begun > 0)
        printf("went on for %.0f ms\n", 1e3 * (seconds() - begun));
    return rc;
}

COLLRUN_WORKLOAD(.name = "audit_programs", .summary = "ranks that disagree", .params = params,
                 .run = run);

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the flight recorder adds to a call, in nanoseconds, for every kind of operation and groups
 * of 2, 4 and 8 ranks. The group's backend does nothing. Three engines take turns, in rounds of a
 * fraction of a millisecond: one without any record, one with record.entries: 0 (marks and the
 * current operation alone), one with the default ring.
 *
 * Only rounds that other programs have hardly disturbed count: those in which no engine was more
 * than a tenth slower than in its best round. A row has the medians of the three, and the median of
 * the differences between the last and the first, with its confidence interval of 99.5 %. The
 * process is the root of operations that have one. V-forms have a second row, in which the counts
 * of each call differ from those of the last.
 *
 * usage: record_cost [ROUNDS [KIND]]      9 to PAIRED_MOST rounds of each engine; all kinds
 */
#include "base/loop.h"
#include "base/names.h"
#include "base/record_queue.h"
#include "bench/paired.h"
#include "unit/null_group.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 2000, MOST_RANKS = 8, COUNT = 4, WITHOUT = 0, MARKS = 1, ENTRIES = 2, RECORDS = 3 };
enum { ENOUGH = 25 /* rounds without disturbance */, FEWEST = 3, TRIES = 5 };

static float in[MOST_RANKS * COUNT], out[MOST_RANKS * COUNT];

static int cost_even(struct collrun_group *g, enum collrun_kind kind)
{
    const int root = (int)g->rank;
    switch (kind) {
    case COLLRUN_BARRIER:
        return collrun_barrier(g);
    case COLLRUN_ALLREDUCE:
        return collrun_allreduce(g, in, out, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM);
    case COLLRUN_REDUCE:
        return collrun_reduce(g, in, out, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM, root);
    case COLLRUN_BROADCAST:
        return collrun_broadcast(g, out, COUNT, COLLRUN_FLOAT32, root);
    case COLLRUN_ALLGATHER:
        return collrun_allgather(g, in, out, COUNT, COLLRUN_FLOAT32);
    case COLLRUN_GATHER:
        return collrun_gather(g, in, out, COUNT, COLLRUN_FLOAT32, root);
    case COLLRUN_SCATTER:
        return collrun_scatter(g, in, out, COUNT, COLLRUN_FLOAT32, root);
    case COLLRUN_REDUCE_SCATTER:
        return collrun_reduce_scatter(g, in, out, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM);
    case COLLRUN_ALLTOALL:
        return collrun_alltoall(g, in, out, COUNT, COLLRUN_FLOAT32);
    case COLLRUN_SCAN:
        return collrun_scan(g, in, out, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM);
    case COLLRUN_EXSCAN:
        return collrun_exscan(g, in, out, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM);
    case COLLRUN_SEND:
        return collrun_send(g, in, COUNT, COLLRUN_FLOAT32, 0);
    default:
        return collrun_recv(g, out, COUNT, COLLRUN_FLOAT32, 0);
    }
}

static int cost_uneven(struct collrun_group *g, enum collrun_kind kind, const size_t *n)
{
    const int root = (int)g->rank;
    switch (kind) {
    case COLLRUN_ALLGATHERV:
        return collrun_allgatherv(g, in, n[root], out, n, NULL, COLLRUN_FLOAT32);
    case COLLRUN_GATHERV:
        return collrun_gatherv(g, in, n[root], out, n, NULL, COLLRUN_FLOAT32, root);
    case COLLRUN_SCATTERV:
        return collrun_scatterv(g, in, n, NULL, out, n[root], COLLRUN_FLOAT32, root);
    case COLLRUN_REDUCE_SCATTERV:
        return collrun_reduce_scatterv(g, in, out, n, COLLRUN_FLOAT32, COLLRUN_SUM);
    default:
        return collrun_alltoallv(g, in, n, NULL, out, n, NULL, COLLRUN_FLOAT32);
    }
}

/* What is measured: a kind, and whether the counts change. */
struct cost_case {
    enum collrun_kind kind;
    bool changing;
};

static double cost_round(struct collrun_group *g, const struct cost_case *c)
{
    static const size_t counts[2][MOST_RANKS] = {{4, 4, 4, 4, 4, 4, 4, 4},
                                                 {1, 2, 3, 4, 4, 3, 2, 1}};
    uint64_t start = now_ns();
    for (int i = 0; i < CALLS; i++) {
        const size_t *n = counts[c->changing ? i & 1 : 0];
        if ((collrun_kind_is_vector(c->kind) ? cost_uneven(g, c->kind, n)
                                             : cost_even(g, c->kind)) != COLLRUN_OK) {
            fprintf(stderr, "a call failed: %s\n", collrun_error());
            exit(1);
        }
    }
    return (double)(now_ns() - start) / (double)CALLS;
}

static void cost_open(uint32_t entries, uint32_t ranks, struct record_queue *queues)
{
    struct record_head *head = record_map(record_make(0, entries));
    if (!head) {
        fprintf(stderr, "no memory for a record\n");
        exit(1);
    }
    for (int i = 0; i < 2; i++)
        record_queue_open(
            &queues[i], head,
            &(struct record_queue_info){
                .name = "test", .scope = "test#0", .members = ranks, .messages = i == 1});
}

struct cost_rounds {
    double ns[RECORDS][PAIRED_MOST], more[PAIRED_MOST];
    unsigned n;
};

static void cost_run(struct collrun_group *g, struct record_queue (*queues)[2],
                     const struct cost_case *c, struct cost_rounds *rounds)
{
    for (unsigned i = 0; i < rounds->n; i++) {
        for (int r = 0; r < RECORDS; r++) {
            memcpy(g->calls.record, queues[r], sizeof g->calls.record);
            rounds->ns[r][i] = cost_round(g, c);
            memcpy(queues[r], g->calls.record, sizeof g->calls.record);
        }
    }
}

/* True if no engine was much slower in a round than in its best one. */
static bool cost_is_quiet(const struct cost_rounds *rounds, unsigned round, const double *best)
{
    for (int r = 0; r < RECORDS; r++)
        if (rounds->ns[r][round] > 1.1 * best[r])
            return false;
    return true;
}

/* Keeps the rounds without disturbance; all of them, if these are too few for a median. */
static void cost_select(struct cost_rounds *rounds)
{
    double best[RECORDS] = {INFINITY, INFINITY, INFINITY};
    unsigned kept = 0;
    for (unsigned i = 0; i < rounds->n; i++)
        for (int r = 0; r < RECORDS; r++)
            best[r] = rounds->ns[r][i] < best[r] ? rounds->ns[r][i] : best[r];
    unsigned quiet = 0;
    for (unsigned i = 0; i < rounds->n; i++)
        quiet += cost_is_quiet(rounds, i, best);
    for (unsigned i = 0; i < rounds->n; i++) {
        if (quiet >= FEWEST && !cost_is_quiet(rounds, i, best))
            continue;
        for (int r = 0; r < RECORDS; r++)
            rounds->ns[r][kept] = rounds->ns[r][i];
        rounds->more[kept] = rounds->ns[ENTRIES][kept] - rounds->ns[WITHOUT][kept];
        kept++;
    }
    rounds->n = kept;
}

static void cost_measure(struct collrun_group *g, struct record_queue (*queues)[2],
                         const struct cost_case *c, unsigned n)
{
    static struct cost_rounds rounds;
    char name[32];
    const int most = n < ENOUGH ? 1 : TRIES;
    rounds.n = 0;
    for (int tries = 0; tries < most && rounds.n < ENOUGH; tries++) {
        rounds.n = n;
        cost_run(g, queues, c, &rounds);
        cost_select(&rounds);
    }
    struct interval cost = paired_interval(rounds.more, rounds.n);
    snprintf(name, sizeof name, "%s%s", kind_name(c->kind), c->changing ? ", new" : "");
    printf("%-20s %5u", name, g->nranks);
    for (int r = 0; r < RECORDS; r++)
        printf(" %12.1f", paired_interval(rounds.ns[r], rounds.n).median);
    printf(" %8.1f [%.1f, %.1f] %4u\n", cost.median, cost.low, cost.high, rounds.n);
}

static void cost_group(uint32_t ranks, unsigned rounds, const char *only)
{
    struct record_queue queues[RECORDS][2] = {{{0}}};
    struct collrun_group *g = null_group_new(ranks - 1, ranks, 0);
    cost_open(0, ranks, queues[MARKS]);
    cost_open(RECORD_ENTRIES, ranks, queues[ENTRIES]);
    for (int kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        struct cost_case c = {.kind = (enum collrun_kind)kind};
        if (c.kind == COLLRUN_RECV_ANY || (only && strcmp(only, kind_name(c.kind)) != 0))
            continue;
        cost_measure(g, queues, &c, rounds);
        c.changing = collrun_kind_is_vector(c.kind);
        if (c.changing)
            cost_measure(g, queues, &c, rounds);
    }
    memset(g->calls.record, 0, sizeof g->calls.record);
    null_group_free(g);
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : PAIRED_MOST;
    unsigned rounds = wanted < 9 ? 9 : wanted > PAIRED_MOST ? PAIRED_MOST : (unsigned)wanted;
    printf("%-20s %5s %12s %12s %12s %8s\n", "call", "ranks", "no record", "entries 0",
           "entries 4096", "cost, interval, rounds");
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks *= 2)
        cost_group(ranks, rounds, argc > 2 ? argv[2] : NULL);
    return 0;
}

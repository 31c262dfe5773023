/* SPDX-License-Identifier: Apache-2.0
 *
 * Which operations are tried. At small counts everything: kind x type x operator x in place x root
 * x count, with a misaligned buffer in every other pass and all three layouts of the v-forms.
 * Groups of more than four ranks take roots in turn instead of all of them, unless `wide`. At large
 * counts a pairwise set: every pair of values of any two dimensions occurs in some case, found
 * greedily from the seed.
 */
#include "conform.h"

#include <stdlib.h>

static const size_t small_counts[] = {0, 1, 2, 3, 17, 1000};

/* ---- small: everything ---- */
static void sweep_counts(struct team *team, struct trial *t, struct shape s)
{
    for (size_t i = 0; i < ARRAY_LEN(small_counts); i++) {
        s.count = small_counts[i];
        s.misalign = 0;
        trial_run(t, team, &s);
    }
    s.count = 17;
    s.misalign = 1;
    trial_run(t, team, &s);
    s.count = 1000;
    s.misalign = 3;
    trial_run(t, team, &s);
}

static void sweep_roots(struct team *team, struct trial *t, struct shape s)
{
    if (!has_root(s.kind)) {
        sweep_counts(team, t, s);
        return;
    }
    bool all = team->run->wide || team->size <= 4;
    int first = all ? 0 : (int)(team->serial % (uint64_t)team->size);
    for (int i = 0; i < (all ? team->size : 1); i++) {
        s.root = (first + i) % team->size;
        sweep_counts(team, t, s);
    }
}

static void sweep_variants(struct team *team, struct trial *t, struct shape s)
{
    if (is_v(s.kind)) {
        for (int layout = LAYOUT_PACKED; layout <= LAYOUT_REVERSED; layout++) {
            s.layout = (enum layout)layout;
            sweep_roots(team, t, s);
            s.in_place = true;
            if (has_in_place(s.kind))
                sweep_roots(team, t, s);
            s.in_place = false;
        }
        return;
    }
    sweep_roots(team, t, s);
    s.in_place = true;
    if (has_in_place(s.kind))
        sweep_roots(team, t, s);
}

static void sweep_ops(struct team *team, struct trial *t, struct shape s)
{
    if (!has_op(s.kind)) {
        sweep_variants(team, t, s);
        return;
    }
    for (int op = 0; op < COLLRUN_OP_COUNT; op++) {
        s.op = (enum collrun_op)op;
        if (op_in_scope(team->run, s.op) && op_applies(s.dtype, s.op))
            sweep_variants(team, t, s);
    }
}

void suite_sweep(struct team *team)
{
    struct trial t = {0};
    for (int kind = COLLRUN_BARRIER; kind < COLLRUN_KIND_COUNT; kind++) {
        struct shape s = {.kind = (enum collrun_kind)kind};
        if (collrun_kind_is_message(s.kind) || !kind_in_scope(team->run, s.kind))
            continue;
        for (int dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++) {
            s.dtype = (enum collrun_dtype)dtype;
            if (kind != COLLRUN_BARRIER && dtype_in_scope(team->run, s.dtype))
                sweep_ops(team, &t, s);
        }
        if (kind == COLLRUN_BARRIER)
            trial_run(&t, team, &s);
    }
    trial_free(&t);
}

/* ---- large: pairwise ---- */
enum { DIMS = 8, MOST = COLLRUN_KIND_COUNT, TRIES = 300, MOST_ELEMENTS = 300001 };
enum dim { D_KIND, D_DTYPE, D_OP, D_SIZE, D_IN_PLACE, D_MISALIGN, D_ROOT, D_LAYOUT };

struct pairwise {
    int values[DIMS];
    bool seen[DIMS][MOST][DIMS][MOST];
    uint64_t random;
};

static int draw(struct pairwise *p, int n)
{
    p->random = mix(p->random);
    return (int)(p->random % (uint64_t)n);
}

static bool row_shape(const struct team *team, const int *row, struct shape *s);

static int fresh_pairs(const struct pairwise *p, const int *row)
{
    int fresh = 0;
    for (int a = 0; a < DIMS; a++)
        for (int b = a + 1; b < DIMS; b++)
            fresh += !p->seen[a][row[a]][b][row[b]];
    return fresh;
}

/* The best of some random rows; false when none of them adds a pair. */
static bool next_row(const struct team *team, struct pairwise *p, int *row)
{
    struct shape shape;
    int best = 0;
    for (int i = 0; i < TRIES; i++) {
        int candidate[DIMS];
        for (int d = 0; d < DIMS; d++)
            candidate[d] = draw(p, p->values[d]);
        int fresh = row_shape(team, candidate, &shape) ? fresh_pairs(p, candidate) : 0;
        if (fresh <= best)
            continue;
        best = fresh;
        for (int d = 0; d < DIMS; d++)
            row[d] = candidate[d];
    }
    for (int a = 0; best > 0 && a < DIMS; a++)
        for (int b = a + 1; b < DIMS; b++)
            p->seen[a][row[a]][b][row[b]] = true;
    return best > 0;
}

/* Sizes around the chunk and slot sizes that transports like, and odd ones. */
static size_t large_bytes(const struct conform *run, int i)
{
    static const size_t bytes[] = {4095,        65536,   70001,   262144 + 8,
                                   1048576 - 1, 1048576, 3000017, 8388608};
    return bytes[i] < run->max_bytes ? bytes[i] : (size_t)run->max_bytes;
}

static bool spread_kind(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLGATHER || kind == COLLRUN_GATHER || kind == COLLRUN_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_ALLTOALL || is_v(kind);
}

static bool row_shape(const struct team *team, const int *row, struct shape *s)
{
    *s = (struct shape){.kind = (enum collrun_kind)row[D_KIND],
                        .dtype = (enum collrun_dtype)row[D_DTYPE],
                        .op = (enum collrun_op)row[D_OP],
                        .misalign = (unsigned[]){0, 1, 7}[row[D_MISALIGN]],
                        .root = row[D_ROOT] % team->size};
    size_t elements = large_bytes(team->run, row[D_SIZE]) / width(s->dtype);
    if (has_op(s->kind) && elements > MOST_ELEMENTS)
        elements = MOST_ELEMENTS; /* the oracle works element by element */
    s->count = spread_kind(s->kind) ? elements / (size_t)team->size : elements;
    s->in_place = row[D_IN_PLACE] != 0 && has_in_place(s->kind);
    s->layout = is_v(s->kind) ? (enum layout)row[D_LAYOUT] : LAYOUT_PACKED;
    return s->kind != COLLRUN_BARRIER && !collrun_kind_is_message(s->kind) &&
           kind_in_scope(team->run, s->kind) && dtype_in_scope(team->run, s->dtype) &&
           (!has_op(s->kind) || (op_in_scope(team->run, s->op) && op_applies(s->dtype, s->op)));
}

void suite_large(struct team *team)
{
    struct pairwise *p = calloc(1, sizeof *p);
    struct trial t = {0};
    int row[DIMS] = {0};
    if (p == NULL)
        return;
    *p = (struct pairwise){.values = {COLLRUN_KIND_COUNT, COLLRUN_DTYPE_COUNT, COLLRUN_OP_COUNT, 8,
                                      2, 3, team->size, 3},
                           .random = team->run->seed};
    while (next_row(team, p, row)) {
        struct shape s;
        row_shape(team, row, &s);
        trial_run(&t, team, &s);
    }
    trial_free(&t);
    free(p);
}

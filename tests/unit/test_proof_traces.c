/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of small programs (tests/unit/proof_traces.txt) through the writer, the reader and the
 * solver of the record. A trace has the steps of each thread, and looks: each reads every rank at
 * other times, the words, each table and the words again, and names the threads that are proven to
 * wait for ever. The verdicts are those of a model that has compared its rule with all
 * continuations of each program.
 *
 * A line of the file is one of
 *   P n ranks timers folded funneled   a program: the rank of each thread; per rank: a timer may
 *                                      leave calls; the second thread does not call
 *   G group group                      the ranks of its two groups
 *   o kind group rank peer tag sync k  an operation: send, receive, barrier, broadcast
 *   E step step ...                    steps; what one has is separated by /
 *   L times,... ... = thread,...       a look: per rank 2 or 1 times of words, 7 of tables
 * (threads, sent, taken, requests, collectives, -, takes), 2 or 1 of words; the threads that are
 * proven In a step, after the number of its thread: E enter, c operation, p probe, P post, x
 * sendrecv, a and n wait for all and any, k cancel, I inside, L leave, T take and close, Z outside,
 * O state.
 */
#include "base/record_writer.h"
#include "diagnose/proof.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, THREADS = 8, OPS = 64, STEPS = 512, LINE = 1 << 16, TABLES = 7, WORDS = 2 };
enum { TAKEN_CHANNELS = 48, CHANNELS = 64, REQUESTS = 32 };

struct op {
    char kind;
    int group, rank, peer, tag, sync, number;
    uint32_t handle;
};

/* A rank's record, as it was after each step. */
struct memory {
    struct record_head *head;
    struct record_writer *writer;
    struct record_queue groups[2];
    size_t len;
    unsigned char *images; /* one after each step */
};

struct os { /* of a thread, after a step */
    char state;
    uint32_t slices;
};

struct trace {
    int nranks, nthreads, nops, nsteps;
    int rank_of[THREADS], first[RANKS];
    char timers[RANKS + 1], funneled[RANKS + 1];
    int folded;
    char groups[2][RANKS + 1];
    struct op ops[OPS];
    struct memory memory[RANKS];
    struct os os[STEPS][THREADS];
    const char *text; /* of the look, for failures */
};

static struct trace trace;

/* ---- the record of a rank ---- */

static uint32_t tid_of(int thread)
{
    return 100u + (uint32_t)thread;
}

/* Tags share a folded channel in programs that fold. */
static uint32_t tag_of(int tag)
{
    uint32_t t = 5;
    if (tag < 0)
        return RECORD_ANY_TAG;
    while (tag && (record_fold(++t) != record_fold(5) || --tag))
        continue;
    return t;
}

static void open_memory(int rank)
{
    struct memory *m = &trace.memory[rank];
    struct record_head head = {.ngroups = 4,
                               .rank = (uint32_t)rank,
                               .nthreads = 4,
                               .nrequests = REQUESTS,
                               .nchannels = CHANNELS,
                               .nmembers = 32};
    memcpy(head.magic, RECORD_MAGIC, sizeof head.magic);
    m->len = record_layout(&head).size;
    m->head = calloc(1, m->len);
    m->images = calloc(STEPS, m->len);
    assert_true(m->head && m->images);
    memcpy(m->head, &head, sizeof head);
    m->writer = record_writer_open(m->head, RECORD_TAP_ENGINE,
                                   trace.funneled[rank] == '1' ? RECORD_LEVEL_FUNNELED
                                                               : RECORD_LEVEL_SERIALIZED);
    assert_non_null(m->writer);
    atomic_store(&m->head->init_thread, tid_of(trace.first[rank]));
    if (trace.folded) /* channels of no group take the place of exact ones */
        atomic_store(&m->head->channels_used, TAKEN_CHANNELS);
    for (int t = 0; t < trace.nthreads; t++) {
        if (trace.rank_of[t] != rank)
            continue;
        const uint32_t number = atomic_fetch_add(&m->head->threads_used, 1) + 1;
        atomic_store(&m->writer->threads[number].tid, tid_of(t));
    }
}

static void open_groups(int rank)
{
    struct memory *m = &trace.memory[rank];
    for (int g = 0; g < 2; g++) {
        uint32_t world[RANKS];
        const uint32_t n = (uint32_t)strlen(trace.groups[g]);
        const char *own = strchr(trace.groups[g], '0' + rank);
        if (!own)
            continue;
        for (uint32_t i = 0; i < n; i++)
            world[i] = (uint32_t)(trace.groups[g][i] - '0');
        record_queue_open(&m->groups[g], m->head,
                          &(struct record_queue_info){.name = "g",
                                                      .scope = "g",
                                                      .members = n,
                                                      .rank = (uint32_t)(own - trace.groups[g]),
                                                      .messages = true,
                                                      .id = 77u + (uint32_t)g,
                                                      .world = world});
    }
}

static void close_trace(void)
{
    for (int r = 0; r < trace.nranks; r++) {
        record_writer_close(trace.memory[r].writer);
        free(trace.memory[r].head);
        free(trace.memory[r].images);
    }
    memset(&trace, 0, sizeof trace);
}

/* ---- steps ---- */

/* A thread that steps. */
struct caller {
    struct record_writer *w;
    struct record_thread *t;
    struct record_queue *groups;
    enum record_mode mode;
    struct record_channel *late[2]; /* SENT_BEFORE_CALL does not hold: counted as it leaves */
    int nlate;
};

static struct caller callers[THREADS];

static uint8_t kind_of(const struct op *op, bool probe)
{
    switch (op->kind) {
    case 's':
        return COLLRUN_SEND;
    case 'r':
        if (probe)
            return RECORD_PROBE;
        return op->peer < 0 ? COLLRUN_RECV_ANY : COLLRUN_RECV;
    case 'b':
        return COLLRUN_BARRIER;
    default:
        return COLLRUN_BROADCAST;
    }
}

static void begin(struct caller *c, int number, char how)
{
    struct op *op = &trace.ops[number];
    const struct record_at at = {0};
    const struct record_part part = {.group = c->groups[op->group].group,
                                     .peer = op->peer,
                                     .tag = tag_of(op->tag),
                                     .count = 1,
                                     .kind = kind_of(op, how == 'p'),
                                     .flags = op->sync ? RECORD_SYNC : 0};
    if (how == 'P')
        op->handle = record_post(c->w, c->t, &part, &at);
    else
        record_begin(c->w, c->t, &part);
    if (op->kind == 's' && !RECORD_RULE(SENT_BEFORE_CALL)) {
        c->late[c->nlate] = record_channel(c->w, part.group, (uint32_t)part.peer, part.tag);
        atomic_fetch_sub(&c->late[c->nlate++]->sent, 1);
    }
}

static void leave(struct caller *c)
{
    const struct record_at none = {0};
    if (record_phase(c->t) == RECORD_OUTSIDE) { /* a Test that has found its request complete */
        c->t = record_enter(c->w);
        record_inside(c->t, RECORD_NONE, &none);
    }
    while (c->nlate)
        atomic_fetch_add(&c->late[--c->nlate]->sent, 1);
    if (RECORD_RULE(TAKEN_AFTER_CALL))
        record_leave(c->t);
}

/* An operation is complete; a receive with a message, unless that is -1. Later lists of requests
 * still have its handle. */
static void complete(struct caller *c, int number, int message)
{
    const struct op *op = &trace.ops[number];
    if (message >= 0) {
        const struct op *sent = &trace.ops[message];
        record_take(c->w, c->t,
                    &(struct record_part){.group = c->groups[op->group].group,
                                          .peer = sent->rank,
                                          .tag = tag_of(sent->tag)});
    }
    record_close(c->w, op->handle);
}

static void wait_for(struct caller *c, const char *list, enum record_mode mode)
{
    char *end;
    for (c->mode = mode;; list = end + 1) {
        record_wait(c->w, c->t, trace.ops[strtol(list, &end, 10)].handle);
        if (*end != ',')
            return;
    }
}

/* One action of a step: the number of the thread, a letter, arguments. */
static void act(const char *s, struct os *os)
{
    const int thread = s[0] - '0';
    struct caller *c = &callers[thread];
    int number;
    char *end;
    record_queue_thread = (uint16_t)(thread - trace.first[trace.rank_of[thread]] + 1);
    switch (s[1]) {
    case 'E':
        c->t = record_enter(c->w);
        c->mode = RECORD_NONE;
        break;
    case 'x':
    case 'c':
    case 'p':
        c->mode = RECORD_ALL;
        begin(c, (int)strtol(s + 2, &end, 10), s[1]);
        if (s[1] == 'x')
            begin(c, (int)strtol(end + 1, NULL, 10), s[1]);
        break;
    case 'P':
        begin(c, (int)strtol(s + 2, NULL, 10), s[1]);
        break;
    case 'a':
    case 'n':
        wait_for(c, s + 2, s[1] == 'a' ? RECORD_ALL : RECORD_ANY);
        break;
    case 'k':
        record_give_up(c->w, trace.ops[strtol(s + 2, NULL, 10)].handle, RECORD_WITHDRAWN);
        break;
    case 'I':
        record_inside(c->t, c->mode, &(struct record_at){0});
        break;
    case 'L':
        leave(c);
        break;
    case 'T':
        number = (int)strtol(s + 2, &end, 10);
        complete(c, number, (int)strtol(end + 1, NULL, 10));
        break;
    case 'Z':
        if (!RECORD_RULE(TAKEN_AFTER_CALL))
            record_leave(c->t);
        record_outside(c->t);
        break;
    default:
        os[thread].state = s[2];
        os[thread].slices += s[3] != '=';
    }
}

static void keep_images(void)
{
    for (int r = 0; r < trace.nranks; r++) {
        const struct memory *m = &trace.memory[r];
        memcpy(m->images + (size_t)trace.nsteps * m->len, m->head, m->len);
    }
    trace.nsteps++;
}

static void run_steps(char *line)
{
    char *step, *next, *action, *rest;
    for (int t = 0; t < trace.nthreads; t++) {
        struct memory *m = &trace.memory[trace.rank_of[t]];
        callers[t] = (struct caller){.w = m->writer, .groups = m->groups};
        trace.os[0][t].state = 'r';
    }
    keep_images();
    for (step = strtok_r(line, " \n", &next); step; step = strtok_r(NULL, " \n", &next)) {
        assert_true(trace.nsteps < STEPS);
        struct os *os = trace.os[trace.nsteps];
        memcpy(os, trace.os[trace.nsteps - 1], sizeof trace.os[0]);
        for (action = strtok_r(step, "/", &rest); action; action = strtok_r(NULL, "/", &rest))
            if (*action != '-')
                act(action, os);
        keep_images();
    }
}

/* ---- looks ---- */

/* The memory that a reader of one rank finds changes between its readings. */
struct look {
    const struct memory *m;
    unsigned char *bytes;
    int rank, nthreads, surveys;
    int times[WORDS + TABLES + WORDS];
    struct record_task tasks[WORDS];
};

static const void *image(const struct look *l, int time)
{
    return l->m->images + (size_t)time * l->m->len;
}

static void show_words(struct look *l, const int *times)
{
    const size_t at = record_layout(image(l, 0)).threads;
    for (int i = 0; i < l->nthreads; i++) {
        const struct record_thread *from = (const void *)((const char *)image(l, times[i]) + at);
        struct record_thread *to = (void *)(l->bytes + at);
        to[i + 1].word = from[i + 1].word;
    }
}

/* The tables of later times, each with its own; the words stay. */
static void show_tables(struct look *l, const int *times)
{
    const struct record_layout at = record_layout(image(l, 0));
    const unsigned char *threads = image(l, times[0]), *sent = image(l, times[1]);
    const unsigned char *taken = image(l, times[2]), *requests = image(l, times[3]);
    const unsigned char *called = image(l, times[4]), *takes = image(l, times[6]);
    const struct record_channel *last =
        (const void *)((times[1] > times[2] ? sent : taken) + at.channels);
    struct record_head *head = (void *)l->bytes;
    struct record_thread *t = (void *)(l->bytes + at.threads);
    struct record_channel *c = (void *)(l->bytes + at.channels);
    for (int i = 1; i <= l->nthreads; i++) {
        const uint32_t word = t[i].word;
        t[i] = ((const struct record_thread *)(const void *)(threads + at.threads))[i];
        t[i].word = word;
        t[i].takes = ((const struct record_thread *)(const void *)(takes + at.threads))[i].takes;
    }
    memcpy(l->bytes + at.waits, threads + at.waits, at.requests - at.waits);
    memcpy(l->bytes + at.requests, requests + at.requests, at.channels - at.requests);
    memcpy(l->bytes + at.groups, called + at.groups, at.marks - at.groups);
    head->requests_used = ((const struct record_head *)(const void *)requests)->requests_used;
    head->channels_used =
        ((const struct record_head *)(const void *)(times[1] > times[2] ? sent : taken))
            ->channels_used;
    for (int i = 0; i < CHANNELS; i++) {
        c[i] = last[i];
        c[i].sent = ((const struct record_channel *)(const void *)(sent + at.channels))[i].sent;
        c[i].taken = ((const struct record_channel *)(const void *)(taken + at.channels))[i].taken;
    }
}

static bool survey(void *ctx, struct arena *arena, struct record_survey *out)
{
    struct look *l = ctx;
    const int *times = l->surveys == 0 ? l->times : l->times + l->nthreads + TABLES;
    const int last = trace.nsteps - 1, end[TABLES] = {last, last, last, last, last, last, last};
    uint32_t n = 0;
    (void)arena;
    for (int i = 0; i < l->nthreads; i++) {
        const int thread = trace.first[l->rank] + i;
        const struct os *os = &trace.os[times[i]][thread];
        if (os->state != 'e')
            l->tasks[n++] = (struct record_task){.tid = tid_of(thread),
                                                 .state = os->state == 's'   ? RECORD_TASK_SLEEPS
                                                          : os->state == 't' ? RECORD_TASK_TIMED
                                                                             : RECORD_TASK_RUNS,
                                                 .slices = os->slices};
    }
    *out = (struct record_survey){
        .tasks = arena_memdup(arena, l->tasks, sizeof l->tasks),
        .ntasks = n,
        .caught = trace.timers[l->rank] == '1' ? UINT64_C(1) << (SIGALRM - 1) : 0};
    /* Between the surveys, the tables are those of their times; behind the second one, of the end.
     */
    show_tables(l, l->surveys++ == 0 ? l->times + l->nthreads : end);
    show_words(l, times);
    return true;
}

static char *read_times(char *s, int *times, int n)
{
    for (int i = 0; i < n; i++) {
        times[i] = (int)strtol(s, &s, 10);
        assert_true(times[i] < trace.nsteps);
        s++;
    }
    return s;
}

static void take_cut(int rank, char **text, struct arena *arena, struct record_cut *cut)
{
    struct look l = {.m = &trace.memory[rank], .rank = rank};
    struct record_view v;
    for (int t = 0; t < trace.nthreads; t++)
        l.nthreads += trace.rank_of[t] == rank;
    *text = read_times(*text, l.times, 2 * l.nthreads + TABLES);
    l.bytes = arena_memdup(arena, image(&l, l.times[0]), l.m->len);
    show_words(&l, l.times);
    assert_int_equal(record_view_init(&v, l.bytes, l.m->len, NULL), COLLRUN_OK);
    assert_true(record_cut_take(&v, false, survey, &l, arena, cut));
}

/* Returns the number of threads that are proven. */
static uint32_t look(char *text)
{
    struct arena arena;
    struct record_cut cuts[RANKS];
    const struct record_cut *list[RANKS];
    struct proof p;
    arena_init(&arena);
    for (int r = 0; r < trace.nranks; r++) {
        take_cut(r, &text, &arena, &cuts[r]);
        list[r] = &cuts[r];
    }
    assert_true(proof_solve(list, (uint32_t)trace.nranks, &arena, &p));
    for (int t = 0; t < trace.nthreads; t++) {
        const bool wanted = strchr(text, '0' + t) != NULL;
        if (proof_has(&p, (uint32_t)trace.rank_of[t], tid_of(t)) != wanted)
            fail_msg("%s: thread %d is %s proven to wait for ever", trace.text, t,
                     wanted ? "not" : "wrongly");
    }
    const uint32_t n = p.nblocked;
    arena_fini(&arena);
    return n;
}

/* ---- the file ---- */

static void read_program(const char *line)
{
    char ranks[THREADS + 1];
    close_trace();
    assert_int_equal(sscanf(line, "P %d %8s %4s %d %4s", &trace.nranks, ranks, trace.timers,
                            &trace.folded, trace.funneled),
                     5);
    trace.nthreads = (int)strlen(ranks);
    for (int t = trace.nthreads - 1; t >= 0; t--) {
        trace.rank_of[t] = ranks[t] - '0';
        trace.first[trace.rank_of[t]] = t;
    }
}

static void read_groups(const char *line)
{
    assert_int_equal(sscanf(line, "G %4s %4s", trace.groups[0], trace.groups[1]), 2);
    for (int r = 0; r < trace.nranks; r++) {
        open_memory(r);
        open_groups(r);
    }
}

static void read_op(const char *line)
{
    struct op *op = &trace.ops[trace.nops++];
    assert_true(trace.nops < OPS);
    assert_int_equal(sscanf(line, "o %c %d %d %d %d %d %d", &op->kind, &op->group, &op->rank,
                            &op->peer, &op->tag, &op->sync, &op->number),
                     7);
}

static void each_look_has_its_verdict(void **state)
{
    static char line[LINE], text[64];
    const char *path = getenv("PROOF_TRACES");
    FILE *f = fopen(path ? path : "tests/unit/proof_traces.txt", "re");
    uint32_t looks = 0, proofs = 0;
    (void)state;
    assert_non_null(f);
    for (int n = 1; fgets(line, sizeof line, f); n++) {
        snprintf(text, sizeof text, "line %d", n);
        trace.text = text;
        if (line[0] == 'P')
            read_program(line);
        else if (line[0] == 'G')
            read_groups(line);
        else if (line[0] == 'o')
            read_op(line);
        else if (line[0] == 'E')
            run_steps(line + 2);
        else if (line[0] == 'L') {
            looks++;
            proofs += look(line + 2) > 0;
        }
    }
    fclose(f);
    close_trace();
    printf("# %u looks, %u of them with a proof\n", looks, proofs);
    assert_true(looks > 100 && proofs > looks / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_look_has_its_verdict)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlocks, held against an executor of small random programs, which knows from running them
 * whether they end. Ranks run lists of collectives and messages over two groups; whenever one is
 * blocked it may speak, and what is judged is any mixture of what they said at any time. A program
 * that ends must never be called a deadlock, however old the words; one that does not must be, from
 * the last words of all.
 */
#include "watch/deadlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, STEPS = 4, SCOPES = 2, TAGS = 2, PROGRAMS = 60000 };

static const char *const scopes[SCOPES] = {"a#0:1", "b#0:2"}, *const names[SCOPES] = {"a", "b"};
static uint32_t everybody[RANKS] = {0, 1, 2, 3};
static struct desc_host host = {.name = "here", .nranks = RANKS};
static struct desc_rank places[RANKS];
static const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = RANKS};

/* ---- the executor ---- */

struct step {
    uint8_t kind; /* BARRIER, SEND, RECV or RECV_ANY */
    uint8_t scope, peer, tag;
    bool eager; /* a send that is over at once */
    bool later; /* a message that is waited for at the end of the program only */
};

struct message { /* posted, or lying there */
    struct step step;
    uint64_t number;
    bool done;
};

struct actor {
    struct step program[STEPS];
    uint32_t at;      /* the step that it is in, or STEPS + 1: it has ended */
    bool posted_step; /* the step at hand has been called */
    struct message messages[STEPS];
    uint32_t nmessages;
    uint64_t collectives[SCOPES];
    uint64_t calls[SCOPES]; /* messages */
    uint64_t sent[SCOPES][RANKS][TAGS], received[SCOPES][RANKS][TAGS];
};

struct world {
    struct actor actors[RANKS];
    uint32_t lying[SCOPES][RANKS][RANKS][TAGS]; /* eager messages: from, to */
};

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static struct message *matching(struct world *w, uint32_t rank, const struct step *mine)
{
    for (uint32_t o = 0; o < RANKS; o++) {
        if (o == rank || (mine->kind != COLLRUN_RECV_ANY && o != mine->peer))
            continue;
        struct actor *a = &w->actors[o];
        for (uint32_t i = 0; i < a->nmessages; i++) {
            struct step *s = &a->messages[i].step;
            bool fits =
                mine->kind == COLLRUN_SEND
                    ? s->kind == COLLRUN_RECV_ANY || (s->kind == COLLRUN_RECV && s->peer == rank)
                    : s->kind == COLLRUN_SEND && s->peer == rank;
            if (!a->messages[i].done && fits && s->scope == mine->scope && s->tag == mine->tag)
                return &a->messages[i];
        }
    }
    return NULL;
}

static uint32_t owner(const struct world *w, const struct message *m)
{
    uint32_t o = 0;
    while (m < w->actors[o].messages || m >= w->actors[o].messages + STEPS)
        o++;
    return o;
}

static void deliver(struct world *w, struct message *send, struct message *recv)
{
    uint32_t from = owner(w, send), to = owner(w, recv);
    send->done = recv->done = true;
    w->actors[from].sent[send->step.scope][to][send->step.tag]++;
    w->actors[to].received[send->step.scope][from][send->step.tag]++;
}

/* A message is called for: it meets its other end, or lies there, or waits. */
static struct message *post(struct world *w, uint32_t rank, const struct step *s)
{
    struct actor *a = &w->actors[rank];
    struct message *m = &a->messages[a->nmessages++];
    *m = (struct message){.step = *s, .number = ++a->calls[s->scope]};
    for (uint32_t from = 0; s->kind != COLLRUN_SEND && from < RANKS; from++) {
        uint32_t *lies = &w->lying[s->scope][from][rank][s->tag];
        if (!*lies || (s->kind == COLLRUN_RECV && from != s->peer))
            continue;
        --*lies;
        a->received[s->scope][from][s->tag]++;
        m->done = true;
        return m;
    }
    struct message *other = matching(w, rank, s);
    if (other && s->kind == COLLRUN_SEND)
        deliver(w, m, other);
    else if (other)
        deliver(w, other, m);
    else if (s->kind == COLLRUN_SEND && s->eager) {
        w->lying[s->scope][rank][s->peer][s->tag]++;
        a->sent[s->scope][s->peer][s->tag]++;
        m->done = true;
    }
    return m;
}

static bool all_came(const struct world *w, uint32_t scope, uint64_t number)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        if (w->actors[i].collectives[scope] < number)
            return false;
    }
    return true;
}

static bool step_done(const struct world *w, const struct actor *a)
{
    if (a->at == STEPS) { /* waits for all that is left */
        for (uint32_t i = 0; i < a->nmessages; i++) {
            if (!a->messages[i].done)
                return false;
        }
        return true;
    }
    const struct step *s = &a->program[a->at];
    if (s->kind == COLLRUN_BARRIER)
        return all_came(w, s->scope, a->collectives[s->scope]);
    return s->later || a->messages[a->nmessages - 1].done;
}

/* One move of one rank. False: it is blocked, or has ended. */
static bool move(struct world *w, uint32_t rank)
{
    struct actor *a = &w->actors[rank];
    if (a->at > STEPS)
        return false;
    if (!a->posted_step && a->at < STEPS) {
        const struct step *s = &a->program[a->at];
        if (s->kind == COLLRUN_BARRIER)
            a->collectives[s->scope]++;
        else
            post(w, rank, s);
        a->posted_step = true;
        return true;
    }
    if (!step_done(w, a))
        return false;
    a->at++;
    a->posted_step = false;
    return true;
}

/* ---- what a rank says ---- */

static void say_message(struct waits *said, const struct message *m)
{
    said->items[said->nitems++] =
        (struct wait){.thread = 1,
                      .scope = scopes[m->step.scope],
                      .number = m->number,
                      .timeout_ns = UINT64_MAX,
                      .kind = m->step.kind,
                      .count = 9,
                      .peer = m->step.kind == COLLRUN_RECV_ANY ? WIRE_HOST : m->step.peer,
                      .tag = m->step.tag};
}

static void say_group(struct waits *said, const struct actor *a, uint32_t scope)
{
    struct arena *arena = &said->arena;
    struct wait_group *g = &said->groups[scope];
    *g = (struct wait_group){.scope = scopes[scope],
                             .name = names[scope],
                             .collectives = a->collectives[scope],
                             .members = everybody,
                             .nmembers = RANKS,
                             .posted = arena_calloc(arena, STEPS, sizeof *g->posted),
                             .traffic = arena_calloc(arena, RANKS * TAGS, sizeof *g->traffic),
                             .ntraffic = RANKS * TAGS};
    for (uint32_t i = 0; i < a->nmessages; i++) {
        const struct message *m = &a->messages[i];
        if (m->done || m->step.scope != scope)
            continue;
        g->posted[g->nposted++] = (struct wait_posted){
            m->step.kind, m->step.kind == COLLRUN_RECV_ANY ? WIRE_HOST : m->step.peer, m->step.tag};
    }
    for (uint32_t i = 0; i < RANKS * TAGS; i++)
        g->traffic[i] =
            (struct wait_traffic){i / TAGS, i % TAGS, a->sent[scope][i / TAGS][i % TAGS],
                                  a->received[scope][i / TAGS][i % TAGS]};
}

static void speak(const struct world *w, uint32_t rank, struct waits *said)
{
    const struct actor *a = &w->actors[rank];
    waits_fini(said);
    said->told = said->sure = true;
    said->items = arena_calloc(&said->arena, STEPS, sizeof *said->items);
    said->groups = arena_calloc(&said->arena, SCOPES, sizeof *said->groups);
    said->ngroups = SCOPES;
    for (uint32_t s = 0; s < SCOPES; s++)
        say_group(said, a, s);
    if (a->at < STEPS && a->program[a->at].kind == COLLRUN_BARRIER) {
        const struct step *s = &a->program[a->at];
        said->items[said->nitems++] = (struct wait){.thread = 1,
                                                    .scope = scopes[s->scope],
                                                    .number = a->collectives[s->scope],
                                                    .timeout_ns = UINT64_MAX,
                                                    .kind = COLLRUN_BARRIER,
                                                    .peer = WIRE_HOST};
    } else if (a->at < STEPS) {
        say_message(said, &a->messages[a->nmessages - 1]);
    } else {
        for (uint32_t i = 0; i < a->nmessages; i++) {
            if (!a->messages[i].done)
                say_message(said, &a->messages[i]);
        }
    }
}

/* ---- random programs ---- */

static void invent(struct world *w)
{
    memset(w, 0, sizeof *w);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            struct step *s = &w->actors[r].program[i];
            s->scope = (uint8_t)random_below(SCOPES);
            s->peer = (uint8_t)((r + 1 + random_below(RANKS - 1)) % RANKS);
            s->tag = (uint8_t)(random_below(4) == 0);
            s->kind = COLLRUN_BARRIER;
        }
    }
    /* Pairs that fit, at places of their own, so that many programs end. */
    for (uint32_t n = 4 + random_below(5); n; n--) {
        uint32_t from = random_below(RANKS), to = (from + 1 + random_below(RANKS - 1)) % RANKS;
        uint32_t i = random_below(STEPS), k = random_below(STEPS);
        struct step *s = &w->actors[from].program[i], *t = &w->actors[to].program[k];
        *s = (struct step){COLLRUN_SEND,         (uint8_t)random_below(SCOPES),
                           (uint8_t)to,          (uint8_t)random_below(TAGS),
                           random_below(3) == 0, random_below(3) == 0};
        *t = (struct step){random_below(6) ? COLLRUN_RECV : COLLRUN_RECV_ANY,
                           s->scope,
                           (uint8_t)from,
                           s->tag,
                           false,
                           random_below(3) == 0};
    }
    /* Half of the programs have no collectives left, which would seldom fit. */
    bool plain = random_below(2);
    for (uint32_t r = 0; plain && r < RANKS; r++) {
        struct actor *a = &w->actors[r];
        for (uint32_t i = 0; i < STEPS; i++) {
            if (a->program[i].kind == COLLRUN_BARRIER)
                a->program[i] =
                    (struct step){COLLRUN_SEND, 0, (uint8_t)((r + 1) % RANKS), 0, true, false};
        }
    }
}

/* Runs until nobody moves. Now and then somebody who is blocked speaks; the words of all are judged
 * on the way. True: it was called a deadlock on the way. */
static bool run(struct world *w, struct rank_state *ranks, struct diag *d)
{
    bool called = false;
    uint32_t still = 0;
    while (still < 40) {
        uint32_t r = random_below(RANKS);
        if (move(w, r)) {
            still = 0;
            continue;
        }
        still++;
        if (random_below(2))
            continue;
        speak(w, r, &ranks[r].waits);
        called = called || deadlock_find(&desc, ranks, false, d);
    }
    return called;
}

static bool has_ended(const struct world *w)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        if (w->actors[r].at <= STEPS)
            return false;
    }
    return true;
}

static void test_random(void **state)
{
    (void)state;
    uint32_t ended = 0, stuck = 0;
    struct diag d;
    diag_init(&d);
    for (uint32_t n = 0; n < PROGRAMS; n++) {
        struct world w;
        struct rank_state ranks[RANKS] = {0};
        seed = n;
        invent(&w);
        bool called = run(&w, ranks, &d), ends = has_ended(&w);
        for (uint32_t r = 0; r < RANKS; r++)
            speak(&w, r, &ranks[r].waits);
        bool found = !called && deadlock_find(&desc, ranks, false, &d);
        for (uint32_t r = 0; r < RANKS; r++)
            waits_fini(&ranks[r].waits);
        if (ends && (called || found))
            fail_msg("program %u ends, but: %s", n, d.text);
        if (!ends && !found && !called)
            fail_msg("program %u is a deadlock that was not found", n);
        ended += ends;
        stuck += !ends;
    }
    print_message("%u programs end, %u do not\n", ended, stuck);
    assert_true(ended > PROGRAMS / 20 && stuck > PROGRAMS / 20);
}

/* ---- single cases ---- */

struct scene {
    struct rank_state ranks[RANKS];
    struct wait waits[RANKS];
    struct wait_group groups[RANKS];
    struct wait_posted posted[RANKS];
};

/* Rank r waits for a message of kind[r] with rank peer[r]; no kind: it has ended. */
static void stage(struct scene *s, const uint8_t kind[RANKS], const uint32_t peer[RANKS])
{
    memset(s, 0, sizeof *s);
    for (uint32_t r = 0; r < RANKS; r++) {
        s->groups[r] = (struct wait_group){
            .scope = scopes[0], .name = "a", .members = everybody, .nmembers = RANKS};
        s->ranks[r].waits = (struct waits){.told = true,
                                           .sure = true,
                                           .items = &s->waits[r],
                                           .groups = &s->groups[r],
                                           .ngroups = 1};
        if (!kind[r])
            continue;
        s->waits[r] = (struct wait){.thread = 7,
                                    .scope = scopes[0],
                                    .number = 3,
                                    .timeout_ns = 600000000000,
                                    .kind = kind[r],
                                    .dtype = COLLRUN_FLOAT32,
                                    .count = 1024,
                                    .peer = peer[r]};
        s->posted[r] = (struct wait_posted){kind[r], peer[r], 0};
        s->groups[r].posted = &s->posted[r];
        s->groups[r].nposted = kind[r] >= COLLRUN_SEND;
        s->ranks[r].waits.nitems = 1;
    }
}

static const uint8_t cross[RANKS] = {COLLRUN_SEND, COLLRUN_SEND};
static const uint32_t each_other[RANKS] = {1, 0};

static void test_sentence(void **state)
{
    (void)state;
    struct scene s;
    struct diag d;
    diag_init(&d);
    stage(&s, cross, each_other);
    assert_true(deadlock_find(&desc, s.ranks, false, &d));
    assert_string_equal(d.text, "deadlock: rank 0 waits in send a#3 (1024 x float32) for rank 1; "
                                "rank 1 waits in send a#3 (1024 x float32) for rank 0");
    assert_non_null(strstr(d.hint, "collrun_sendrecv"));

    const uint32_t nobody[RANKS] = {WIRE_HOST, WIRE_HOST, WIRE_HOST, WIRE_HOST};
    stage(&s, (const uint8_t[RANKS]){COLLRUN_ALLREDUCE, 0, COLLRUN_ALLREDUCE, COLLRUN_ALLREDUCE},
          nobody);
    for (int r = 0; r < RANKS; r++)
        s.groups[r].collectives = r == 1 ? 2 : 3;
    assert_true(deadlock_find(&desc, s.ranks, false, &d));
    assert_string_equal(d.text, "deadlock: rank 0 waits in allreduce a#3 (1024 x float32) for rank "
                                "1, whose workloads have ended; 3 ranks can never go on");
}

static void test_nothing_certain(void **state)
{
    (void)state;
    struct scene s;
    struct diag d;
    diag_init(&d);
    struct { /* what is changed in rank 1's words, or about it */
        const char *why;
        bool explained;
    } cases[] = {{"it has not spoken", false},       {"it is not sure", true},
                 {"its time-out is short", true},    {"its message may be under way", false},
                 {"it has closed the group", false}, {"it has ended", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage(&s, cross, each_other);
        struct rank_state *r = &s.ranks[1];
        r->waits.told = i != 0;
        r->waits.sure = i != 1;
        s.waits[1].timeout_ns = i == 2 ? 1000000000 : s.waits[1].timeout_ns;
        s.waits[1].eager = i == 3;
        s.groups[1].scope = i == 4 ? scopes[1] : scopes[0];
        r->exited = i == 5;
        if (deadlock_find(&desc, s.ranks, false, &d))
            fail_msg("%s, yet: %s", cases[i].why, d.text);
        if (deadlock_find(&desc, s.ranks, true, &d) != cases[i].explained)
            fail_msg("%s: explained %d", cases[i].why, !cases[i].explained);
    }
}

/* ---- frames ---- */

static void put_frame(struct buf *b)
{
    buf_put_u8(b, 1);
    buf_put_u32(b, 1);
    buf_put_u32(b, 4711);
    buf_put_str(b, scopes[0]);
    buf_put_u64(b, 3);
    buf_put_u64(b, 600);
    for (int i = 0; i < 4; i++)
        buf_put_u8(b, (uint8_t)i);
    buf_put_u64(b, 1024);
    buf_put_u32(b, 2);
    buf_put_u32(b, 7);
    buf_put_u32(b, 1);
    buf_put_str(b, scopes[0]);
    buf_put_str(b, "a");
    buf_put_u64(b, 5);
    buf_put_u32(b, 2);
    buf_put_u32(b, 0);
    buf_put_u32(b, 3);
    buf_put_u32(b, 1);
    buf_put_u8(b, COLLRUN_RECV);
    buf_put_u32(b, 3);
    buf_put_u32(b, 9);
    buf_put_u8(b, 0);
    buf_put_u32(b, 1);
    buf_put_u32(b, 3);
    buf_put_u32(b, 9);
    buf_put_u64(b, 11);
    buf_put_u64(b, 12);
}

static void test_frame(void **state)
{
    (void)state;
    struct buf b;
    struct waits w = {0};
    buf_init(&b);
    put_frame(&b);
    struct wire_frame f = {.payload = b.data, .len = b.len};
    assert_true(waits_read(&w, &f));
    assert_int_equal(w.nitems, 1);
    assert_int_equal(w.items[0].thread, 4711);
    assert_int_equal(w.items[0].tag, 7);
    assert_int_equal(w.groups[0].collectives, 5);
    assert_int_equal(w.groups[0].members[1], 3);
    assert_int_equal(w.groups[0].posted[0].tag, 9);
    assert_int_equal(w.groups[0].traffic[0].received, 12);
    for (f.len = 0; f.len < b.len; f.len++) {
        assert_false(waits_read(&w, &f));
        assert_false(w.told);
    }
    for (uint32_t n = 0; n < 20000; n++) { /* garbage ends well */
        seed = n;
        f.len = random_below((uint32_t)b.len + 1);
        b.data[random_below((uint32_t)b.len)] = (unsigned char)random_below(256);
        struct rank_state ranks[RANKS] = {0};
        struct diag d;
        diag_init(&d);
        if (waits_read(&ranks[0].waits, &f))
            deadlock_find(&desc, ranks, true, &d);
        waits_fini(&ranks[0].waits);
    }
    waits_fini(&w);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_sentence),
        cmocka_unit_test(test_nothing_certain),
        cmocka_unit_test(test_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares deadlock_find with an executor of small random programs, which knows whether they end.
 * - Ranks execute lists of collectives and messages over two groups. A blocked rank sends wait
 *   reports at random times, and deadlock_find sees any mixture of old and new ones.
 * - A program that ends must never be called a deadlock, however old the reports.
 * - One that does not end must be found from the last reports of all ranks, unless a receive from
 * any rank hides it.
 */
#include "diagnose/deadlock.h"
#include "program_executor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROGRAMS = 60000 };

static const char *const scopes[SCOPES] = {"a#0:1", "b#0:2"}, *const names[SCOPES] = {"a", "b"};
static const char *const creations[SCOPES] = {"create:1", "create:2"};
static uint32_t all_ranks[RANKS] = {0, 1, 2, 3};
static struct desc_host host = {.name = "here", .nranks = RANKS};
static struct desc_rank places[RANKS];
static const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = RANKS};

/* ---- the wait report of a rank ---- */

/* It has not been waited for: the step that posts it lasts, or it is waited for at the end. */
static bool is_open(const struct executor_rank *a, const struct message *m)
{
    const bool last = m == &a->messages[a->nmessages - 1] && a->posted_step && a->at < STEPS &&
                      collrun_kind_is_message(a->program[a->at].kind);
    return last || (m->step.later && a->at <= STEPS);
}

static bool is_channel(const struct message *m, uint8_t kind, const struct step *s)
{
    return m->step.kind == kind && m->step.scope == s->scope && m->step.peer == s->peer &&
           m->step.tag == s->tag;
}

static void report_message(struct wait_report *report, const struct executor_rank *a,
                           const struct message *m)
{
    const bool any = m->step.kind == COLLRUN_RECV_ANY;
    struct wait_report_call *w = &report->items[report->nitems++];
    *w = (struct wait_report_call){.thread = 1,
                                   .scope = scopes[m->step.scope],
                                   .number = m->number,
                                   .timeout_ns = UINT64_MAX,
                                   .kind = m->step.kind,
                                   .eager = m->step.eager && m->done,
                                   .count = 9,
                                   .peer = any ? WIRE_HOST : m->step.peer,
                                   .tag = m->step.tag};
    for (const struct message *other = a->messages; other < m; other++)
        w->order += m->step.kind != COLLRUN_SEND || is_channel(other, COLLRUN_SEND, &m->step);
}

static void report_counts(struct wait_report_group *g, const struct executor_rank *a,
                          uint32_t scope)
{
    for (uint32_t i = 0; i < RANKS * TAGS; i++)
        g->counts[i] = (struct message_count){.peer = i / TAGS, .tag = i % TAGS};
    for (const struct message *m = a->messages; m < a->messages + a->nmessages; m++) {
        const bool sends = m->step.kind == COLLRUN_SEND;
        struct message_count *c = &g->counts[(sends ? m->step.peer : m->from) * TAGS + m->step.tag];
        if (m->step.scope != scope)
            continue;
        c->sent += sends;
        c->received += !sends && !is_open(a, m);
    }
}

static void report_group(struct wait_report *report, const struct executor_rank *a, uint32_t scope)
{
    struct arena *arena = &report->arena;
    struct wait_report_group *g = &report->groups[scope];
    *g = (struct wait_report_group){.scope = scopes[scope],
                                    .name = names[scope],
                                    .collectives = a->collectives[scope],
                                    .splits = a->splits[scope],
                                    .members = all_ranks,
                                    .nmembers = RANKS,
                                    .posted = arena_calloc(arena, STEPS, sizeof *g->posted),
                                    .counts = arena_calloc(arena, RANKS * TAGS, sizeof *g->counts),
                                    .ncounts = RANKS * TAGS};
    for (uint32_t i = 0; i < a->nmessages; i++) {
        const struct message *m = &a->messages[i];
        if (m->step.kind == COLLRUN_SEND || m->step.scope != scope || !is_open(a, m))
            continue;
        const uint32_t peer = m->step.kind == COLLRUN_RECV_ANY ? WIRE_HOST : m->step.peer;
        g->posted[g->nposted++] = (struct posted_message){
            .kind = m->step.kind, .peer = peer, .tag = m->step.tag, .thread = 1, .order = i};
    }
    report_counts(g, a, scope);
}

static void report_rank(struct world *w, uint32_t rank, struct rank_state *state)
{
    struct executor_rank *a = &w->ranks[rank];
    struct wait_report *report = &state->wait_report;
    wait_report_fini(report);
    report->received = report->certain = true;
    report->items = arena_calloc(&report->arena, STEPS, sizeof *report->items);
    report->groups = arena_calloc(&report->arena, SCOPES + 1, sizeof *report->groups);
    report->ngroups = SCOPES;
    report->created = arena_calloc(&report->arena, SCOPES, sizeof *report->created);
    for (uint32_t s = 0; s < SCOPES; s++) {
        report_group(report, a, s);
        if (a->created[s])
            report->created[report->ncreated++] = (struct wait_report_created){s, a->created[s]};
    }
    if (a->at < STEPS && joint_calls(a, &a->program[a->at])) {
        const struct step *s = &a->program[a->at];
        const bool creates = s->kind == KIND_CREATE;
        report->items[report->nitems++] =
            (struct wait_report_call){.thread = 1,
                                      .scope = creates ? creations[s->scope] : scopes[s->scope],
                                      .number = *joint_calls(a, s),
                                      .timeout_ns = UINT64_MAX,
                                      .kind = s->kind,
                                      .count = creates ? s->scope : 0,
                                      .peer = WIRE_HOST};
        if (creates)
            report->groups[report->ngroups++] =
                (struct wait_report_group){.scope = creations[s->scope],
                                           .name = names[s->scope],
                                           .members = all_ranks,
                                           .nmembers = RANKS};
    } else if (a->at < STEPS) {
        report_message(report, a, &a->messages[a->nmessages - 1]);
    } else {
        for (uint32_t i = 0; i < a->nmessages; i++) {
            if (is_open(a, &a->messages[i]))
                report_message(report, a, &a->messages[i]);
        }
    }
    state->phase = report->nitems ? PHASE_RUNNING : PHASE_DONE;
}

/* ---- random programs ---- */

static void make_program(struct world *w)
{
    static const uint8_t joint[] = {COLLRUN_BARRIER, KIND_SPLIT, KIND_CREATE};
    memset(w, 0, sizeof *w);
    const uint32_t kinds = random_below(2) ? 1 : 3;
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            struct step *s = &w->ranks[r].program[i];
            s->scope = (uint8_t)random_below(SCOPES);
            s->peer = (uint8_t)((r + 1 + random_below(RANKS - 1)) % RANKS);
            s->tag = (uint8_t)(random_below(4) == 0);
            s->kind = joint[random_below(kinds)];
        }
    }
    /* In a third of the programs the ranks make the same calls, but for one call of one rank. */
    const uint32_t other = random_below(2 * RANKS), at = random_below(STEPS);
    const bool alike = random_below(3) == 0;
    for (uint32_t i = 0; alike && i < RANKS * STEPS; i++) {
        if (i / STEPS != other || i % STEPS != at)
            w->ranks[i / STEPS].program[i % STEPS] = w->ranks[0].program[i % STEPS];
    }
    if (alike)
        return;
    /* Matching pairs at random steps, so that many programs end. */
    for (uint32_t n = 4 + random_below(5); n; n--) {
        uint32_t from = random_below(RANKS), to = (from + 1 + random_below(RANKS - 1)) % RANKS;
        uint32_t i = random_below(STEPS), k = random_below(STEPS);
        struct step *s = &w->ranks[from].program[i], *t = &w->ranks[to].program[k];
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
    /* Half of the programs have no collectives, which would seldom match. */
    bool plain = random_below(2);
    for (uint32_t r = 0; plain && r < RANKS; r++) {
        struct executor_rank *a = &w->ranks[r];
        for (uint32_t i = 0; i < STEPS; i++) {
            if (joint_calls(a, &a->program[i]))
                a->program[i] =
                    (struct step){COLLRUN_SEND, 0, (uint8_t)((r + 1) % RANKS), 0, true, false};
        }
    }
}

/* True: a deadlock; `d` explains it. */
static bool find(const struct rank_state *ranks, bool explain, struct diag *d)
{
    struct deadlock found;
    struct arena arena;
    arena_init(&arena);
    bool is = deadlock_find(&desc, ranks, explain, &arena, &found);
    if (is)
        *d = found.diag;
    arena_fini(&arena);
    return is;
}

/* Runs until no rank moves. Blocked ranks send reports at random, and deadlock_find sees them.
 * True: it found a deadlock meanwhile. */
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
        report_rank(w, r, &ranks[r]);
        called = called || find(ranks, false, d);
    }
    return called;
}

static bool has_ended(const struct world *w)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        if (w->ranks[r].at <= STEPS)
            return false;
    }
    return true;
}

/* A receive from any rank that was not waited for may have taken the message that is on the way. */
static bool may_hide(const struct world *w)
{
    bool found = false;
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < STEPS; i++)
            found = found || (w->ranks[r].program[i].kind == COLLRUN_RECV_ANY &&
                              w->ranks[r].program[i].later);
    return found;
}

static void random_programs_deadlock_as_the_executor_says(void **state)
{
    (void)state;
    uint32_t ended = 0, stuck = 0;
    struct diag d;
    diag_init(&d);
    for (uint32_t n = 0; n < PROGRAMS; n++) {
        struct world w;
        struct rank_state ranks[RANKS] = {0};
        seed = n;
        make_program(&w);
        bool called = run(&w, ranks, &d), ends = has_ended(&w);
        for (uint32_t r = 0; r < RANKS; r++)
            report_rank(&w, r, &ranks[r]);
        bool found = !called && find(ranks, false, &d);
        for (uint32_t r = 0; r < RANKS; r++)
            wait_report_fini(&ranks[r].wait_report);
        if (ends && (called || found))
            fail_msg("program %u ends, but: %s", n, d.text);
        if (!ends && !found && !called && !may_hide(&w))
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
    struct wait_report_call calls[RANKS];
    struct wait_report_group groups[RANKS];
    struct posted_message posted[RANKS];
};

/* Rank r waits for a message of kind[r] with rank peer[r]; no kind: it has ended. */
static void stage(struct scene *s, const uint8_t kind[RANKS], const uint32_t peer[RANKS])
{
    memset(s, 0, sizeof *s);
    for (uint32_t r = 0; r < RANKS; r++) {
        s->groups[r] = (struct wait_report_group){
            .scope = scopes[0], .name = "a", .members = all_ranks, .nmembers = RANKS};
        s->ranks[r].wait_report = (struct wait_report){.received = true,
                                                       .certain = true,
                                                       .items = &s->calls[r],
                                                       .groups = &s->groups[r],
                                                       .ngroups = 1};
        s->ranks[r].phase = kind[r] ? PHASE_RUNNING : PHASE_DONE;
        if (!kind[r])
            continue;
        s->calls[r] = (struct wait_report_call){.thread = 7,
                                                .scope = scopes[0],
                                                .number = 3,
                                                .timeout_ns = 600000000000,
                                                .kind = kind[r],
                                                .dtype = COLLRUN_FLOAT32,
                                                .count = 1024,
                                                .peer = peer[r]};
        s->posted[r] = (struct posted_message){.kind = kind[r], .peer = peer[r]};
        s->groups[r].posted = &s->posted[r];
        s->groups[r].nposted = kind[r] == COLLRUN_RECV || kind[r] == COLLRUN_RECV_ANY;
        s->ranks[r].wait_report.nitems = 1;
    }
}

static const uint8_t cross[RANKS] = {COLLRUN_SEND, COLLRUN_SEND};
static const uint32_t each_other[RANKS] = {1, 0};

static void a_deadlock_is_explained(void **state)
{
    (void)state;
    struct scene s;
    struct diag d;
    diag_init(&d);
    stage(&s, cross, each_other);
    assert_true(find(s.ranks, false, &d));
    assert_string_equal(d.text, "deadlock: rank 0 waits in send a#3 (1024 x float32) for rank 1; "
                                "rank 1 waits in send a#3 (1024 x float32) for rank 0");
    assert_non_null(strstr(d.hint, "collrun_sendrecv"));

    const uint32_t no_peers[RANKS] = {WIRE_HOST, WIRE_HOST, WIRE_HOST, WIRE_HOST};
    stage(&s, (const uint8_t[RANKS]){COLLRUN_ALLREDUCE, 0, COLLRUN_ALLREDUCE, COLLRUN_ALLREDUCE},
          no_peers);
    for (int r = 0; r < RANKS; r++)
        s.groups[r].collectives = r == 1 ? 2 : 3;
    assert_true(find(s.ranks, false, &d));
    assert_string_equal(d.text, "rank 0 waits in allreduce a#3 (1024 x float32, sum) for rank "
                                "1, whose workloads have ended; 3 ranks are blocked forever");
    s.ranks[1].part = PART_FINALIZING;
    assert_true(find(s.ranks, false, &d));
    assert_string_equal(d.text, "rank 0 waits in allreduce a#3 (1024 x float32, sum) for rank 1, "
                                "which has called collrun_finalize; 3 ranks are blocked forever");
}

static void nothing_is_found_while_a_rank_is_uncertain(void **state)
{
    (void)state;
    struct scene s;
    struct diag d;
    diag_init(&d);
    struct { /* the change to rank 1's report */
        const char *why;
        bool explained;
    } cases[] = {{"it has sent no report", false},
                 {"it is not sure", true},
                 {"its time-out is short", true},
                 {"its message may be under way", false},
                 {"it has closed the group", false},
                 {"it has ended", true},
                 {"it continues", false},
                 {"one of its threads may call", false},
                 {"it is in no call, and has not ended", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage(&s, cross, each_other);
        struct rank_state *r = &s.ranks[1];
        r->wait_report.received = i != 0;
        r->wait_report.certain = i != 1 && i != 6 && i != 7;
        r->wait_report.caller_free = i == 7;
        r->wait_report.nitems = i != 6 && i != 8;
        s.calls[1].timeout_ns = i == 2 ? 1000000000 : s.calls[1].timeout_ns;
        s.calls[1].eager = i == 3;
        s.groups[1].scope = i == 4 ? scopes[1] : scopes[0];
        r->end = i == 5 ? RANK_EXITED : RANK_LIVES;
        if (find(s.ranks, false, &d))
            fail_msg("%s, yet: %s", cases[i].why, d.text);
        if (find(s.ranks, true, &d) != cases[i].explained)
            fail_msg("%s: explained %d", cases[i].why, !cases[i].explained);
    }
}

/* ---- the order of collectives ---- */

enum { ORDERED = 6, ORDERED_SCOPES = 3 };

static const char *const ordered_scopes[ORDERED_SCOPES] = {"a#0:1", "b#0:2", "c#0:3"};
static const char *const ordered_names[ORDERED_SCOPES] = {"a", "b", "c"};

struct order_case {
    const char *what;
    /* Per rank: the groups that it is a member of, and of these the one that it waits in. "": it
     * does not exist. */
    const char *member[ORDERED];
    const char *minority, *order;
    bool status; /* the last rank is known by its STATUS alone */
};

static const struct order_case order_cases[] = {
    {"one against two", {"ab", "ba", "ab"}, "1", "ba", false},
    {"one against two, of which one is not known to wait", {"ab", "ba", "ab"}, "1", "ba", true},
    {"two against three", {"ab", "ba", "ab", "ba", "ab"}, "1,3", "ba", false},
    {"one against one", {"ab", "ba", false}, "", NULL, false},
    {"two against two", {"ab", "ba", "ab", "ba", false}, "", NULL, false},
    {"others are in one of the groups only", {"ab", "ba", "a", "a", "b"}, "", NULL, false},
    {"three groups, one rank against two and two",
     {"ab", "ab", "bc", "bc", "ca", false},
     "4",
     "ca",
     false},
    {"three groups, one rank in each pair", {"ab", "bc", "ca", false}, "", NULL, false},
};

/* Each rank waits in the first collective of its first group, and has called no other. */
static void order_stage(const struct order_case *c, struct rank_state *ranks, struct arena *a,
                        uint32_t *n)
{
    for (*n = 0; *n < ORDERED && c->member[*n]; ++*n) {
        const char *member = c->member[*n];
        struct wait_report *w = &ranks[*n].wait_report;
        struct wait_report_group *groups = arena_calloc(a, strlen(member), sizeof *groups);
        struct wait_report_call *call = arena_calloc(a, 1, sizeof *call);
        for (uint32_t i = 0; i < strlen(member); i++) {
            uint32_t *members = arena_calloc(a, ORDERED, sizeof *members), nmembers = 0;
            for (uint32_t r = 0; r < ORDERED && c->member[r]; r++) {
                if (strchr(c->member[r], member[i]))
                    members[nmembers++] = r;
            }
            groups[i] = (struct wait_report_group){.scope = ordered_scopes[member[i] - 'a'],
                                                   .name = ordered_names[member[i] - 'a'],
                                                   .collectives = i == 0,
                                                   .members = members,
                                                   .nmembers = nmembers};
        }
        *call = (struct wait_report_call){.thread = 1,
                                          .scope = groups[0].scope,
                                          .number = 1,
                                          .timeout_ns = UINT64_MAX,
                                          .kind = COLLRUN_BARRIER,
                                          .peer = WIRE_HOST};
        *w = (struct wait_report){.received = true,
                                  .certain = true,
                                  .items = call,
                                  .nitems = 1,
                                  .groups = groups,
                                  .ngroups = (uint32_t)strlen(member)};
    }
}

/* Its wait report has not arrived. */
static void order_stage_status(struct rank_state *r, struct arena *a)
{
    const struct wait_report *w = &r->wait_report;
    r->snapshot = (struct rank_snapshot){
        .known = true, .groups = arena_calloc(a, w->ngroups, sizeof *r->snapshot.groups)};
    for (uint32_t i = 0; i < w->ngroups; i++) {
        struct group_snapshot *g = &r->snapshot.groups[r->snapshot.n++];
        snprintf(g->scope, sizeof g->scope, "%s", w->groups[i].scope);
        g->started = w->groups[i].collectives;
    }
    r->wait_report = (struct wait_report){0};
}

static void the_minority_of_an_order_is_named(void **state)
{
    (void)state;
    static struct desc_rank of[ORDERED];
    for (size_t i = 0; i < sizeof order_cases / sizeof *order_cases; i++) {
        const struct order_case *c = &order_cases[i];
        struct rank_state ranks[ORDERED] = {0};
        struct desc ordered = {.hosts = &host, .nhosts = 1, .ranks = of};
        struct deadlock found;
        struct arena arena;
        char list[64] = "";
        arena_init(&arena);
        order_stage(c, ranks, &arena, &ordered.nranks);
        if (c->status)
            order_stage_status(&ranks[ordered.nranks - 1], &arena);
        assert_true(deadlock_find(&ordered, ranks, false, &arena, &found));
        const struct deadlock_order *o = &found.minority;
        for (uint32_t k = 0; k < o->ranks.n; k++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u", k ? "," : "",
                     o->ranks.items[k]);
        if (strcmp(list, c->minority) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", c->what, list, c->minority);
        if (c->order && (*o->first->name != c->order[0] || *o->later->name != c->order[1]))
            fail_msg("%s: %s before %s", c->what, o->first->name, o->later->name);
        arena_fini(&arena);
    }
}

/* ---- frames ---- */

static void put_frame(struct buf *b)
{
    buf_put_u8(b, 1);
    buf_put_u8(b, 0);
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
    buf_put_u64(b, 8);
    buf_put_u32(b, 1);
    buf_put_str(b, scopes[0]);
    buf_put_str(b, "a");
    buf_put_u64(b, 5);
    buf_put_u64(b, 6);
    buf_put_u32(b, 2);
    buf_put_u32(b, 0);
    buf_put_u32(b, 3);
    buf_put_u32(b, 1);
    buf_put_u8(b, COLLRUN_RECV);
    buf_put_u32(b, 3);
    buf_put_u32(b, 9);
    buf_put_u32(b, 4711);
    buf_put_u64(b, 10);
    buf_put_u8(b, 0);
    buf_put_u32(b, 1);
    buf_put_u32(b, 3);
    buf_put_u32(b, 9);
    buf_put_u64(b, 11);
    buf_put_u64(b, 12);
    buf_put_u8(b, 1);
    buf_put_u32(b, 1);
    buf_put_u64(b, 13);
    buf_put_u64(b, 14);
}

static void a_damaged_wait_report_is_refused(void **state)
{
    (void)state;
    struct buf b;
    struct wait_report w = {0};
    buf_init(&b);
    put_frame(&b);
    struct wire_frame f = {.payload = b.data, .len = b.len};
    assert_true(wait_report_read(&w, &f));
    assert_int_equal(w.nitems, 1);
    assert_int_equal(w.items[0].thread, 4711);
    assert_int_equal(w.items[0].tag, 7);
    assert_int_equal(w.items[0].order, 8);
    assert_int_equal(w.groups[0].collectives, 5);
    assert_int_equal(w.groups[0].splits, 6);
    assert_int_equal(w.groups[0].members[1], 3);
    assert_int_equal(w.groups[0].posted[0].tag, 9);
    assert_int_equal(w.groups[0].counts[0].received, 12);
    assert_true(w.created_lost);
    assert_int_equal(wait_report_times(&w, 13), 14);
    assert_int_equal(wait_report_times(&w, 14), 0);
    for (f.len = 0; f.len < b.len; f.len++) {
        assert_false(wait_report_read(&w, &f));
        assert_false(w.received);
    }
    for (uint32_t n = 0; n < 20000; n++) { /* garbage ends well */
        seed = n;
        f.len = random_below((uint32_t)b.len + 1);
        b.data[random_below((uint32_t)b.len)] = (unsigned char)random_below(256);
        struct rank_state ranks[RANKS] = {0};
        struct diag d;
        diag_init(&d);
        if (wait_report_read(&ranks[0].wait_report, &f))
            find(ranks, true, &d);
        wait_report_fini(&ranks[0].wait_report);
    }
    wait_report_fini(&w);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_deadlock_as_the_executor_says),
        cmocka_unit_test(a_deadlock_is_explained),
        cmocka_unit_test(nothing_is_found_while_a_rank_is_uncertain),
        cmocka_unit_test(the_minority_of_an_order_is_named),
        cmocka_unit_test(a_damaged_wait_report_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

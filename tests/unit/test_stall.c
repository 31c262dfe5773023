/* SPDX-License-Identifier: Apache-2.0
 *
 * Stalls: which waits are found in made-up STATUS frames, who is named, and how it is printed;
 * what the threads of a rank are doing.
 */
#include "diagnose/stall.h"
#include "report/stall_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
enum { RANKS = 4, SLOTS = 4 };

static uint32_t all_ranks[RANKS] = {0, 1, 2, 3}, high_ranks[2] = {3, 2};
static struct desc_group groups[] = {
    {.name = "world", .ranks = {all_ranks, RANKS}},
    {.name = "beat", .ranks = {all_ranks, RANKS}},
    {.name = "high", .ranks = {high_ranks, 2}},
};
static struct desc_host host = {.name = "node1", .nranks = RANKS};
static struct desc_rank places[RANKS];
static const struct desc desc = {
    .hosts = &host, .nhosts = 1, .ranks = places, .nranks = RANKS, .groups = groups, .ngroups = 3};
static struct rank_state ranks[RANKS];
static struct group_snapshot slots[RANKS][SLOTS];
static struct stall_watch watch;
static struct stall found;

static int begin(void **state)
{
    (void)state;
    memset(ranks, 0, sizeof ranks);
    memset(slots, 0, sizeof slots);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].phase = PHASE_RUNNING;
        ranks[r].pid = (pid_t)(100 + r);
        ranks[r].snapshot = (struct rank_snapshot){.known = true, .state = 'S', .groups = slots[r]};
    }
    stall_watch_init(&watch, &desc);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++) {
        stacks_fini(&ranks[r].stacks);
        rank_forming_fini(&ranks[r].forming);
    }
    stall_watch_fini(&watch);
    return 0;
}

/* The rank has a slot of this group; `age` seconds ago it called its last operation. */
static struct group_snapshot *slot(uint32_t rank, const char *group, uint64_t started,
                                   uint64_t done, double age)
{
    struct rank_snapshot *s = &ranks[rank].snapshot;
    struct group_snapshot *g = NULL;
    for (uint32_t i = 0; i < s->n; i++)
        g = strcmp(s->groups[i].name, group) == 0 && !s->groups[i].messages ? &s->groups[i] : g;
    g = g ? g : &s->groups[s->n++];
    *g = (struct group_snapshot){.started = started,
                                 .done = done,
                                 .age_ns = (uint64_t)(age * 1e9),
                                 .count = 8,
                                 .root_or_peer = -1,
                                 .kind = COLLRUN_ALLREDUCE,
                                 .dtype = COLLRUN_FLOAT32};
    snprintf(g->name, sizeof g->name, "%s", group);
    snprintf(g->scope, sizeof g->scope, "%s#0", group);
    return g;
}

static void message(uint32_t rank, const char *group, enum collrun_kind kind, int peer, double age)
{
    struct rank_snapshot *s = &ranks[rank].snapshot;
    s->groups[s->n] = (struct group_snapshot){.started = 1,
                                              .age_ns = (uint64_t)(age * 1e9),
                                              .count = 8,
                                              .root_or_peer = peer,
                                              .kind = (uint8_t)kind,
                                              .dtype = COLLRUN_FLOAT32,
                                              .messages = true};
    snprintf(s->groups[s->n].name, sizeof s->groups[s->n].name, "%s", group);
    snprintf(s->groups[s->n].scope, sizeof s->groups[s->n].scope, "%s#0", group);
    s->n++;
}

static void status(double at)
{
    for (uint32_t r = 0; r < RANKS; r++)
        stall_watch_update(&watch, r, &ranks[r].snapshot, (uint64_t)(at * 1e9));
}

static bool find(double at, double least)
{
    stall_fini(&found);
    return stall_find(&watch, ranks, (uint64_t)(at * 1e9), (uint64_t)(least * 1e9), &found);
}

static void list_is(const uint32_t *list, uint32_t n, const char *want)
{
    char text[64] = "";
    for (uint32_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? " " : "", list[i]);
    assert_string_equal(text, want);
}

static void printed(double at, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    const struct stall_report r = {
        .desc = &desc, .ranks = ranks, .stall = &found, .now_ns = (uint64_t)(at * 1e9)};
    stall_report_print(&r, f);
    fclose(f);
    assert_string_equal(text, want);
    free(text);
}

/* ---- who is waited for ---- */

static void a_member_that_has_not_called_is_the_culprit(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 2 ? 41 : 42, 41, 4);
    status(100);
    assert_false(find(100, 5));
    assert_true(find(106, 10));
    assert_int_equal(found.nwaits, 1);
    assert_int_equal(found.waits[0].op.started, 42);
    assert_int_equal(found.waits[0].since_ns, 96 * SECOND);
    list_is(found.waits[0].waiting, found.waits[0].nwaiting, "0 1 3");
    list_is(found.culprits, found.nculprits, "2");
    printed(106,
            "CAUSE  rank 2 (node1, pid 102) has not called allreduce world#42 (8 x float32, sum); "
            "it is outside any collective\n"
            "WAIT   ranks 0-1 and 3 -> allreduce world#42 -> rank 2, for 10.0 s\n");
    char line[128];
    stall_report_line(&found, line, sizeof line);
    assert_string_equal(line, "3/4 wait in world#42 for rank 2");
    stall_fini(&found);
}

static void waits_count_from_when_the_job_went_on(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 2 ? 41 : 42, 41, 64);
    status(100);
    assert_true(find(100, 5));
    watch.resumed_ns = 96 * SECOND; /* after a minute in which it was stopped */
    assert_false(find(100, 5));
    assert_true(find(101, 5));
    assert_int_equal(found.waits[0].since_ns, 96 * SECOND);
    list_is(found.culprits, found.nculprits, "2");
    stall_fini(&found);
}

static void a_rank_that_waits_elsewhere_is_not_blamed(void **state)
{
    (void)state;
    slot(0, "world", 1, 0, 9);
    slot(1, "world", 1, 0, 9);
    slot(2, "world", 0, 0, 0);
    slot(3, "world", 0, 0, 0);
    slot(2, "high", 7, 6, 8); /* for rank 3 */
    slot(3, "high", 6, 6, 8);
    status(10);
    assert_true(find(10, 5));
    list_is(found.culprits, found.nculprits, "3");
    assert_ptr_equal(stall_wait_for(&found, 3), &found.waits[0]);
    stall_fini(&found);
}

static void ranks_that_wait_for_each_other_are_suspects(void **state)
{
    (void)state;
    slot(2, "world", 1, 0, 9);
    slot(3, "world", 0, 0, 9);
    slot(3, "high", 1, 0, 9);
    slot(2, "high", 0, 0, 9);
    slot(0, "world", 1, 0, 9);
    slot(1, "world", 1, 0, 9);
    status(10);
    assert_true(find(10, 5));
    assert_int_equal(found.nculprits, 0);
    list_is(found.suspects, found.nsuspects, "2 3");
    stall_fini(&found);
}

static void without_a_missing_member_a_stopped_one_is_the_culprit(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", 5, 4, 9);
    status(10);
    assert_true(find(10, 5));
    assert_int_equal(found.nculprits + found.nsuspects, 0);
    stall_fini(&found);
    ranks[1].snapshot.state = 'T';
    assert_true(find(10, 5));
    list_is(found.culprits, found.nculprits, "1");
    printed(10,
            "CAUSE  rank 1 (node1, pid 101) has called all operations; it is in allreduce world#5 "
            "(8 x float32, sum), stopped by a signal\n"
            "WAIT   ranks 0-3 -> allreduce world#5, for 9.0 s\n");
    stall_fini(&found);
}

static void a_group_that_ticks_hides_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            slot(r, "world", r ? 3 : 2, 2, i);
            slot(r, "beat", (uint64_t)i + 1, (uint64_t)i, 0.2);
        }
        status(100 + i);
    }
    assert_true(find(110, 5));
    assert_int_equal(found.nwaits, 1);
    list_is(found.culprits, found.nculprits, "0");
    stall_fini(&found);
}

static void a_rank_that_has_ended_is_not_missing(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r ? 3 : 2, 2, 9);
    slot(1, "world", 2, 2, 9);
    ranks[1].end = RANK_EXITED;
    ranks[0].phase = PHASE_DONE;
    status(10);
    assert_true(find(10, 5));
    list_is(found.culprits, found.nculprits, "0");
    printed(10,
            "CAUSE  rank 0 (node1, pid 100) has not called allreduce world#3 (8 x float32, sum); "
            "its workloads have ended\n"
            "WAIT   ranks 2-3 -> allreduce world#3 -> rank 0, for 9.0 s\n");
    struct desc_workload beat = {.ranks = {all_ranks, 1}, .background = true};
    struct desc job = desc;
    job.workloads = &beat;
    job.nworkloads = 1;
    char text[200];
    stall_report_text(&(struct stall_report){&job, ranks, &found, 10 * SECOND}, text, sizeof text);
    assert_non_null(strstr(text, "; its foreground workloads have ended"));
    stall_fini(&found);
}

static void a_member_that_has_not_opened_the_group_is_missing(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 3; r++)
        slot(r, "world", 1, 0, 9);
    status(10);
    assert_true(find(10, 5));
    list_is(found.culprits, found.nculprits, "3");
    stall_fini(&found);
}

static void a_rank_that_is_late_to_start_is_the_culprit(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].phase = PHASE_ATTACHED;
    stall_watch_phases(&watch, ranks, 3 * SECOND);
    assert_false(find(20, 5)); /* all of them are in init */
    stall_fini(&found);
    ranks[0].phase = ranks[1].phase = PHASE_READY;
    stall_watch_phases(&watch, ranks, 20 * SECOND);
    stall_watch_phases(&watch, ranks, 24 * SECOND);
    assert_false(find(24, 5));
    stall_fini(&found);
    assert_true(find(25, 5));
    list_is(found.culprits, found.nculprits, "2 3");
    printed(25,
            "CAUSE  rank 2 (node1, pid 102) is forming its groups or in a workload's init; it is "
            "outside any collective\n"
            "CAUSE  rank 3 (node1, pid 103) is forming its groups or in a workload's init; it is "
            "outside any collective\n"
            "WAIT   ranks 0-1 -> start of the workloads -> ranks 2-3, for 5.0 s\n");
    stall_fini(&found);
    ranks[2].phase = ranks[3].phase = PHASE_READY;
    assert_false(find(25, 5));
    stall_fini(&found);
}

static void a_program_that_has_not_called_collrun_init(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].phase = PHASE_READY;
        ranks[r].command = true;
    }
    stall_watch_phases(&watch, ranks, 3 * SECOND);
    assert_false(find(20, 5)); /* none of them uses collrun */
    stall_fini(&found);
    ranks[0].part = ranks[3].part = PART_JOINING;
    stall_watch_phases(&watch, ranks, 20 * SECOND);
    assert_false(find(24, 5));
    stall_fini(&found);
    assert_true(find(25, 5));
    list_is(found.culprits, found.nculprits, "1 2");
    printed(25, "CAUSE  rank 1 (node1, pid 101) has not called collrun_init; it is outside any "
                "collective\n"
                "CAUSE  rank 2 (node1, pid 102) has not called collrun_init; it is outside any "
                "collective\n"
                "WAIT   ranks 0 and 3 -> collrun_init -> ranks 1-2, for 5.0 s\n");
    stall_fini(&found);
    ranks[0].part = ranks[3].part = PART_MEMBER; /* groups without ranks 1 and 2 */
    assert_false(find(25, 5));
    stall_fini(&found);
}

/* ---- requests ---- */

static void a_queue_of_requests_that_drains_is_no_stall(void **state)
{
    (void)state;
    for (int done = 0; done < 10; done++) {
        for (uint32_t r = 0; r < RANKS; r++)
            slot(r, "world", 100, (uint64_t)done, 2.0 * done);
        status(10 + 2.0 * done);
    }
    assert_false(find(29, 5));
    stall_fini(&found);
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 3 ? 9 : 100, 9, 30);
    status(34);
    assert_true(find(34, 5)); /* number 10 has been pending since the STATUS at 28 s */
    assert_int_equal(found.waits[0].op.started, 10);
    assert_int_equal(found.waits[0].since_ns, 28 * SECOND);
    assert_false(found.waits[0].described);
    list_is(found.culprits, found.nculprits, "3");
    printed(34,
            "CAUSE  rank 3 (node1, pid 103) has not called world#10; it is outside any collective\n"
            "WAIT   ranks 0-2 -> world#10 -> rank 3, for 6.0 s\n");
    stall_fini(&found);
}

/* ---- messages ---- */

static void a_receive_waits_for_its_sender(void **state)
{
    (void)state;
    message(0, "high", COLLRUN_RECV, 1, 9); /* group rank 1 of "high" is world rank 2 */
    status(10);
    assert_true(find(10, 5));
    list_is(found.culprits, found.nculprits, "2");
    printed(10,
            "CAUSE  rank 2 (node1, pid 102) has not sent the message of rank 0 in recv high#1 (8 x "
            "float32, from 1); it is outside any collective\n"
            "WAIT   rank 0 -> recv high#1 -> rank 2, for 9.0 s\n");
    char line[128];
    stall_report_line(&found, line, sizeof line);
    assert_string_equal(line, "rank 0 waits in high#1 for rank 2");
    stall_fini(&found);
}

/* The rank has called a message, and not ended it. `idle`: since the last call of its thread. A
 * barrier: nothing is pending. */
static void pending(uint32_t rank, enum collrun_kind kind, int peer, double age, double idle)
{
    static struct snapshot_op ops[RANKS][4];
    struct rank_snapshot *s = &ranks[rank].snapshot;
    if (!s->n) {
        message(rank, "made", kind, peer, age);
        s->groups[0].started = s->groups[0].done = 7; /* a later operation has ended */
        s->groups[0].members = 3;
        s->groups[0].rank = rank - 1; /* the group was made at run time, of ranks 1 to 3 */
        s->groups[0].pending = ops[rank];
    }
    struct group_snapshot *g = &s->groups[0];
    uint32_t n = g->npending;
    if (kind == COLLRUN_BARRIER)
        return;
    g->npending++;
    g->pending[n] = (struct snapshot_op){.number = 3 + n,
                                         .count = 8,
                                         .age_ns = (uint64_t)(age * 1e9),
                                         .idle_ns = (uint64_t)(idle * 1e9),
                                         .root_or_peer = peer,
                                         .tag = 5,
                                         .kind = (uint8_t)kind,
                                         .dtype = COLLRUN_FLOAT32};
}

static void pending_messages_name_their_peers(void **state)
{
    (void)state;
    pending(1, COLLRUN_RECV, 0, 9, 8); /* for later, as the thread has posted others since */
    pending(1, COLLRUN_RECV, 1, 8.05, 8);
    pending(1, COLLRUN_RECV, 2, 8, 8);
    pending(2, COLLRUN_BARRIER, 0, 0, 0);
    pending(3, COLLRUN_BARRIER, 0, 0, 0);
    status(10);
    assert_true(find(10, 5));
    assert_int_equal(found.nwaits, 1);
    list_is(found.waits[0].missing, found.waits[0].nmissing, "2 3");
    printed(10,
            "CAUSE  rank 2 (node1, pid 102) has not sent the message of rank 1 in recv made#4 (8 x "
            "float32, from 1, tag 5); it is outside any collective\n"
            "CAUSE  rank 3 (node1, pid 103) has not sent the message of rank 1 in recv made#4 (8 x "
            "float32, from 1, tag 5); it is outside any collective\n"
            "WAIT   rank 1 -> recv made#4 -> ranks 2-3, for 8.0 s\n");
    stall_fini(&found);
}

static void a_request_of_a_thread_that_goes_on_is_no_wait(void **state)
{
    (void)state;
    pending(1, COLLRUN_RECV, 1, 90, 0.1);
    pending(2, COLLRUN_BARRIER, 0, 0, 0);
    status(100);
    assert_false(find(100, 5));
    stall_fini(&found);
}

static void an_idle_server_hides_no_culprit(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 1 ? 4 : 5, 4, 9);
    message(1, "world", COLLRUN_RECV_ANY, -1, 90); /* in another thread of rank 1 */
    status(10);
    assert_true(find(100, 5));
    assert_int_equal(found.nwaits, 2);
    list_is(found.culprits, found.nculprits, "1");
    stall_fini(&found);
}

/* ---- result.json ---- */

static void the_object_has_the_members_of_a_verdict(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 1 ? 41 : 42, 41, 4);
    status(100);
    assert_true(find(106, 5));
    const struct stall_report r = {
        .desc = &desc, .ranks = ranks, .stall = &found, .now_ns = 106 * SECOND};
    json_t *o = stall_report_json(&r);
    char *text = json_dumps(o, JSON_COMPACT);
    assert_string_equal(
        text,
        "{\"attempt\":0,\"seconds\":10.0,\"class\":\"missing\",\"culprits\":[1],\"suspects\":[],"
        "\"group\":\"world\",\"kind\":\"allreduce\",\"number\":42,\"field\":null,"
        "\"calls\":[{\"ranks\":\"0,2-3\",\"call\":\"allreduce(8 x float32, sum)\"}],"
        "\"waits\":[{\"ranks\":\"0,2-3\",\"group\":\"world\",\"number\":42,\"for\":\"1\"}],"
        "\"text\":\"rank 1 (node1, pid 101) has not called allreduce world#42 (8 x float32, "
        "sum); it is outside any collective\"}");
    free(text);
    json_decref(o);
    stall_fini(&found);
}

/* ---- STACKS ---- */

static void put_thread(struct buf *b, uint32_t tid, const char *name, char state_letter,
                       uint32_t use, const char *call)
{
    buf_put_u32(b, tid);
    buf_put_str(b, name);
    buf_put_u8(b, (uint8_t)state_letter);
    buf_put_u32(b, use);
    buf_put_str(b, call);
}

static void stacks_of(struct buf *b, const char *stacks, const char *why)
{
    buf_init(b);
    buf_put_u32(b, 4);
    put_thread(b, 103, "rank", 'S', 0, "futex()");
    put_thread(b, 104, "collrun/service", 'S', 0, "poll()");
    put_thread(b, 105, "rank", 'S', 4, "read(3) of /data/x\n");
    put_thread(b, 106, "tick", 'S', 2, "nanosleep()");
    buf_put_blob(b, stacks, strlen(stacks));
    buf_put_str(b, why);
}

static void threads_are_shown_with_their_stacks(void **state)
{
    (void)state;
    struct buf b;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", r == 3 ? 41 : 42, 41, 4);
    status(100);
    stacks_of(&b,
              "thread 105 rank\n  read in libc.so.6+0x10\n  load\x1b (data.c:88)\n"
              "thread 104 x\n  poll in libc.so.6+0x8\nthread 999 y\n  z (z.c:1)\n",
              "");
    struct wire_frame f = {.payload = b.data, .len = b.len};
    assert_true(stacks_read(&ranks[3].stacks, &f));
    assert_true(find(106, 5));
    printed(106,
            "CAUSE  rank 3 (node1, pid 103) has not called allreduce world#42 (8 x float32, sum); "
            "it is in load? (data.c:88), asleep in read(3) of /data/x?\n"
            "       thread 105 (rank): asleep in read(3) of /data/x?, 0 % CPU\n"
            "         read in libc.so.6+0x10\n"
            "         load? (data.c:88)\n"
            "       thread 106 (tick): asleep in nanosleep(), 0 % CPU\n"
            "WAIT   ranks 0-2 -> allreduce world#42 -> rank 3, for 10.0 s\n");
    stall_fini(&found);
    buf_fini(&b);
}

/* FORMING of a rank, at `now` seconds. */
static bool forms(uint32_t rank, bool waits, uint8_t kind, const char *name, uint32_t now)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, waits);
    buf_put_u8(&b, kind);
    buf_put_str(&b, name);
    buf_put_u64(&b, SECOND);
    buf_put_u32(&b, 3);
    for (uint32_t r = 0; r < 3; r++)
        buf_put_u32(&b, r);
    struct wire_frame f = {.payload = b.data, .len = b.len};
    for (f.len = 0; f.len < b.len; f.len++)
        assert_false(rank_forming_read(&ranks[rank].forming, &f, now * SECOND));
    bool good = rank_forming_read(&ranks[rank].forming, &f, now * SECOND);
    buf_fini(&b);
    return good;
}

static void a_group_that_does_not_form(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++)
        slot(r, "world", 4, 4, 9);
    status(100);
    assert_true(forms(0, true, WIRE_FORMING_CREATE, "pair", 100));
    assert_true(forms(2, true, WIRE_FORMING_CREATE, "pair", 101));
    assert_true(forms(0, true, WIRE_FORMING_SPLIT, "world", 102));
    assert_false(find(103, 5));
    stall_fini(&found);
    assert_true(find(108, 5));
    printed(108, "CAUSE  rank 1 (node1, pid 101) has not called the creation of group pair; it is "
                 "outside any collective\n"
                 "WAIT   ranks 0 and 2 -> the creation of group pair -> rank 1, for 9.0 s\n"
                 "WAIT   rank 0 -> the split of group world -> ranks 1-2, for 7.0 s\n");
    stall_fini(&found);
    assert_true(forms(0, false, WIRE_FORMING_CREATE, "pair", 109));
    assert_true(forms(2, false, WIRE_FORMING_CREATE, "pair", 109));
    assert_true(forms(0, false, WIRE_FORMING_SPLIT, "world", 109));
    assert_false(find(120, 5));
    stall_fini(&found);
}

/* The rank that waits is finalizing, too, as is a rank that has left the call already; the ranks of
 * plugins count once they are idle. */
static void a_program_that_does_not_finalize(void **state)
{
    (void)state;
    char doing[200];
    uint64_t age;
    bool inside;
    for (uint32_t r = 0; r < RANKS; r++) {
        slot(r, "world", 4, 4, 9);
        ranks[r].command = true;
        ranks[r].part = PART_MEMBER;
    }
    ranks[0].part = PART_FINALIZING;
    status(100);
    assert_true(forms(0, true, WIRE_FORMING_FINALIZE, "world", 100));
    assert_true(find(108, 5));
    printed(108,
            "CAUSE  rank 1 (node1, pid 101) has not called collrun_finalize; it is outside any "
            "collective\n"
            "CAUSE  rank 2 (node1, pid 102) has not called collrun_finalize; it is outside any "
            "collective\n"
            "WAIT   rank 0 -> collrun_finalize -> ranks 1-2, for 9.0 s\n");
    stall_fini(&found);
    rank_describe(&ranks[0], doing, sizeof doing);
    assert_string_equal(doing, "in collrun_finalize");
    assert_true(rank_age(&ranks[0], 108 * SECOND, &age, &inside) && inside);
    assert_int_equal(age, 9 * SECOND);
    ranks[1].part = PART_FINALIZING;
    ranks[2].phase = PHASE_IDLE;
    assert_true(find(108, 5));
    assert_int_equal(found.nculprits, 0);
    stall_fini(&found);
}

static void a_damaged_frame_is_refused(void **state)
{
    (void)state;
    struct buf b;
    struct rank_stacks s = {0};
    stacks_of(&b,
              "thread 105 rank\n  a (b.c:1)\nsite 7f01 train (late.c:14)\nsite 7f02 f in "
              "libx.so+0x3\nsite 7f03\n",
              "not permitted");
    for (size_t len = 0; len < b.len; len++) {
        struct wire_frame f = {.payload = b.data, .len = len};
        assert_false(stacks_read(&s, &f));
    }
    struct wire_frame whole = {.payload = b.data, .len = b.len};
    assert_true(stacks_read(&s, &whole));
    assert_string_equal(stacks_site(&s, 0x7f01), "train (late.c:14)");
    assert_null(stacks_site(&s, 0x7f02));
    assert_null(stacks_site(&s, 0x7f03));
    assert_int_equal(stacks_main(&s, false)->nframes, 1);
    assert_string_equal(s.why, "not permitted");
    stacks_fini(&s);
    buf_fini(&b);
}

#define STALL_TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STALL_TEST(a_member_that_has_not_called_is_the_culprit),
        STALL_TEST(waits_count_from_when_the_job_went_on),
        STALL_TEST(a_rank_that_waits_elsewhere_is_not_blamed),
        STALL_TEST(ranks_that_wait_for_each_other_are_suspects),
        STALL_TEST(without_a_missing_member_a_stopped_one_is_the_culprit),
        STALL_TEST(a_group_that_ticks_hides_nothing),
        STALL_TEST(a_rank_that_has_ended_is_not_missing),
        STALL_TEST(a_member_that_has_not_opened_the_group_is_missing),
        STALL_TEST(a_rank_that_is_late_to_start_is_the_culprit),
        STALL_TEST(a_program_that_has_not_called_collrun_init),
        STALL_TEST(a_queue_of_requests_that_drains_is_no_stall),
        STALL_TEST(a_receive_waits_for_its_sender),
        STALL_TEST(pending_messages_name_their_peers),
        STALL_TEST(a_request_of_a_thread_that_goes_on_is_no_wait),
        STALL_TEST(an_idle_server_hides_no_culprit),
        STALL_TEST(the_object_has_the_members_of_a_verdict),
        STALL_TEST(threads_are_shown_with_their_stacks),
        STALL_TEST(a_group_that_does_not_form),
        STALL_TEST(a_program_that_does_not_finalize),
        STALL_TEST(a_damaged_frame_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts from records alone, as of a trace: what each rank waits for is derived from its record.
 * Scripts say which operations a rank has completed and which one it is in; the expected verdict is
 * written beside them.
 */
#include "base/buf.h"
#include "base/exit_codes.h"
#include "base/record_queue.h"
#include "diagnose/from_records.h"
#include "diagnose/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3 };

static struct desc_host host = {.name = "?"};

/* "a": a barrier in group a; "b": in group b; "s1", "r1", "*": a message to or from rank 1, from
 * any. A step in capitals is the one that the rank is in. "." at the end: its workloads have ended.
 */
struct script {
    const char *steps[RANKS];
    enum cause_class class;
    const char *culprits, *suspects;
};

static const struct script scripts[] = {
    {{"a s1 a.", "a r0 a.", "a a."}, CAUSE_TIMEOUT, "", ""},
    {{"a A", "a A", "a"}, CAUSE_MISSING, "2", ""},
    {{"a A", "a A", "a."}, CAUSE_EXIT, "2", ""},
    {{"a a.", "a a A", "a a."}, CAUSE_MISMATCH, "1", ""},
    {{"A", "B", "A B"}, CAUSE_DEADLOCK, "", "0,1"},
    {{"a S1", "a S0", "a."}, CAUSE_DEADLOCK, "", "0,1"},
    {{"a s1 R1", "a R2", "a R0"}, CAUSE_DEADLOCK, "", "0,1,2"},
    {{"a R1", "a.", "a."}, CAUSE_EXIT, "1", ""},
    {{"a s1", "a r0 A", "a A"}, CAUSE_MISSING, "0", ""},
    {{"a R2", "a s2 A", "B"}, CAUSE_DEADLOCK, "", "0,2"},
};

static void record(struct record_queue *q, enum collrun_kind kind, int peer, bool inside)
{
    const struct record_call c = {.kind = (uint8_t)kind, .root_or_peer = peer, .count = 1};
    uint64_t number = q->group->started + 1, ticks = record_ticks(q->head);
    uint64_t index = record_queue_reserve(q, 1);
    record_queue_write(q, index, &c, number, RECORD_STARTED, ticks);
    record_queue_enter(q, &c, number, 0, ticks);
    if (inside)
        return;
    record_queue_leave(q, number);
    record_queue_end(q, index, RECORD_DONE, ticks);
}

static void open_queue(struct record_queue *q, struct record_head *head, uint32_t rank,
                       const char *name, bool messages)
{
    char scope[16];
    snprintf(scope, sizeof scope, "%s#0:1", name);
    struct record_queue_info info = {
        .name = name, .scope = scope, .members = RANKS, .rank = rank, .messages = messages};
    record_queue_open(q, head, &info);
}

static void play(const char *steps, uint32_t rank, struct rank_state *out)
{
    struct record_queue a, b, messages;
    struct buf bytes;
    int fd = record_make(rank, 64);
    struct record_head *head = record_map(fd);
    assert_non_null(head);
    close(fd);
    open_queue(&a, head, rank, "a", false);
    open_queue(&b, head, rank, "b", false);
    open_queue(&messages, head, rank, "a", true);
    *out = (struct rank_state){.phase = strchr(steps, '.') ? PHASE_DONE : PHASE_RUNNING,
                               .workload = UINT32_MAX};
    for (const char *s = steps; *s; s++) {
        bool inside = *s >= 'A' && *s <= 'Z';
        int peer = s[1] >= '0' && s[1] <= '9' ? s[1] - '0' : -1;
        switch (inside ? *s - 'A' + 'a' : *s) {
        case 'a':
            record(&a, COLLRUN_BARRIER, -1, inside);
            break;
        case 'b':
            record(&b, COLLRUN_BARRIER, -1, inside);
            break;
        case 's':
            record(&messages, COLLRUN_SEND, peer, inside);
            break;
        case 'r':
            record(&messages, COLLRUN_RECV, peer, inside);
            break;
        default:
            break;
        }
    }
    buf_init(&bytes);
    assert_true(
        record_view_save(head, record_len(head), &(struct record_view_part){64, false}, &bytes));
    assert_true(rank_record_set(out, bytes.data, bytes.len));
    buf_fini(&bytes);
    record_unmap(head, record_len(head));
}

static void list_text(const struct desc_ranks *list, char out[64])
{
    out[0] = '\0';
    for (uint32_t i = 0; i < list->n; i++)
        snprintf(out + strlen(out), 64 - strlen(out), "%s%u", i ? "," : "", list->items[i]);
}

/* The runner has a record and a WAIT_REPORT of a rank, but no STATUS. The report is the better one.
 */
static void a_wait_report_is_kept(void **state)
{
    (void)state;
    struct arena arena;
    struct desc_rank place = {0};
    struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = &place, .nranks = 1};
    struct rank_state rank;
    struct job_failure job = {.class = CAUSE_NONE};
    struct buf b;
    arena_init(&arena);
    buf_init(&b);
    play("a A", 0, &rank);
    buf_put_u8(&b, 1);  /* certain */
    buf_put_u8(&b, 1);  /* a thread is free */
    buf_put_u32(&b, 0); /* calls */
    buf_put_u32(&b, 1); /* groups */
    buf_put_str(&b, "z#0:1");
    buf_put_str(&b, "z");
    buf_put_u64(&b, 0); /* collectives */
    buf_put_u64(&b, 0); /* splits */
    buf_put_u32(&b, 0); /* members */
    buf_put_u32(&b, 0); /* posted messages */
    buf_put_u8(&b, 0);
    buf_put_u32(&b, 0); /* counts of messages */
    buf_put_u8(&b, 0);
    buf_put_u32(&b, 0); /* creations */
    assert_true(rank_read_waits(&rank, b.data, b.len));
    from_records_complete(&desc, &rank, &job, &arena);
    assert_true(rank.snapshot.known);
    assert_true(rank.wait_report.caller_free);
    assert_int_equal(rank.wait_report.ngroups, 1);
    assert_string_equal(rank.wait_report.groups[0].name, "z");
    buf_fini(&b);
    rank_state_fini(&rank);
    arena_fini(&arena);
}

static void records_alone_give_the_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const struct script *s = &scripts[i];
        struct arena arena;
        struct desc_rank places[RANKS] = {{0}};
        struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = RANKS};
        struct rank_state ranks[RANKS];
        struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
        struct verdict v;
        struct diag d;
        char culprits[64], suspects[64];
        arena_init(&arena);
        diag_init(&d);
        for (uint32_t r = 0; r < RANKS; r++)
            play(s->steps[r], r, &ranks[r]);
        from_records_complete(&desc, ranks, &e.job, &arena);
        verdict_find(&e, &arena, &v);
        list_text(&v.culprits, culprits);
        list_text(&v.suspects, suspects);
        print_message("# %s | %s | %s: %s [%s] [%s] %s\n", s->steps[0], s->steps[1], s->steps[2],
                      verdict_class(&v), culprits, suspects, v.diag.text);
        assert_int_equal(v.class, s->class);
        assert_string_equal(culprits, s->culprits);
        assert_string_equal(suspects, s->suspects);
        for (uint32_t r = 0; r < RANKS; r++)
            rank_state_fini(&ranks[r]);
        arena_fini(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_alone_give_the_verdict),
        cmocka_unit_test(a_wait_report_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

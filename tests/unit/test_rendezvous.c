/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous store, fed with frames as ranks would send them; what it answers is read back from
 * its output.
 */
#include "base/parse.h"
#include "rdv_frames.h"
#include "rendezvous/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_SENT = 64 };

struct sent {
    uint16_t type;
    uint32_t ranks[8], n;
    int status;
    uint32_t nkvs;
    char first_key[32], text[1024];
};

struct world {
    struct rdv *rdv;
    struct desc desc;
    struct sent sent[MAX_SENT];
    int nsent;
    struct arena arena;
};

static void record(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                   const struct buf *payload)
{
    struct world *w = ctx;
    struct sent *s = &w->sent[w->nsent++];
    struct reader r;
    *s = (struct sent){.type = type, .n = n};
    memcpy(s->ranks, ranks, n * sizeof *ranks);
    reader_init(&r, payload->data, payload->len);
    read_str(&r, &w->arena);
    if (type == WIRE_FENCED)
        read_u32(&r);
    else
        snprintf(s->first_key, sizeof s->first_key, "%s", read_str(&r, &w->arena));
    s->status = (int)read_u32(&r);
    if (s->status != COLLRUN_OK) {
        struct diag d;
        wire_read_diag(&r, NULL, &d);
        snprintf(s->text, sizeof s->text, "%s", d.text);
    } else if (type == WIRE_FENCED) {
        s->nkvs = read_u32(&r);
        if (s->nkvs)
            snprintf(s->first_key, sizeof s->first_key, "%s", read_str(&r, &w->arena));
    } else {
        size_t len;
        const char *value = read_blob(&r, &len);
        snprintf(s->text, sizeof s->text, "%.*s", (int)len, value);
    }
    assert_false(r.bad);
}

static int setup(void **state)
{
    static struct world w;
    w = (struct world){.desc.nranks = 8};
    arena_init(&w.arena);
    w.rdv = rdv_new(&w.desc, (struct rdv_output){.send = record, .ctx = &w});
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    rdv_free(w->rdv);
    arena_fini(&w->arena);
    return 0;
}

static int feed(struct world *w, uint32_t rank, uint16_t type, struct buf payload)
{
    struct diag d;
    struct wire_frame f = {.type = type, .rank = rank, .payload = payload.data, .len = payload.len};
    int rc = rdv_on_frame(w->rdv, &f, 1000, &d);
    buf_fini(&payload);
    return rc;
}

static int join(struct world *w, uint32_t rank, const char *scope, uint32_t n,
                const uint32_t *ranks, const char *identity)
{
    return feed(w, rank, WIRE_JOIN, rdv_frames_join(scope, 500, n, ranks, identity));
}

static int put(struct world *w, uint32_t rank, const char *scope, const char *key,
               const char *value)
{
    return feed(w, rank, WIRE_PUT, rdv_frames_put(scope, key, value));
}

static int get(struct world *w, uint32_t rank, const char *scope, const char *key)
{
    return feed(w, rank, WIRE_GET, rdv_frames_get(scope, key));
}

static int fence(struct world *w, uint32_t rank, const char *scope, uint32_t number)
{
    return feed(w, rank, WIRE_FENCE, rdv_frames_fence(scope, number));
}

static int leave(struct world *w, uint32_t rank, const char *scope)
{
    return feed(w, rank, WIRE_LEAVE, rdv_frames_leave(scope));
}

static const uint32_t pair[] = {2, 5};

static void both_join(struct world *w)
{
    assert_int_equal(join(w, 2, "s", 2, pair, "shm 1"), 0);
    assert_int_equal(join(w, 5, "s", 2, pair, "shm 1"), 0);
}

static void a_fence_gives_all_ranks_all_keys(void **state)
{
    struct world *w = *state;
    both_join(w);
    put(w, 2, "s", "a", "1");
    assert_int_equal(fence(w, 2, "s", 0), 0);
    assert_int_equal(w->nsent, 0);
    put(w, 5, "s", "b", "2");
    fence(w, 5, "s", 0);
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].n, 2);
    assert_int_equal(w->sent[0].nkvs, 2);
    /* The next fence carries only what is new. */
    put(w, 5, "s", "c", "3");
    fence(w, 5, "s", 1);
    fence(w, 2, "s", 1);
    assert_int_equal(w->sent[1].nkvs, 1);
    assert_string_equal(w->sent[1].first_key, "c");
}

static void a_get_waits_for_its_put(void **state)
{
    struct world *w = *state;
    both_join(w);
    get(w, 2, "s", "k");
    get(w, 5, "s", "other");
    assert_int_equal(w->nsent, 0);
    put(w, 5, "s", "k", "value");
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].ranks[0], 2);
    assert_string_equal(w->sent[0].text, "value");
    get(w, 5, "s", "k");
    assert_int_equal(w->nsent, 2);
}

static void a_late_group_names_who_is_missing(void **state)
{
    struct world *w = *state;
    static const uint32_t five[] = {0, 1, 2, 3, 7};
    join(w, 1, "s", 5, five, "x");
    join(w, 3, "s", 5, five, "x");
    fence(w, 1, "s", 0);
    fence(w, 3, "s", 0);
    assert_int_equal(rdv_next_deadline(w->rdv), 1500);
    rdv_expire(w->rdv, 1499);
    assert_int_equal(w->nsent, 0);
    rdv_expire(w->rdv, 1500);
    assert_int_equal(w->nsent, 2);
    assert_int_equal(w->sent[0].status, COLLRUN_ERR_TIMEOUT);
    assert_non_null(strstr(w->sent[0].text, "ranks 0, 2 and 7 did not join within"));
    /* A rank that joins now gets the same error. */
    join(w, 0, "s", 5, five, "x");
    fence(w, 0, "s", 0);
    assert_int_equal(w->sent[2].status, COLLRUN_ERR_TIMEOUT);
    assert_true(rdv_next_deadline(w->rdv) == UINT64_MAX);
}

static void disagreement_fails_all_ranks(void **state)
{
    struct world *w = *state;
    join(w, 2, "s", 2, pair, "shm 1");
    fence(w, 2, "s", 0);
    join(w, 5, "s", 2, pair, "shm 2");
    fence(w, 5, "s", 0);
    assert_int_equal(w->nsent, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w->sent[i].status, COLLRUN_ERR_MISMATCH);
        assert_non_null(strstr(w->sent[i].text, "rank 2 has shm 1, rank 5 has shm 2"));
    }
}

static void a_key_put_twice_is_an_error(void **state)
{
    struct world *w = *state;
    both_join(w);
    put(w, 2, "s", "k", "1");
    put(w, 5, "s", "k", "2");
    fence(w, 2, "s", 0);
    assert_int_equal(w->sent[0].status, COLLRUN_ERR_BACKEND);
    assert_non_null(strstr(w->sent[0].text, "\"k\" twice"));
}

static void a_dead_member_ends_the_wait(void **state)
{
    struct world *w = *state;
    both_join(w);
    fence(w, 2, "s", 0);
    rdv_on_rank_exit(w->rdv, 5, "was killed");
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].status, COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(w->sent[0].text, "group \"g\": rank 5 was killed");
    leave(w, 2, "s");
    assert_int_equal(rdv_open_scopes(w->rdv), 0);
}

static const uint32_t three[] = {1, 2, 5};

static void a_group_with_an_exited_member_fails_at_once(void **state)
{
    struct world *w = *state;
    rdv_on_rank_exit(w->rdv, 5, "was killed");
    join(w, 2, "s", 2, pair, "shm 1");
    fence(w, 2, "s", 0);
    assert_int_equal(w->sent[0].status, COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(w->sent[0].text, "group \"g\": rank 5 has exited");
    leave(w, 2, "s");
    assert_int_equal(rdv_open_scopes(w->rdv), 0);
}

static int agree(struct world *w, uint32_t rank, const char *scope, int status)
{
    return feed(w, rank, WIRE_AGREE, rdv_frames_agree(scope, 500, 3, three, status));
}

/* 5 has exited before, 1 exits after it has agreed. */
static void an_agreement_is_of_the_members_that_are_left(void **state)
{
    struct world *w = *state;
    rdv_on_rank_exit(w->rdv, 5, "was killed");
    agree(w, 1, "s", COLLRUN_OK);
    rdv_on_rank_exit(w->rdv, 1, "was killed");
    assert_int_equal(w->nsent, 0);
    agree(w, 2, "s", COLLRUN_ERR_TIMEOUT);
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].status, COLLRUN_OK);
    assert_int_equal(w->sent[0].n, 1);
    assert_int_equal(w->sent[0].ranks[0], 2);
    assert_int_equal(w->sent[0].nkvs, 1);
    assert_string_equal(w->sent[0].first_key, "2");
    assert_int_equal(rdv_open_scopes(w->rdv), 0);
}

/* The exit of the last missing member completes it; all others get one answer. */
static void an_agreement_waits_for_no_exited_member(void **state)
{
    struct world *w = *state;
    agree(w, 2, "s", COLLRUN_OK);
    agree(w, 5, "s", COLLRUN_OK);
    assert_int_equal(w->nsent, 0);
    rdv_on_rank_exit(w->rdv, 1, "was killed");
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].n, 2);
    assert_int_equal(w->sent[0].nkvs, 2);
    assert_int_equal(rdv_open_scopes(w->rdv), 0);
}

static void an_agreement_names_the_members_that_are_late(void **state)
{
    struct world *w = *state;
    agree(w, 2, "s", COLLRUN_OK);
    rdv_on_rank_exit(w->rdv, 5, "was killed");
    rdv_expire(w->rdv, 2000);
    assert_int_equal(w->nsent, 1);
    assert_int_equal(w->sent[0].status, COLLRUN_ERR_TIMEOUT);
    assert_non_null(strstr(w->sent[0].text, "rank 1 did not join"));
    agree(w, 1, "s", COLLRUN_OK);
    assert_int_equal(w->nsent, 2);
    assert_int_equal(w->sent[1].status, COLLRUN_ERR_TIMEOUT);
    assert_int_equal(rdv_open_scopes(w->rdv), 0);
}

static void scopes_are_forgotten_and_names_reused(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 1000; i++) {
        w->nsent = 0;
        both_join(w);
        put(w, 2, "s", "k", "v");
        fence(w, 2, "s", 0);
        fence(w, 5, "s", 0);
        leave(w, 2, "s");
        assert_int_equal(rdv_open_scopes(w->rdv), 1);
        leave(w, 5, "s");
        assert_int_equal(rdv_open_scopes(w->rdv), 0);
    }
}

static void ranks_that_are_not_members_are_refused(void **state)
{
    struct world *w = *state;
    both_join(w);
    assert_true(put(w, 3, "s", "k", "v") < 0);
    assert_true(put(w, 2, "nowhere", "k", "v") < 0);
    assert_true(join(w, 4, "s", 2, pair, "shm 1") < 0);
    assert_true(join(w, 2, "s", 2, pair, "shm 1") < 0);
    assert_true(fence(w, 2, "s", 1) < 0);
}

static void ranks_that_the_job_has_not_are_refused(void **state)
{
    static const uint32_t past[] = {2, 8}, far[] = {2, 0xfffffff0};
    struct world *w = *state;
    assert_true(join(w, 2, "s", 2, past, "shm 1") < 0);
    assert_true(join(w, 2, "s", 2, far, "shm 1") < 0);
    assert_int_equal(w->nsent, 0);
    both_join(w);
}

static void malformed_frames_are_refused(void **state)
{
    struct world *w = *state;
    both_join(w);
    for (uint16_t type = WIRE_JOIN; type <= WIRE_FENCE; type++) {
        struct buf b = rdv_frames_leave("s");
        buf_put_u8(&b, 9);
        assert_true(feed(w, 2, type, b) < 0);
    }
    assert_true(join(w, 4, "other", 2, (const uint32_t[]){4, 8}, "shm 1") < 0);
}

static void ranks_are_listed_in_words(void **state)
{
    (void)state;
    char text[128];
    rank_list_format(text, sizeof text, (uint32_t[]){3}, 1);
    assert_string_equal(text, "3");
    rank_list_format(text, sizeof text, (uint32_t[]){0, 1, 2, 5}, 4);
    assert_string_equal(text, "0-2 and 5");
    rank_list_format(text, sizeof text, (uint32_t[]){0, 2, 4, 6, 8, 10, 12, 14, 16, 18}, 10);
    assert_string_equal(text, "0, 2, 4, 6, 8, 10, 12, 14 and 2 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_fence_gives_all_ranks_all_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(a_get_waits_for_its_put, setup, teardown),
        cmocka_unit_test_setup_teardown(a_late_group_names_who_is_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(disagreement_fails_all_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_put_twice_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dead_member_ends_the_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(a_group_with_an_exited_member_fails_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_agreement_is_of_the_members_that_are_left, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_agreement_waits_for_no_exited_member, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agreement_names_the_members_that_are_late, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(scopes_are_forgotten_and_names_reused, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_that_are_not_members_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_that_the_job_has_not_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(malformed_frames_are_refused, setup, teardown),
        cmocka_unit_test(ranks_are_listed_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges through the memory that the ranks of a host share: each thread is a rank with its own
 * mapping.
 */
#include "core/host_scope.h"
#include "core/rendezvous.h"

#include "base/loop.h"
#include "core/control.h"
#include "unit/emulated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, SECOND = 1000000000 };

/* One rank, and what it asks for. */
struct rank {
    struct host_scopes scopes;
    struct control control;
    atomic_bool failed[RANKS];
    struct host_scope_request request;
    int32_t value[2], all[RANKS][2];
    size_t lens[RANKS];
    uint32_t segment;
    int status;
    struct diag d;
    pthread_t thread;
};

struct host {
    int fd;
    uint32_t items[RANKS];
    struct desc_ranks members;
    struct rank ranks[RANKS];
};

static void init_control(struct control *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
}

static int setup(void **state)
{
    struct host *h = calloc(1, sizeof *h);
    struct diag d;
    diag_init(&d);
    assert_int_equal(hostmem_make(RANKS, &h->fd, &d), COLLRUN_OK);
    h->members = (struct desc_ranks){.items = h->items, .n = RANKS};
    for (uint32_t i = 0; i < RANKS; i++) {
        struct rank *r = &h->ranks[i];
        h->items[i] = i;
        init_control(&r->control);
        r->scopes = (struct host_scopes){
            .rank = i, .failed = r->failed, .control = &r->control, .oversubscribed = i % 2};
        assert_true(hostmem_map(&r->scopes.mem, h->fd));
        r->value[0] = 100 + (int32_t)i;
        r->value[1] = -(int32_t)i;
        r->request = (struct host_scope_request){.name = "train#0:1/0",
                                                 .group = "train",
                                                 .identity = "shm 1.0",
                                                 .members = &h->members,
                                                 .index = i,
                                                 .timeout_ns = 20ull * SECOND,
                                                 .value = r->value,
                                                 .value_len = sizeof r->value};
    }
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    struct host *h = *state;
    for (uint32_t i = 0; i < RANKS; i++)
        hostmem_unmap(&h->ranks[i].scopes.mem);
    close(h->fd);
    free(h);
    return 0;
}

static void *exchange(void *arg)
{
    struct rank *r = arg;
    diag_init(&r->d);
    const struct host_scope_values all = {
        .data = r->all, .stride = sizeof r->all[0], .lens = r->lens};
    r->status = host_scope_exchange(&r->scopes, &r->request, &all, &r->segment, &r->d);
    return NULL;
}

static void start(struct host *h, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        assert_int_equal(pthread_create(&h->ranks[i].thread, NULL, exchange, &h->ranks[i]), 0);
}

static void finish(struct host *h, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        pthread_join(h->ranks[i].thread, NULL);
}

static void assert_all(struct host *h, uint32_t first, uint32_t end, int status, const char *text)
{
    for (uint32_t i = first; i < end; i++) {
        assert_int_equal(h->ranks[i].status, status);
        if (text)
            assert_string_equal(h->ranks[i].d.text, text);
    }
}

/* Waits until `n` members of the only scope have arrived. */
static void await_arrivals(struct host *h, uint32_t n)
{
    struct hostmem *m = &h->ranks[0].scopes.mem;
    const uint64_t limit = now_ns() + 20ull * SECOND;
    for (uint32_t arrived = 0; arrived < n; usleep(100)) {
        assert_true(now_ns() < limit);
        hostmem_lock(m);
        arrived = hostmem_scope_at(m, 0)->narrived;
        hostmem_unlock(m);
    }
}

static void members_get_all_values(void **state)
{
    struct host *h = *state;
    for (int round = 0; round < 200; round++) {
        char name[32];
        snprintf(name, sizeof name, "train#0:1/%d", round);
        for (uint32_t i = 0; i < RANKS; i++) {
            h->ranks[i].request.name = name;
            memset(h->ranks[i].all, 0, sizeof h->ranks[i].all);
        }
        start(h, 0, RANKS);
        finish(h, 0, RANKS);
        assert_all(h, 0, RANKS, COLLRUN_OK, NULL);
        for (uint32_t i = 0; i < RANKS; i++) {
            for (int32_t k = 0; k < RANKS; k++) {
                assert_int_equal(h->ranks[i].all[k][0], 100 + k);
                assert_int_equal(h->ranks[i].all[k][1], -k);
                assert_int_equal(h->ranks[i].lens[k], sizeof h->ranks[k].value);
            }
        }
    }
}

static uint32_t take_segment(struct host *h, const char *name)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        h->ranks[i].request.name = name;
        h->ranks[i].request.segment_len = 1 << 20;
    }
    start(h, 0, RANKS);
    finish(h, 0, RANKS);
    assert_all(h, 0, RANKS, COLLRUN_OK, NULL);
    for (uint32_t i = 1; i < RANKS; i++)
        assert_int_equal(h->ranks[i].segment, h->ranks[0].segment);
    return h->ranks[0].segment;
}

static unsigned char *map_segment(struct host *h, uint32_t segment)
{
    const uint64_t at = hostmem_segment_offset(&h->ranks[0].scopes.mem, segment);
    assert_int_equal(at % (1 << 20), 0);
    unsigned char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, (off_t)at);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void a_released_segment_is_handed_out_again_zeroed(void **state)
{
    struct host *h = *state;
    struct hostmem *m = &h->ranks[0].scopes.mem;
    const uint32_t one = take_segment(h, "a#0:1/0"), two = take_segment(h, "b#0:1/0");
    assert_int_not_equal(one, two);
    unsigned char *memory = map_segment(h, one);
    memory[17] = 1;
    for (uint32_t i = 0; i + 1 < RANKS; i++)
        hostmem_segment_release(&h->ranks[i].scopes.mem, one);
    assert_int_equal(memory[17], 1);
    hostmem_segment_release(&h->ranks[RANKS - 1].scopes.mem, one);
    assert_int_equal(memory[17], 0);
    munmap(memory, 4096);
    uint32_t segment = UINT32_MAX, taken = 0;
    hostmem_lock(m);
    while (hostmem_segment_take(m, 1, &segment)) {
        assert_int_not_equal(segment, two);
        taken++;
    }
    hostmem_unlock(m);
    assert_int_equal(taken, HOSTMEM_SEGMENTS - 1);
    start(h, 0, RANKS);
    finish(h, 0, RANKS);
    assert_all(h, 0, RANKS, COLLRUN_ERR_NO_MEMORY,
               "group \"train\": all 8192 shared segments of this host are in use");
}

static void members_that_disagree_all_get_the_same_error(void **state)
{
    struct host *h = *state;
    start(h, 0, 2);
    await_arrivals(h, 2);
    h->ranks[2].request.identity = "gloo 1.0";
    start(h, 2, RANKS);
    finish(h, 0, RANKS);
    char text[200];
    const uint32_t first = strstr(h->ranks[0].d.text, "rank 0 has shm") ? 0 : 1;
    snprintf(text, sizeof text,
             "group \"train\": ranks disagree about the backend or the check: rank %u has shm 1.0, "
             "rank 2 has "
             "gloo 1.0",
             first);
    assert_all(h, 0, RANKS, COLLRUN_ERR_MISMATCH, text);
}

static void segments_of_different_sizes_are_a_mismatch(void **state)
{
    struct host *h = *state;
    for (uint32_t i = 0; i < RANKS; i++)
        h->ranks[i].request.segment_len = 4096;
    start(h, 0, 1);
    await_arrivals(h, 1);
    h->ranks[3].request.segment_len = 8192;
    start(h, 3, 4);
    finish(h, 3, 4);
    start(h, 1, 3);
    finish(h, 0, 3);
    assert_all(h, 0, RANKS, COLLRUN_ERR_MISMATCH,
               "group \"train\": ranks 0 and 3 ask for 4096 and 8192 bytes of the same shared "
               "segment");
}

static void a_segment_beyond_the_slot_is_refused(void **state)
{
    struct host *h = *state;
    h->ranks[0].request.segment_len = (RANKS * 128ull << 30) + 1;
    exchange(&h->ranks[0]);
    assert_int_equal(h->ranks[0].status, COLLRUN_ERR_UNSUPPORTED);
    assert_non_null(strstr(h->ranks[0].d.text, "a shared segment of 549755813889 bytes"));
}

static void the_deadline_names_the_missing_ranks(void **state)
{
    struct host *h = *state;
    for (uint32_t i = 0; i < RANKS; i++)
        h->ranks[i].request.timeout_ns = SECOND / 20;
    start(h, 0, 2);
    finish(h, 0, 2);
    const char *text = "group \"train\": ranks 2-3 did not join within 0.1 s (2 of 4 members)";
    assert_all(h, 0, 2, COLLRUN_ERR_TIMEOUT, text);
    start(h, 2, RANKS);
    finish(h, 2, RANKS);
    assert_all(h, 2, RANKS, COLLRUN_ERR_TIMEOUT, text);
    start(h, 0, RANKS);
    finish(h, 0, RANKS);
    assert_all(h, 0, RANKS, COLLRUN_OK, NULL);
}

static void a_failed_member_ends_the_wait(void **state)
{
    struct host *h = *state;
    start(h, 0, 3);
    await_arrivals(h, 3);
    atomic_store(&h->ranks[1].failed[3], true);
    host_scope_wake_all(&h->ranks[1].scopes);
    finish(h, 0, 3);
    assert_all(h, 0, 3, COLLRUN_ERR_PEER_FAILED,
               "group \"train\": rank 3 exited while the group was being formed");
}

/* The rendezvous of a group of three ranks, in the first one. */
struct train {
    struct desc_rank ranks[RANKS];
    struct desc desc;
    struct desc_ranks members;
    struct rendezvous_spec spec;
    struct rendezvous r;
};

static void open_train(struct train *t, struct host *h)
{
    struct rank *own = &h->ranks[0];
    memset(t->ranks, 0, sizeof t->ranks);
    t->desc = (struct desc){.ranks = t->ranks, .nranks = RANKS};
    t->members = (struct desc_ranks){.items = h->items, .n = 3};
    t->spec = (struct rendezvous_spec){.name = "train",
                                       .members = &t->members,
                                       .identity = "tcp 1.0",
                                       .timeout_ns = SECOND,
                                       .host = &own->scopes};
    own->scopes.desc = &t->desc;
    assert_int_equal(rendezvous_open(&t->r, &own->control, &t->spec, &own->d), COLLRUN_OK);
}

/* What a backend asks that waits by other means: a member that has failed ends the forming, also if
 * the job goes on; another rank does not. */
static void a_rendezvous_knows_that_a_member_has_failed(void **state)
{
    struct host *h = *state;
    struct rank *own = &h->ranks[0];
    struct train t;
    open_train(&t, h);
    assert_int_equal(t.r.table.alive(t.r.table.ctx), COLLRUN_OK);
    atomic_store(&own->failed[3], true);
    assert_int_equal(t.r.table.alive(t.r.table.ctx), COLLRUN_OK);
    atomic_store(&own->failed[2], true);
    assert_int_equal(t.r.table.alive(t.r.table.ctx), COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(t.r.failure.text,
                        "group \"train\": rank 2 exited while the group was being formed");
    rendezvous_leave(&t.r);
}

/* A frame cannot carry it: the caller learns that, instead of waiting for a value that is lost. */
static void a_value_that_is_too_long_is_refused(void **state)
{
    struct train t;
    open_train(&t, *state);
    assert_int_equal(t.r.table.put(t.r.table.ctx, "key", "", 64u << 20), COLLRUN_ERR_INVALID);
    assert_string_equal(t.r.failure.text,
                        "the rendezvous value \"key\" has 67108864 bytes; 67104768 "
                        "are allowed");
    rendezvous_leave(&t.r);
}

static void the_end_of_the_job_ends_the_wait(void **state)
{
    struct host *h = *state;
    struct control *c = &h->ranks[2].control;
    start(h, 2, 3);
    await_arrivals(h, 1);
    pthread_mutex_lock(&c->lock);
    diag_set(&c->abort_reason, COLLRUN_ERR_PEER_FAILED, "rank 7 was killed");
    atomic_fetch_or(&c->events, CONTROL_ABORT);
    pthread_mutex_unlock(&c->lock);
    host_scope_wake_all(&h->ranks[2].scopes);
    finish(h, 2, 3);
    assert_all(h, 2, 3, COLLRUN_ERR_PEER_FAILED, "rank 7 was killed");
}

static void a_rank_that_is_killed_with_the_lock_blocks_no_other(void **state)
{
    struct host *h = *state;
    if (emulated())
        skip();
    pid_t pid = fork();
    if (pid == 0) {
        hostmem_lock(&h->ranks[0].scopes.mem);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    start(h, 0, RANKS);
    finish(h, 0, RANKS);
    assert_all(h, 0, RANKS, COLLRUN_OK, NULL);
}

/* Scopes that failed because a member never joined do not use up the places. */
static void places_of_failed_scopes_are_used_again(void **state)
{
    struct host *h = *state;
    const uint32_t places = h->ranks[0].scopes.mem.head->nscopes;
    char name[32];
    for (uint32_t i = 0; i < 2 * places; i++) {
        snprintf(name, sizeof name, "lost#%u:1/0", i);
        h->ranks[0].request.name = name;
        h->ranks[0].request.timeout_ns = 1;
        exchange(&h->ranks[0]);
        assert_int_equal(h->ranks[0].status, COLLRUN_ERR_TIMEOUT);
    }
    h->ranks[0].request.name = h->ranks[1].request.name;
    h->ranks[0].request.timeout_ns = h->ranks[1].request.timeout_ns;
    start(h, 0, RANKS);
    finish(h, 0, RANKS);
    assert_all(h, 0, RANKS, COLLRUN_OK, NULL);
}

static void another_file_is_no_host_memory(void **state)
{
    struct hostmem m;
    (void)state;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_false(hostmem_map(&m, fd));
    close(fd);
    assert_false(hostmem_map(&m, fd));
    assert_null(m.head);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(members_get_all_values),
        TEST(a_released_segment_is_handed_out_again_zeroed),
        TEST(members_that_disagree_all_get_the_same_error),
        TEST(segments_of_different_sizes_are_a_mismatch),
        TEST(a_segment_beyond_the_slot_is_refused),
        TEST(the_deadline_names_the_missing_ranks),
        TEST(a_failed_member_ends_the_wait),
        TEST(a_rendezvous_knows_that_a_member_has_failed),
        TEST(a_value_that_is_too_long_is_refused),
        TEST(the_end_of_the_job_ends_the_wait),
        TEST(a_rank_that_is_killed_with_the_lock_blocks_no_other),
        TEST(places_of_failed_scopes_are_used_again),
        cmocka_unit_test(another_file_is_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

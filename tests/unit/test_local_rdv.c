/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous that an agent serves: which groups are its own, what their members get, exits,
 * deadlines, an agent that was stopped. Ranks and runner are replaced: this file defines the
 * functions that send to them.
 */
#include "agent/agent.h"
#include "agent/local_rdv.h"
#include "agent/ranks.h"
#include "agent/uplink.h"
#include "base/standstill.h"
#include "rdv_frames.h"
#include "rendezvous/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND_NS 1000000000ull

enum { MAX_SENT = 16 };

struct sent {
    uint32_t rank;
    uint16_t type;
    int status;
};

/* Four ranks; 0 and 1 are on the agent's host, 2 and 3 on another. */
struct world {
    struct agent agent;
    struct desc_rank ranks[4];
    struct sent sent[MAX_SENT];
    uint32_t nsent, nerrors;
};

static struct world world;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);

static _Atomic uint64_t passed_ns;

uint64_t __wrap_now_ns(void)
{
    return __real_now_ns() + atomic_load(&passed_ns);
}
/* NOLINTEND(bugprone-reserved-identifier) */

void ranks_send(struct agent *a, uint32_t rank, uint16_t type, const struct buf *payload)
{
    struct arena arena;
    struct reader r;
    assert_ptr_equal(a, &world.agent);
    assert_true(world.nsent < MAX_SENT);
    arena_init(&arena);
    reader_init(&r, payload->data, payload->len);
    read_str(&r, &arena); /* the scope */
    if (type == WIRE_FENCED)
        read_u32(&r);
    else
        read_str(&r, &arena);
    world.sent[world.nsent++] = (struct sent){rank, type, (int)read_u32(&r)};
    assert_false(r.bad);
    arena_fini(&arena);
}

void uplink_send_error(struct agent *a, const struct diag *why)
{
    assert_ptr_equal(a, &world.agent);
    assert_true(why->code < 0);
    world.nerrors++;
}

static int setup(void **state)
{
    struct diag d;
    world = (struct world){.ranks = {{.host = 0}, {.host = 0}, {.host = 1}, {.host = 1}}};
    world.agent.desc.nranks = 4;
    world.agent.desc.ranks = world.ranks;
    world.agent.loop = loop_new();
    *state = &world.agent.rendezvous;
    return local_rdv_open(&world.agent.rendezvous, &world.agent, &d);
}

static int teardown(void **state)
{
    local_rdv_close(*state);
    local_rdv_close(*state);
    local_rdv_on_rank_exit(*state, 0); /* later exits do no harm */
    loop_free(world.agent.loop);
    return 0;
}

static bool take(struct local_rdv *l, uint32_t rank, uint16_t type, struct buf payload)
{
    struct wire_frame f = {.type = type, .rank = rank, .payload = payload.data, .len = payload.len};
    bool taken = local_rdv_take(l, &f);
    buf_fini(&payload);
    return taken;
}

static const uint32_t here[] = {1, 0}, across[] = {0, 2}, there[] = {2, 3}, beyond[] = {0, 4};

static bool join(struct local_rdv *l, uint32_t rank, const char *scope, uint64_t timeout_ns)
{
    return take(l, rank, WIRE_JOIN, rdv_frames_join(scope, timeout_ns, 2, here, "shm 1"));
}

static bool fence(struct local_rdv *l, uint32_t rank, const char *scope)
{
    return take(l, rank, WIRE_FENCE, rdv_frames_fence(scope, 0));
}

static void expect_sent(uint32_t i, uint32_t rank, uint16_t type, int status)
{
    assert_true(i < world.nsent);
    assert_int_equal(world.sent[i].rank, rank);
    assert_int_equal(world.sent[i].type, type);
    assert_int_equal(world.sent[i].status, status);
}

static void members_of_this_host_are_answered_here(void **state)
{
    struct local_rdv *l = *state;
    assert_true(join(l, 0, "s", SECOND_NS) && join(l, 1, "s", SECOND_NS));
    assert_true(take(l, 1, WIRE_GET, rdv_frames_get("s", "k")));
    assert_int_equal(world.nsent, 0);
    assert_true(take(l, 0, WIRE_PUT, rdv_frames_put("s", "k", "v")));
    expect_sent(0, 1, WIRE_REPLY, COLLRUN_OK);
    assert_true(fence(l, 0, "s") && fence(l, 1, "s"));
    assert_int_equal(world.nsent, 3);
    expect_sent(1, here[0], WIRE_FENCED, COLLRUN_OK);
    expect_sent(2, here[1], WIRE_FENCED, COLLRUN_OK);
    assert_false(take(l, 0, WIRE_AGREE, rdv_frames_agree("s", 1, 2, here, COLLRUN_OK)));
    assert_true(take(l, 0, WIRE_LEAVE, rdv_frames_leave("s")));
    assert_true(take(l, 1, WIRE_LEAVE, rdv_frames_leave("s")));
    assert_false(take(l, 1, WIRE_LEAVE, rdv_frames_leave("s"))); /* the scope is gone */
    assert_int_equal(world.nerrors, 0);
}

static void other_groups_are_for_the_runner(void **state)
{
    struct local_rdv *l = *state;
    const uint32_t *members[] = {across, there, beyond};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        assert_false(take(l, 0, WIRE_JOIN, rdv_frames_join("s", 1, 2, members[i], "shm 1")));
    assert_false(take(l, 0, WIRE_PUT, rdv_frames_put("s", "k", "v")));
    assert_false(take(l, 0, WIRE_GET, rdv_frames_get("s", "k")));
    assert_false(fence(l, 0, "s"));
    assert_false(take(l, 0, WIRE_READY, rdv_frames_leave("s")));
    struct buf cut = rdv_frames_join("s", 1, 2, here, "shm 1");
    cut.len = 20; /* within the list of members */
    assert_false(take(l, 0, WIRE_JOIN, cut));
    assert_int_equal(world.nsent + world.nerrors, 0);
    assert_int_equal(rdv_open_scopes(l->store), 0);
}

static void a_frame_that_the_store_refuses_ends_the_job(void **state)
{
    struct local_rdv *l = *state;
    assert_true(join(l, 0, "s", SECOND_NS));
    assert_true(join(l, 0, "s", SECOND_NS)); /* twice */
    assert_int_equal(world.nerrors, 1);
    assert_true(take(l, 2, WIRE_PUT, rdv_frames_put("s", "k", "v"))); /* not a member */
    assert_int_equal(world.nerrors, 2);
}

static void an_exit_fails_the_members_that_wait(void **state)
{
    struct local_rdv *l = *state;
    assert_true(join(l, 0, "s", SECOND_NS) && join(l, 1, "s", SECOND_NS) && fence(l, 0, "s"));
    local_rdv_on_rank_exit(l, 1);
    assert_int_equal(world.nsent, 1);
    expect_sent(0, 0, WIRE_FENCED, COLLRUN_ERR_PEER_FAILED);
}

/* The timer is for the first scope that waits, and then for the next one. */
static void each_deadline_expires_once(void **state)
{
    struct local_rdv *l = *state;
    assert_true(join(l, 0, "first", 1));
    assert_int_equal(l->deadline.at_ns, 0); /* it does not wait yet */
    assert_true(fence(l, 0, "first"));
    assert_true(l->deadline.at_ns != 0);
    const uint64_t at_ns = l->deadline.at_ns;
    assert_true(join(l, 1, "second", 3600 * SECOND_NS) && fence(l, 1, "second"));
    assert_int_equal(l->deadline.at_ns, at_ns);
    loop_timer_clear(l->agent->loop, &l->deadline); /* as the loop does */
    l->deadline.fired(&l->deadline);
    assert_int_equal(world.nsent, 1);
    expect_sent(0, 0, WIRE_FENCED, COLLRUN_ERR_TIMEOUT);
    assert_true(l->deadline.at_ns > at_ns + 3000 * SECOND_NS);
}

static void fire(struct local_rdv *l)
{
    loop_timer_clear(l->agent->loop, &l->deadline);
    l->deadline.fired(&l->deadline);
}

static void deadlines_do_not_pass_while_the_agent_is_stopped(void **state)
{
    struct local_rdv *l = *state;
    standstill_tick();
    assert_true(join(l, 0, "s", 30 * SECOND_NS) && fence(l, 0, "s"));
    const uint64_t at_ns = l->deadline.at_ns;
    atomic_fetch_add(&passed_ns, 60 * SECOND_NS);
    fire(l);
    assert_int_equal(world.nsent, 0);
    assert_true(l->deadline.at_ns >= at_ns);
    for (int i = 0; i < 31; i++) { /* it runs */
        standstill_tick();
        atomic_fetch_add(&passed_ns, SECOND_NS);
    }
    fire(l);
    assert_int_equal(world.nsent, 1);
    expect_sent(0, 0, WIRE_FENCED, COLLRUN_ERR_TIMEOUT);
}

static void deadlines_do_not_pass_while_the_ranks_are_stopped(void **state)
{
    struct local_rdv *l = *state;
    assert_true(join(l, 0, "s", 30 * SECOND_NS) && fence(l, 0, "s"));
    for (int times = 0; times < 2; times++) {
        local_rdv_suspend(l);
        local_rdv_suspend(l);
        for (int i = 0; i < 60; i++) { /* the agent runs */
            standstill_tick();
            atomic_fetch_add(&passed_ns, SECOND_NS);
        }
        fire(l);
        assert_int_equal(world.nsent, 0);
        assert_int_equal(l->deadline.at_ns, 0);
        local_rdv_resume(l);
        local_rdv_resume(l);
        assert_true(l->deadline.at_ns != 0);
        fire(l);
        assert_int_equal(world.nsent, 0);
    }
    for (int i = 0; i < 31; i++) {
        standstill_tick();
        atomic_fetch_add(&passed_ns, SECOND_NS);
    }
    fire(l);
    assert_int_equal(world.nsent, 1);
    expect_sent(0, 0, WIRE_FENCED, COLLRUN_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_of_this_host_are_answered_here, setup, teardown),
        cmocka_unit_test_setup_teardown(other_groups_are_for_the_runner, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_that_the_store_refuses_ends_the_job, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_exit_fails_the_members_that_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(each_deadline_expires_once, setup, teardown),
        cmocka_unit_test_setup_teardown(deadlines_do_not_pass_while_the_agent_is_stopped, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(deadlines_do_not_pass_while_the_ranks_are_stopped, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

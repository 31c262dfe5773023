/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of several threads in the record (group/thread_record.h). Pairs of threads, one at each
 * of two ranks, run random programs: they exchange messages of a few tags in an order that both
 * follow, so that none hangs. The oracle is the script of each thread: it says what its rank has
 * sent and taken, and which receives are open, after so many calls. Every accepted cut is compared
 * with it, for the calls that each thread has made by then.
 *
 * PROGRAMS: how many; SEED: of the first.
 */
#include "recorded_rank.h"

#include "base/loop.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static char data[64];

enum { PAIRS = 3, TAGS = 3, SLOTS = 4, MESSAGES = 60, MOST_STEPS = 4 * MESSAGES + SLOTS };

enum what { STEP_SEND, STEP_RECV, STEP_ISEND, STEP_IRECV, STEP_WAIT, STEP_TEST, STEP_WAIT_ALL };

struct step {
    enum what what;
    uint32_t tag, slot;
};

/* After so many calls. */
struct expected {
    uint64_t sent[TAGS], taken[TAGS];
    uint32_t open; /* receives */
};

struct actor {
    struct rank *rank;
    uint32_t pair;
    struct step steps[MOST_STEPS];
    uint32_t nsteps;
    struct expected after[MOST_STEPS + 1];
    struct step open[SLOTS]; /* while it is written: what the slots hold */
    bool used[SLOTS];
    pthread_t thread;
    _Atomic uint32_t tid;
    bool good;
};

static struct rank pair_ranks[2];
static struct actor actors[2][PAIRS];
static atomic_bool begin;

static bool is_receive(enum what what)
{
    return what == STEP_RECV || what == STEP_IRECV;
}

static void actor_complete(struct actor *a, struct expected *e, uint32_t slot)
{
    if (a->used[slot] && is_receive(a->open[slot].what)) {
        e->taken[a->open[slot].tag]++;
        e->open--;
    }
    a->used[slot] = false;
}

static void actor_add(struct actor *a, struct step step)
{
    struct expected e = a->after[a->nsteps];
    assert_true(a->nsteps < MOST_STEPS);
    a->steps[a->nsteps++] = step;
    e.sent[step.tag] += step.what == STEP_SEND || step.what == STEP_ISEND;
    e.taken[step.tag] += step.what == STEP_RECV;
    e.open += step.what == STEP_IRECV;
    if (step.what == STEP_ISEND || step.what == STEP_IRECV) {
        a->used[step.slot] = true;
        a->open[step.slot] = step;
    } else if (step.what == STEP_WAIT || step.what == STEP_TEST) {
        actor_complete(a, &e, step.slot);
    } else if (step.what == STEP_WAIT_ALL) {
        for (uint32_t i = 0; i < SLOTS; i++)
            actor_complete(a, &e, i);
    }
    a->after[a->nsteps] = e;
}

/* One message of the program: this side of it, perhaps as a request, and perhaps a wait. */
static void actor_add_message(struct actor *a, bool sends, uint32_t tag)
{
    const uint32_t slot = (uint32_t)rand() % SLOTS;
    if (a->used[slot] && rand() % 4 == 0)
        actor_add(a, (struct step){.what = STEP_WAIT_ALL});
    else if (a->used[slot])
        actor_add(a, (struct step){.what = rand() % 2 ? STEP_WAIT : STEP_TEST, .slot = slot});
    const bool blocks = rand() % 2;
    actor_add(a, (struct step){.what = sends ? (blocks ? STEP_SEND : STEP_ISEND)
                                             : (blocks ? STEP_RECV : STEP_IRECV),
                               .tag = tag,
                               .slot = slot});
}

/* A wait for nothing is not recorded. */
static void actor_finish(struct actor *a)
{
    bool any = false;
    for (uint32_t i = 0; i < SLOTS; i++)
        any = any || a->used[i];
    if (any)
        actor_add(a, (struct step){.what = STEP_WAIT_ALL});
}

static void actor_write_scripts(struct actor *a, struct actor *b)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        const uint32_t tag = (uint32_t)rand() % TAGS;
        const bool forth = rand() % 2;
        actor_add_message(a, forth, tag);
        actor_add_message(b, !forth, tag);
    }
    actor_finish(a);
    actor_finish(b);
}

static struct collrun_call actor_call(const struct actor *a, const struct step *s)
{
    struct collrun_call call =
        null_group_message(is_receive(s->what) ? COLLRUN_RECV : COLLRUN_SEND, data, 4);
    call.peer = a->rank->end.rank == 0;
    call.tag = a->pair * TAGS + s->tag;
    return call;
}

static int actor_step(struct actor *a, const struct step *s, struct collrun_request **slots)
{
    const struct collrun_call call = actor_call(a, s);
    int rc;
    switch (s->what) {
    case STEP_SEND:
    case STEP_RECV:
        return collrun_run(a->rank->group, &call, 1);
    case STEP_ISEND:
    case STEP_IRECV:
        return collrun_start(a->rank->group, &call, &slots[s->slot]);
    case STEP_WAIT:
        rc = collrun_wait(slots[s->slot]);
        break;
    case STEP_TEST:
        while ((rc = collrun_test(slots[s->slot])) == COLLRUN_AGAIN)
            sched_yield();
        break;
    default:
        return collrun_wait_all(slots, SLOTS);
    }
    slots[s->slot] = NULL;
    return rc;
}

static void *actor_run(void *arg)
{
    struct actor *a = arg;
    struct collrun_request *slots[SLOTS] = {NULL};
    atomic_store(&a->tid, (uint32_t)syscall(SYS_gettid));
    while (!atomic_load(&begin))
        sched_yield();
    a->good = true;
    for (uint32_t i = 0; i < a->nsteps; i++)
        if (actor_step(a, &a->steps[i], slots) != COLLRUN_OK)
            a->good = false;
    return NULL;
}

/* A call raises the word by 8; INSIDE, it has counted what it sends and posted what it receives. */
static struct expected actor_at(const struct actor *a, uint32_t word)
{
    const uint32_t calls = word / 8 < a->nsteps ? word / 8 : a->nsteps;
    struct expected e = a->after[calls];
    if ((word & 3) == RECORD_INSIDE && calls < a->nsteps) {
        const struct step *s = &a->steps[calls];
        e.sent[s->tag] += s->what == STEP_SEND || s->what == STEP_ISEND;
        e.open += is_receive(s->what);
    }
    return e;
}

static struct record_cut_channel counted(const struct record_cut *cut, const struct rank *r,
                                         uint32_t tag)
{
    const struct record_cut_channel none = {0};
    const struct record_cut_channel *c = rank_channel(cut, r->end.rank == 0, tag);
    return c ? *c : none;
}

static void check_cut(struct rank *r, const struct actor *of, const struct record_cut *cut,
                      unsigned long nsent)
{
    uint64_t sent = 0;
    uint32_t open = 0;
    assert_int_equal(cut->lost, 0);
    for (uint32_t p = 0; p < PAIRS; p++) {
        const struct expected e = actor_at(&of[p], r->words[p]);
        open += e.open;
        for (uint32_t tag = 0; tag < TAGS; tag++) {
            const struct record_cut_channel c = counted(cut, r, p * TAGS + tag);
            assert_int_equal(c.sent, e.sent[tag]);
            assert_int_equal(c.taken, e.taken[tag]);
            sent += c.sent;
        }
    }
    assert_int_equal(cut->nreceives, open);
    assert_true(sent >= nsent);
}

/* The receiver's cut is the older one: what it has taken was sent before the other. */
static void check_in_flight(const struct record_cut *sender, const struct rank *from,
                            const struct record_cut *receiver, const struct rank *to)
{
    for (uint32_t tag = 0; tag < PAIRS * TAGS; tag++)
        assert_true(counted(sender, from, tag).sent >= counted(receiver, to, tag).taken);
}

static bool take_cut(uint32_t which, struct record_cut *cut)
{
    struct rank *r = &pair_ranks[which];
    const unsigned long nsent = atomic_load(&r->end.nsent);
    *cut = rank_cut(r);
    if (cut->state == RECORD_CUT_STILL)
        check_cut(r, actors[which], cut, nsent);
    return cut->state == RECORD_CUT_STILL;
}

static unsigned take_cuts(void)
{
    struct record_cut cuts[2];
    const uint32_t first = (uint32_t)rand() % 2;
    bool still[2];
    still[first] = take_cut(first, &cuts[first]);
    still[!first] = take_cut(!first, &cuts[!first]);
    if (still[0] && still[1])
        check_in_flight(&cuts[!first], &pair_ranks[!first], &cuts[first], &pair_ranks[first]);
    for (int i = 0; i < 2; i++) {
        arena_fini(&pair_ranks[i].arena);
        arena_init(&pair_ranks[i].arena);
    }
    return still[0] + still[1];
}

static bool pair_ended(void)
{
    for (int r = 0; r < 2; r++)
        for (uint32_t p = 0; p < PAIRS; p++)
            if (pair_ranks[r].words[p] / 8 < actors[r][p].nsteps)
                return false;
    return true;
}

/* Returns how many cuts were accepted while the program ran. */
static unsigned run_program(void)
{
    unsigned accepted = 0;
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    memset(actors, 0, sizeof actors);
    atomic_store(&begin, false);
    for (uint32_t r = 0; r < 2; r++)
        rank_open(&pair_ranks[r], r, 2, true);
    for (uint32_t r = 0; r < 2; r++)
        pair_ranks[r].end.peers[!r] = &pair_ranks[!r].end;
    for (uint32_t p = 0; p < PAIRS; p++)
        actor_write_scripts(&actors[0][p], &actors[1][p]);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t p = 0; p < PAIRS; p++) {
            struct actor *a = &actors[r][p];
            a->rank = &pair_ranks[r];
            a->pair = p;
            assert_int_equal(pthread_create(&a->thread, NULL, actor_run, a), 0);
            while (!atomic_load(&a->tid))
                sched_yield();
            rank_add_task(&pair_ranks[r], a->tid);
        }
    atomic_store(&begin, true);
    while (!pair_ended()) {
        assert_true(now_ns() < until);
        accepted += take_cuts();
    }
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t p = 0; p < PAIRS; p++) {
            pthread_join(actors[r][p].thread, NULL);
            assert_true(actors[r][p].good);
        }
    assert_int_equal(take_cuts(), 2);
    for (uint32_t r = 0; r < 2; r++)
        rank_close(&pair_ranks[r]);
    return accepted;
}

static void every_cut_of_random_programs_agrees_with_their_scripts(void **state)
{
    const char *programs = getenv("PROGRAMS"); /* how many: more to look longer */
    const char *seed = getenv("SEED");
    unsigned accepted = 0;
    (void)state;
    srand(seed ? (unsigned)atoi(seed) : 1);
    for (int i = 0; i < (programs ? atoi(programs) : 10); i++)
        accepted += run_program();
    print_message("# %u cuts accepted\n", accepted);
    assert_true(accepted > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_of_random_programs_agrees_with_their_scripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

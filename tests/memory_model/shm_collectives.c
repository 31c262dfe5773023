/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of the shm backend: random programs of two and three ranks, on cores of their own and
 * oversubscribed, whose results are compared with what they have to be; calls that disagree; a
 * group that is aborted.
 */
#include "memory_model/model.h"
#include "memory_model/shm_world.h"

#include <stdio.h>
#include <string.h>

enum { CALLS = 24, COUNT_MAX = 700, RANKS_MAX = 3 };

struct program {
    struct {
        enum collrun_kind kind;
        uint32_t count, root;
    } calls[CALLS];
    uint32_t ncalls;
};
static struct program program; /* of the run */
static int32_t send[RANKS_MAX][RANKS_MAX * COUNT_MAX], recv[RANKS_MAX][RANKS_MAX * COUNT_MAX];
static int statuses[RANKS_MAX];

/* In the record, in a slot, in the ring. */
static uint32_t pick_count(void)
{
    static const uint32_t counts[] = {0, 1, 2, 10, 58, 59, 100, 512, 513, COUNT_MAX};
    return counts[model_choose(model_choose(2) ? 4 : sizeof counts / sizeof counts[0])];
}

static void pick_program(uint32_t nranks)
{
    static const enum collrun_kind kinds[] = {COLLRUN_BARRIER, COLLRUN_ALLREDUCE, COLLRUN_BROADCAST,
                                              COLLRUN_REDUCE,  COLLRUN_ALLGATHER, COLLRUN_GATHER,
                                              COLLRUN_SCATTER, COLLRUN_ALLTOALL};
    program.ncalls = 1 + model_choose(CALLS);
    const uint32_t one = model_choose(2) ? model_choose(8) : 8; /* many of one kind */
    for (uint32_t i = 0; i < program.ncalls; i++) {
        program.calls[i].kind = kinds[one < 8 ? one : model_choose(8)];
        program.calls[i].count = pick_count();
        program.calls[i].root = model_choose(2) ? 0 : model_choose(nranks);
    }
}

static int32_t element(uint32_t call, uint32_t rank, size_t i)
{
    return (int32_t)(call * 1000000 + rank * 100000 + i);
}

/* How many elements this rank sends and receives. */
static size_t sent_by(uint32_t i, uint32_t self)
{
    const enum collrun_kind kind = program.calls[i].kind;
    const size_t n = program.calls[i].count, all = n * shm_world.nranks;
    if (kind == COLLRUN_SCATTER)
        return self == program.calls[i].root ? all : 0;
    return kind == COLLRUN_ALLTOALL ? all : n;
}

static size_t received_by(uint32_t i, uint32_t self)
{
    const enum collrun_kind kind = program.calls[i].kind;
    const size_t n = program.calls[i].count, all = n * shm_world.nranks;
    const bool root = self == program.calls[i].root;
    switch (kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return all;
    case COLLRUN_GATHER:
        return root ? all : 0;
    case COLLRUN_REDUCE:
        return root ? n : 0;
    default:
        return n;
    }
}

static int32_t expected(uint32_t i, uint32_t self, size_t at)
{
    const size_t n = program.calls[i].count;
    const uint32_t from = (uint32_t)(at / (n ? n : 1));
    int32_t sum = 0;
    switch (program.calls[i].kind) {
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        for (uint32_t r = 0; r < shm_world.nranks; r++)
            sum += element(i, r, at);
        return sum;
    case COLLRUN_BROADCAST:
        return element(i, program.calls[i].root, at);
    case COLLRUN_SCATTER:
        return element(i, program.calls[i].root, self * n + at);
    case COLLRUN_ALLTOALL:
        return element(i, from, self * n + at % n);
    default:
        return element(i, from, at % n);
    }
}

static int call(uint32_t i, uint32_t self)
{
    struct collrun_call c = COLLRUN_CALL(program.calls[i].kind);
    c.dtype = COLLRUN_INT32;
    c.op = COLLRUN_SUM;
    c.root = (int)program.calls[i].root;
    c.count = program.calls[i].count;
    c.timeout_ns = 60000000000;
    c.send = send[self];
    c.recv = recv[self];
    for (size_t k = 0; k < sent_by(i, self); k++)
        send[self][k] = element(i, self, k);
    if (c.kind == COLLRUN_BROADCAST && self == program.calls[i].root)
        for (size_t k = 0; k < c.count; k++)
            recv[self][k] = element(i, self, k);
    return shm_world_exec(self, &c);
}

static void run_program(uint32_t self)
{
    for (uint32_t i = 0; i < program.ncalls; i++) {
        int status = call(i, self);
        if (status != COLLRUN_OK)
            model_fail("call %u: status %d: %s", i, status, shm_world.errors[self]);
        for (size_t k = 0; k < received_by(i, self); k++)
            if (recv[self][k] != expected(i, self, k))
                model_fail("call %u of kind %d, %u elements, root %u: element %zu is %d, not %d", i,
                           (int)program.calls[i].kind, program.calls[i].count,
                           program.calls[i].root, k, recv[self][k], expected(i, self, k));
    }
}

#define SETUP(name, nranks, oversubscribed)                                                        \
    static void name(void)                                                                         \
    {                                                                                              \
        shm_world_open(nranks, oversubscribed, NULL);                                              \
        pick_program(nranks);                                                                      \
    }
SETUP(two, 2, false)
SETUP(three, 3, false)
SETUP(two_on_one_core, 2, true)
SETUP(three_on_one_core, 3, true)

/* ---- a group that fails ---- */

/* The last thread is none of the ranks. */
static void run_until_aborted(uint32_t self)
{
    if (self == shm_world.nranks) {
        for (uint32_t i = model_choose(20); i > 0; i--)
            model_yield();
        for (uint32_t r = 0; r < shm_world.nranks; r++)
            collrun_backend_v1.group_abort(shm_world.groups[r]);
        return;
    }
    statuses[self] = COLLRUN_OK;
    for (uint32_t i = 0; statuses[self] == COLLRUN_OK; i = (i + 1) % program.ncalls)
        statuses[self] = call(i, self);
}

static void check_aborted(void)
{
    for (uint32_t r = 0; r < shm_world.nranks; r++) {
        MODEL_CHECK(statuses[r] == COLLRUN_ERR_ABORTED);
        MODEL_CHECK(strcmp(shm_world.errors[r], "the group was aborted") == 0);
    }
}

/* One rank makes another call than the others. No rank gets a wrong result, and one that waits for
 * others learns of it. */
static uint32_t odd_rank, odd_call;

static void disagree(void)
{
    two();
    program.ncalls = 20;
    for (uint32_t i = 0; i < program.ncalls; i++) {
        program.calls[i].kind = i == 19 ? COLLRUN_BARRIER : program.calls[i].kind;
        program.calls[i].count = 1 + program.calls[i].count;
        if (program.calls[i].count > COUNT_MAX)
            program.calls[i].count = COUNT_MAX;
    }
    odd_rank = model_choose(2);
    odd_call = model_choose(19);
}

static void run_odd(uint32_t self)
{
    statuses[self] = COLLRUN_OK;
    for (uint32_t i = 0; i < program.ncalls && statuses[self] == COLLRUN_OK; i++) {
        if (self == odd_rank && i == odd_call) {
            struct collrun_call c = COLLRUN_CALL(COLLRUN_ALLREDUCE);
            c.dtype = COLLRUN_INT8;
            c.op = COLLRUN_MAX;
            c.count = 7;
            c.timeout_ns = 60000000000;
            c.send = send[self];
            c.recv = recv[self];
            statuses[self] = shm_world_exec(self, &c);
        } else {
            statuses[self] = call(i, self);
        }
    }
}

static void check_odd(void)
{
    for (uint32_t r = 0; r < 2; r++)
        MODEL_CHECK(statuses[r] == COLLRUN_ERR_MISMATCH);
    MODEL_CHECK(strcmp(shm_world.errors[0], shm_world.errors[1]) == 0);
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "two ranks", .nthreads = 2, .setup = two, .thread = run_program},
        {.name = "three ranks", .nthreads = 3, .setup = three, .thread = run_program},
        {.name = "two ranks, one core",
         .nthreads = 2,
         .setup = two_on_one_core,
         .thread = run_program},
        {.name = "three ranks, one core",
         .nthreads = 3,
         .setup = three_on_one_core,
         .thread = run_program},
        {.name = "three ranks, one core, each sleep is ended by another rank",
         .nthreads = 3,
         .setup = three_on_one_core,
         .thread = run_program,
         .strict = true},
        {.name = "two ranks, aborted",
         .nthreads = 3,
         .setup = two,
         .thread = run_until_aborted,
         .check = check_aborted},
        {.name = "three ranks, one core, aborted",
         .nthreads = 4,
         .setup = three_on_one_core,
         .thread = run_until_aborted,
         .check = check_aborted},
        {.name = "two ranks that disagree",
         .nthreads = 2,
         .setup = disagree,
         .thread = run_odd,
         .check = check_odd},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The model itself: small programs whose outcomes are known, every run of each. An outcome that
 * C11 forbids must not occur, and each that real processors show must.
 */
#include "memory_model/model.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic uint32_t x, y;
static uint32_t plain, r[4];
static uint64_t outcomes; /* a bit for each */

static void clear(void)
{
    x = y = plain = 0;
    r[0] = r[1] = r[2] = r[3] = 0;
}

static void count(void)
{
    outcomes |= 1ull << (r[0] | r[1] << 1 | r[2] << 2 | r[3] << 3);
}

#define STORE(at, order) atomic_store_explicit(&(at), 1, memory_order_##order)
#define LOAD(at, order) atomic_load_explicit(&(at), memory_order_##order)
#define FENCE(order) atomic_thread_fence(memory_order_##order)

/* Store buffering: r0 = r1 = 0 unless everything is seq_cst. */
#define STORE_BUFFERING(name, store, load, fence)                                                  \
    static void name(uint32_t self)                                                                \
    {                                                                                              \
        if (self == 0) {                                                                           \
            STORE(x, store);                                                                       \
            fence;                                                                                 \
            r[0] = LOAD(y, load);                                                                  \
        } else {                                                                                   \
            STORE(y, store);                                                                       \
            fence;                                                                                 \
            r[1] = LOAD(x, load);                                                                  \
        }                                                                                          \
    }
STORE_BUFFERING(sb_release, release, acquire, )
STORE_BUFFERING(sb_seq_cst, seq_cst, seq_cst, )
STORE_BUFFERING(sb_fence, relaxed, relaxed, FENCE(seq_cst))

/* Message passing: y is seen, x is not. */
#define MESSAGE_PASSING(name, store, before, load, after)                                          \
    static void name(uint32_t self)                                                                \
    {                                                                                              \
        if (self == 0) {                                                                           \
            STORE(x, relaxed);                                                                     \
            before;                                                                                \
            STORE(y, store);                                                                       \
        } else {                                                                                   \
            r[0] = LOAD(y, load);                                                                  \
            after;                                                                                 \
            r[1] = LOAD(x, relaxed);                                                               \
        }                                                                                          \
    }
MESSAGE_PASSING(mp_relaxed, relaxed, , relaxed, )
MESSAGE_PASSING(mp_release_only, release, , relaxed, )
MESSAGE_PASSING(mp_acquire_only, relaxed, , acquire, )
MESSAGE_PASSING(mp, release, , acquire, )
MESSAGE_PASSING(mp_fences, relaxed, FENCE(release), relaxed, FENCE(acquire))

/* Two writers, two readers that disagree about the order. */
#define IRIW(name, store, load)                                                                    \
    static void name(uint32_t self)                                                                \
    {                                                                                              \
        if (self == 0) {                                                                           \
            STORE(x, store);                                                                       \
        } else if (self == 1) {                                                                    \
            STORE(y, store);                                                                       \
        } else if (self == 2) {                                                                    \
            r[0] = LOAD(x, load);                                                                  \
            r[1] = LOAD(y, load);                                                                  \
        } else {                                                                                   \
            r[2] = LOAD(y, load);                                                                  \
            r[3] = LOAD(x, load);                                                                  \
        }                                                                                          \
    }
IRIW(iriw_acquire, release, acquire)
IRIW(iriw_seq_cst, seq_cst, seq_cst)

/* A third thread learns of x through a read-modify-write of y by the second. */
static void release_sequence(uint32_t self)
{
    if (self == 0) {
        STORE(x, relaxed);
        STORE(y, release);
    } else if (self == 1) {
        atomic_fetch_add_explicit(&y, 1, memory_order_relaxed);
    } else {
        r[0] = LOAD(y, acquire) == 2;
        r[1] = LOAD(x, relaxed);
    }
}

/* Two loads of one word are not out of order. */
static void coherence(uint32_t self)
{
    if (self == 0) {
        STORE(x, relaxed);
    } else {
        r[0] = LOAD(x, relaxed);
        r[1] = LOAD(x, relaxed);
    }
}

static void counter(uint32_t self)
{
    (void)self;
    atomic_fetch_add_explicit(&x, 1, memory_order_relaxed);
}

static void count_three(void)
{
    MODEL_CHECK(x == 3);
}

static void race(uint32_t self)
{
    if (self == 0) {
        plain = 1;
        STORE(y, relaxed);
    } else if (LOAD(y, acquire)) {
        r[0] = plain;
    }
}

static void no_race(uint32_t self)
{
    if (self == 0) {
        plain = 1;
        STORE(y, release);
    } else if (LOAD(y, acquire)) {
        r[0] = plain;
    }
}

/* A sleeper and a publisher that looks for sleepers, without a fence between. */
static void lost_wake_up(uint32_t self)
{
    if (self == 0) {
        STORE(x, release);
        if (LOAD(y, acquire))
            model_wake((const volatile uint32_t *)&x);
    } else {
        STORE(y, release);
        if (!LOAD(x, acquire))
            model_sleep((const volatile uint32_t *)&x, 0, 1000000000);
    }
}

static const struct {
    const char *name;
    void (*thread)(uint32_t);
    uint32_t nthreads;
    uint64_t all; /* the outcomes: bits by r0 + 2 r1 + 4 r2 + 8 r3 */
} litmus[] = {
    {"store buffering, release and acquire: all four", sb_release, 2, 0xf},
    {"store buffering, seq_cst: not neither", sb_seq_cst, 2, 0xe},
    {"store buffering, seq_cst fences: not neither", sb_fence, 2, 0xe},
    {"message passing, relaxed: all four", mp_relaxed, 2, 0xf},
    {"message passing, release alone: all four", mp_release_only, 2, 0xf},
    {"message passing, acquire alone: all four", mp_acquire_only, 2, 0xf},
    {"message passing: not the flag without the data", mp, 2, 0xd},
    {"message passing, fences: not the flag without the data", mp_fences, 2, 0xd},
    {"two readers, acquire: they may disagree", iriw_acquire, 4, 0xffff},
    {"two readers, seq_cst: they agree", iriw_seq_cst, 4, 0xffff & ~(1u << 5)},
    {"a release sequence", release_sequence, 3, 0xd},
    {"one word: never back", coherence, 2, 0xd},
};

/* A test that the model has to find fault with. */
static bool must_fail(const char *name, void (*thread)(uint32_t))
{
    const struct model_test test = {.name = name,
                                    .nthreads = 2,
                                    .setup = clear,
                                    .thread = thread,
                                    .exhaustive = true,
                                    .must_fail = true};
    return model_run(&test, 0);
}

int main(void)
{
    bool good = true;
    for (size_t i = 0; i < sizeof litmus / sizeof litmus[0]; i++) {
        const struct model_test test = {.name = litmus[i].name,
                                        .nthreads = litmus[i].nthreads,
                                        .setup = clear,
                                        .thread = litmus[i].thread,
                                        .check = count,
                                        .exhaustive = true};
        outcomes = 0;
        good = model_run(&test, 0) && good;
        if (outcomes != litmus[i].all) {
            printf("not ok - %s: outcomes %#jx, expected %#jx\n", litmus[i].name,
                   (uintmax_t)outcomes, (uintmax_t)litmus[i].all);
            good = false;
        }
    }
    const struct model_test three = {.name = "a counter of three threads",
                                     .nthreads = 3,
                                     .setup = clear,
                                     .thread = counter,
                                     .check = count_three,
                                     .exhaustive = true};
    const struct model_test ordered = {.name = "ordered plain accesses are no race",
                                       .nthreads = 2,
                                       .setup = clear,
                                       .thread = no_race,
                                       .exhaustive = true};
    good = model_run(&three, 0) && good;
    good = model_run(&ordered, 0) && good;
    good = must_fail("a race is found", race) && good;
    good = must_fail("a lost wake-up is found", lost_wake_up) && good;
    return !good;
}

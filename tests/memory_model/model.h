/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the threads of a test under a weak memory model, one at a time, and decides at each access
 * to shared memory which thread goes on and which of the permitted values a load returns. The code
 * under test is compiled with -fsanitize=thread, whose calls end here instead of in libtsan
 * (tsan_abi.c); memcpy, the clock, futexes and mmap are replaced when the test is linked (libc.c).
 *
 * The model is that of C11 without the rarest outcomes:
 * - Each aligned word of 8 bytes has a history of stores. A load returns any of them that is not
 *   older than what its thread knows of; acquire and release, fences, release sequences and
 *   read-modify-write operations hand on what a thread knows.
 * - The order of a word's history is that in which the stores were executed, and no load returns a
 *   value that is stored later (as "load buffering" on Arm may).
 * - Other accesses that are not ordered are races, and failures. Those to memory that model_racy
 *   marks (a record that is copied while it is written) count as relaxed instead.
 * - Time passes when a thread looks at the clock, and when all sleep. A store is visible to all
 *   threads after MODEL_VISIBLE_NS at the latest. A sleep of more than MODEL_SHORT_SLEEP_NS that
 *   ends only because time has passed is a lost wake-up, and a failure.
 */
#ifndef TESTS_MEMORY_MODEL_MODEL_H
#define TESTS_MEMORY_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_THREADS 4u
#define MODEL_SHORT_SLEEP_NS 1000000u
#define MODEL_VISIBLE_NS 100000u

struct model_test {
    const char *name;
    uint32_t nthreads;
    void (*setup)(void);           /* before the threads of each run; may be NULL */
    void (*thread)(uint32_t self); /* of each thread */
    void (*check)(void);           /* after the threads of each run; may be NULL */
    bool exhaustive;               /* every choice in turn; else random runs, */
    uint32_t runs_one_in;          /* and of those a part, if a run is long; 0: all */
    bool must_fail;                /* the test passes if a run fails */
    bool strict; /* every sleep that ends only because time has passed is a failure */
};

/* Prints a TAP line; false: a run failed, and its number is printed. RUN=NUMBER in the environment
 * repeats that run alone. */
bool model_run(const struct model_test *test, uint32_t runs);
/* The main function of a program with these tests: [RUNS], 3000 random runs of each by default. */
int model_main(int argc, char **argv, const struct model_test *tests, size_t n);

/* ---- for the threads of a test ---- */

/* Ends the run as a failure. */
void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define MODEL_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            model_fail("%s:%d: %s does not hold", __FILE__, __LINE__, #condition);                 \
    } while (0)

/* One of 0 .. n - 1. */
uint32_t model_choose(uint32_t n);
/* Another thread may go on. */
void model_yield(void);
uint32_t model_self(void);
/* Unordered accesses to this memory are no races. */
void model_racy(const void *at, size_t len);

/* ---- for tsan_abi.c and libc.c ---- */

enum model_order {
    MODEL_RELAXED,
    MODEL_CONSUME,
    MODEL_ACQUIRE,
    MODEL_RELEASE,
    MODEL_ACQ_REL,
    MODEL_SEQ_CST
};

uint64_t model_load(const volatile void *at, size_t size, enum model_order order);
void model_store(volatile void *at, size_t size, uint64_t value, enum model_order order);
/* Stores change(old, operand); returns old. */
uint64_t model_modify(volatile void *at, size_t size, uint64_t (*change)(uint64_t, uint64_t),
                      uint64_t operand, enum model_order order);
bool model_compare_exchange(volatile void *at, size_t size, uint64_t *expected, uint64_t desired,
                            enum model_order order, enum model_order failure);
void model_fence(enum model_order order);
/* An access that is not atomic is about to happen. */
void model_plain(const volatile void *at, size_t len, bool write);
void model_copy(void *to, const void *from, size_t len);
void model_fill(void *to, int byte, size_t len);

uint64_t model_now_ns(void);
void model_pass(uint64_t ns);
/* Sleeps until model_wake of the same address, unless the word there is not `value` any more. */
void model_sleep(const volatile uint32_t *at, uint32_t value, uint64_t ns);
void model_wake(const volatile uint32_t *at);

#endif

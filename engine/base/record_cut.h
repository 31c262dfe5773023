/* SPDX-License-Identifier: Apache-2.0
 *
 * struct record_cut: what the threads of a rank are in, what they wait for, and what the rank has
 * sent, received and called, all of one instant. It is read twice: the words of the threads and a
 * survey of the process; then the rest; then words and survey again. Each store to the rest lies
 * between two changes of a word, so what was read between equal words is of one instant.
 *
 * - STILL: no word was odd or has changed. Threads that sleep in both surveys, and have not run in
 *   between, are ASLEEP; others outside of calls are ACTORs.
 * - MOVING: the rank goes on, or nothing is known. It has no threads here, and may do anything.
 * - ENDED: the process has ended, or no call follows. What it has counted stands.
 *
 * A cut needs no other one, nor a clock: however old, it can be compared with those of other ranks
 * (diagnose/proof.h). The bytes may hold anything; numbers in a cut are in range.
 */
#ifndef ENGINE_BASE_RECORD_CUT_H
#define ENGINE_BASE_RECORD_CUT_H

#include "base/arena.h"
#include "base/record_view.h"

/* ---- the survey of a process, by the caller ---- */

enum record_task_state {
    RECORD_TASK_RUNS,   /* or sleeps in what something else than a thread of the process may end */
    RECORD_TASK_SLEEPS, /* in FUTEX_WAIT without a time-out, on an address of this process alone */
    RECORD_TASK_TIMED,  /* the same with a time-out */
    RECORD_TASK_INERT   /* belongs to a library: it makes no call and wakes no thread */
};

struct record_task {
    uint32_t tid;
    enum record_task_state state;
    uint64_t slices; /* how often it has run: /proc/PID/task/TID/schedstat */
};

struct record_survey {
    const struct record_task *tasks;
    uint32_t ntasks;
    uint64_t caught; /* signals with a handler that some thread does not block; bit 0: signal 1 */
    bool children;   /* the process has children: SIGCHLD may come */
};

/* The signals of which a handler may let a thread go on: it may leave a call by longjmp, send a
 * message, or wake a thread, and any process may send its signal. The kernel raises synchronous
 * ones in the thread that causes them, and a blocked thread does not; SIGCHLD needs a child; those
 * between the standard and the real-time signals are of the C library, whose threads reach each
 * other by them. */
uint64_t record_cut_signals(const struct record_head *head, bool children);

/* Fills `out`, in the arena. False: the process cannot be read. */
typedef bool record_survey_fn(void *ctx, struct arena *arena, struct record_survey *out);

/* ---- a cut ---- */

enum record_cut_state { RECORD_CUT_MOVING, RECORD_CUT_STILL, RECORD_CUT_ENDED };

enum record_cut_role {
    RECORD_CUT_ACTOR,   /* may call, or wake another thread, at any time */
    RECORD_CUT_BLOCKED, /* in a call */
    RECORD_CUT_ASLEEP   /* until another thread of the process wakes it */
};

#define RECORD_CUT_NO_GROUP UINT32_MAX

/* The members of all groups of a rank, and what its v-forms need: 16 MiB, which fit a frame. */
enum { RECORD_CUT_MEMBERS = 1 << 22 };

/* An operation that a thread waits for, or an open receive. */
struct record_cut_op {
    enum record_request_state state; /* FREE: complete */
    uint8_t kind, flags, dtype, op;
    uint16_t thread; /* that has posted it */
    uint32_t group;  /* index of record_cut.groups, or NO_GROUP: nothing is known */
    int32_t peer;
    uint32_t tag;
    union {
        uint64_t number, order, post, takes; /* as in record_op */
    };
    uint64_t count, site;
    uint64_t message;      /* the number of a message in its group, for texts; 0: not known */
    const uint32_t *needs; /* v-forms: the world ranks that it expects data from */
    uint32_t nneeds;
};

struct record_cut_thread {
    enum record_cut_role role;
    enum record_mode mode;
    uint16_t number; /* 0: it has never called */
    uint32_t tid;
    uint32_t word; /* record_thread.word: it differs after each call */
    bool calls;    /* it may call, at its thread level; else it can only wake others */
    bool cut;      /* it also waits for requests that are not listed */
    uint32_t nops;
    const struct record_cut_op *ops;
    uint64_t since_ns, timeout_ns /* 0: none */, site;
};

struct record_cut_group {
    uint64_t id;
    char name[64];
    bool closed;     /* by this rank: it is satisfied with all that others wait for */
    bool unordered;  /* nothing is proven with its messages */
    uint64_t called; /* collectives begun */
    uint32_t nmembers, nremote;
    const uint32_t *members; /* world ranks, the remote ones last */
};

struct record_cut_channel {
    uint32_t group, peer, tag;
    bool folded;
    uint64_t sent, taken;
};

struct record_cut {
    enum record_cut_state state;
    uint32_t rank, epoch;
    uint32_t tap, lost; /* enum record_tap, enum record_lost */
    uint64_t forgotten; /* groups that the rank knew, and of which nothing is left */
    uint64_t takes;     /* messages received */
    struct record_cut_thread *threads;
    struct record_cut_group *groups;     /* by id, ascending */
    struct record_cut_channel *channels; /* by group, peer, folded and tag, ascending */
    struct record_cut_op *receives;      /* open ones, of requests and of blocked threads */
    uint32_t nthreads, ngroups, nchannels, nreceives;
};

/* Takes a cut of a live record, or, if the process has ended, of what is left of it; `survey` is
 * not called then. What `out` points to is in the arena. False: out of memory. */
bool record_cut_take(const struct record_view *v, bool ended, record_survey_fn *survey, void *ctx,
                     struct arena *arena, struct record_cut *out);

/* The group of this id; NULL: the rank has none. */
const struct record_cut_group *record_cut_group(const struct record_cut *cut, uint64_t id);

#endif

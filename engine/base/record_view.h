/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a record (record.h): live memory while the rank writes, a copy in a frame, a file of diag/.
 * The bytes may hold anything; no function reads past them, and what a function returns is in
 * range: numbers of enums are known, slots exist, strings are terminated, numbers of operations are
 * at most RECORD_NUMBER_MAX. Pure functions.
 *
 * All times are CLOCK_MONOTONIC of the host, in ns; 0: not yet. Before live times are read, the
 * agent calls record_calibrate.
 *
 *     for (uint64_t i = record_view_first(&v); i < record_view_end(&v); i++)
 *         if (record_view_op(&v, i, &op)) ...
 */
#ifndef ENGINE_BASE_RECORD_VIEW_H
#define ENGINE_BASE_RECORD_VIEW_H

#include "base/diag.h"
#include "base/record.h"

struct buf;

struct record_view {
    const unsigned char *bytes; /* borrowed */
    struct record_head head;    /* a copy, for what does not change */
    struct record_layout at;
};

/* What is in use of a group slot. */
struct record_view_group {
    uint32_t slot;
    bool open; /* else closed: its last state */
    char name[64], scope[64];
    uint32_t members, rank;
    bool messages; /* numbers count messages; there are no marks */
    enum collrun_check check;
    uint32_t generation;      /* of the slot: another group has another */
    uint64_t first;           /* operations before this index are of other groups */
    int status;               /* the first error of the group; 0: none */
    uint64_t started, done;   /* numbers; started > done: inside */
    uint64_t bytes, since_ns; /* moved so far; when `started` last grew */
    /* What operation `started` is, as in record_view_op. */
    uint8_t function;
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op op;
    int root_or_peer;
    uint64_t count;
};

struct record_view_mark {
    uint64_t number, signature, pairs, called_ns;
};

struct record_view_op {
    uint64_t index;
    uint32_t slot;
    bool is_current;     /* the slot's present group is its group; else that group is forgotten */
    uint32_t generation; /* of the slot's present group */
    uint64_t number;     /* if !is_current: its low 32 bits */
    enum record_state state;
    uint8_t function;       /* of MPI or c10d: enum mpi_function, and dtype and op are numbers of
                               base/mpi_names.h; 0: an operation of collrun */
    enum collrun_kind kind; /* or KIND_PROBE; of MPI also one of enum record_kind */
    enum collrun_dtype dtype;
    enum collrun_op op; /* or OP_USER */
    int root_or_peer;   /* -1: none; of a receive from any source, once it is done: the source */
    uint32_t tag;       /* messages; once a receive with any tag is done: the message's, if asked
                           for */
    uint64_t count;     /* v-forms: what this rank contributes */
    uint64_t called_ns, started_ns, ended_ns;
    uint64_t site;   /* address; 0: not known */
    uint32_t thread; /* its number in this rank */
    uint32_t tid;    /* the kernel's; 0: not known */
    uint32_t counts; /* for record_view_counts */
};

/* `bytes` must be aligned as malloc and mmap do it. On failure INVALID: "not a record of collrun",
 * "the record is cut: ...". */
int record_view_init(struct record_view *v, const void *bytes, size_t len, struct diag *d);

/* Slots are 0 to record_view_ngroups() - 1. False: the slot is not in use. */
uint32_t record_view_ngroups(const struct record_view *v);
bool record_view_group(const struct record_view *v, uint32_t slot, struct record_view_group *out);
/* The mark of a number of a group that record_view_group has returned. False: it was overwritten,
 * the operation has not begun, the slot has another group now, the rank has written into the mark
 * at random, or the record has no marks. Kept are the last RECORD_MARKS numbers, and the last
 * RECORD_MARKS multiples of RECORD_STEP. */
bool record_view_mark(const struct record_view *v, const struct record_view_group *g,
                      uint64_t number, struct record_view_mark *out);

/* The indices of the operations that the record has, oldest first. False: the operation was
 * overwritten, or is being written. */
uint64_t record_view_first(const struct record_view *v);
uint64_t record_view_end(const struct record_view *v);
bool record_view_op(const struct record_view *v, uint64_t index, struct record_view_op *out);
/* Bytes of one element; 0: not known. */
size_t record_view_op_size(const struct record_view_op *op);
/* The counts of a v-form, `nsent` and `nexpected` at most `most`: what this rank sends to each
 * member, and expects from each. Of allgatherv and reduce_scatterv the counts that all members
 * give; of gatherv and scatterv, of a member that is not the root, none. False: they are not kept
 * any more. */
struct record_view_counts {
    uint32_t nsent, nexpected;
    uint64_t *sent, *expected; /* room for `most` each; the caller's */
};
bool record_view_counts(const struct record_view *v, const struct record_view_op *op, uint32_t most,
                        struct record_view_counts *out);

/* ---- failures ---- */

/* So long after its last failed call, what a rank does is not a consequence of it. */
#define RECORD_VIEW_RECENT_NS UINT64_C(10000000000)

/* True if the thread has completed an operation since, or if `most_ns` have passed. Where no
 * operations are kept, one of any thread counts. */
bool record_view_is_past(const struct record_view *v, const struct record_moment *at,
                         uint64_t most_ns);

struct record_view_failure {
    int status;      /* 0: there is none */
    uint64_t number; /* 0: it is not about an operation */
    uint64_t site;   /* of the call; 0: not known, or in a frame */
    char group[64], text[512];
};

/* An exception that the program has not caught; false: there is none. */
struct record_view_exception {
    uint32_t line;
    char type[96], file[256], text[512], thread[64];
};
bool record_view_exception(const struct record_view *v, struct record_view_exception *out);

/* The last failed call (record_failure), unless it is past. */
void record_view_failure(const struct record_view *v, uint64_t most_ns,
                         struct record_view_failure *out);

/* The name of an operator of the caller, by the tag of an operation; `name` has room for
 * RECORD_VIEW_USER_OP bytes. False: it is not listed. */
enum { RECORD_VIEW_USER_OP = 60 };
bool record_view_user_op(const struct record_view *v, uint32_t hash, char *name);

struct record_view_mistake {
    enum record_mistake_kind kind; /* CALL or LEAK */
    uint32_t times;
    uint64_t site;
    char text[240];
};
/* False: there is none at this place, from 0, or it is being written. */
bool record_view_mistake(const struct record_view *v, uint32_t i, struct record_view_mistake *out);

/* The file that has the code at an address, and the offset that symbolizers take. `path` has room
 * for RECORD_VIEW_PATH bytes. */
enum { RECORD_VIEW_PATH = 232 };
bool record_view_module(const struct record_view *v, uint64_t address, char *path,
                        uint64_t *offset);

/* "train.py:88", of a call in Python; false: it is not one, or not known. `out` has room for
 * RECORD_VIEW_PATH bytes. */
bool record_view_python_site(const struct record_view *v, uint64_t site, char *out);

/* A line of the log of the rank (base/debug.h); back 0: the last one. `text` has room for
 * RECORD_VIEW_LINE bytes. False: there is none, or it is being written. */
enum { RECORD_VIEW_LINE = 248 };
bool record_view_line(const struct record_view *v, uint32_t back, char *text);

/* CLOCK_MONOTONIC of ticks. */
uint64_t record_view_ns(const struct record_view *v, uint64_t ticks);

struct record_view_part {
    uint32_t entries; /* at most so many of the latest operations */
    bool marks;
};
/* Appends a copy: the same format, cut to the slots in use and a part of the rest. Calibrates the
 * clock first. False: out of memory. */
bool record_view_save(struct record_head *live, size_t len, const struct record_view_part *part,
                      struct buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the threads of a rank are doing: the content of a STACKS frame (runner/agent/status.h).
 */
#ifndef RUNNER_DIAGNOSE_STACKS_H
#define RUNNER_DIAGNOSE_STACKS_H

#include "base/wire.h"

struct stacks_thread {
    uint32_t tid, use;       /* CPU use in 1/1000 of a CPU */
    const char *name, *call; /* "" call: it is in no system call, or not known */
    char state;
    const char **frames; /* the innermost first: "load_batch (data.c:88)" */
    uint32_t nframes;
};

struct stacks_site {
    uint64_t address;
    const char *place; /* "train (late.c:13)" */
};

struct stacks_call { /* a call whose place is asked for */
    uint32_t rank;
    uint64_t site; /* its return address in that rank */
};

struct rank_stacks {
    struct arena arena; /* owns all that follows */
    bool received;
    struct stacks_thread *threads;
    uint32_t nthreads;
    struct stacks_site *sites;
    uint32_t nsites;
    const char *why; /* there are no stacks; else "" */
};

/* Decodes the payload of a STACKS frame. False: malformed; `s->received` is then false. Characters
 * that do not print become '?'. */
bool stacks_read(struct rank_stacks *s, const struct wire_frame *f);
void stacks_fini(struct rank_stacks *s); /* safe on a zeroed one */

/* The thread that matters most, which is not the engine's: one that runs; else one with a frame in
 * the workload; else the first after that of main(), which waits for the workloads. `program`: the
 * rank is a program, whose first thread counts. NULL: none. */
const struct stacks_thread *stacks_main(const struct rank_stacks *s, bool program);
/* True if the thread is one of collrun or of a backend ("collrun/..."). */
bool stacks_is_engine(const struct stacks_thread *t);
/* True if reports show the thread with this index: neither the engine's nor, beside others, that of
 * main() of the engine. */
bool stacks_is_shown(const struct rank_stacks *s, uint32_t thread, bool program);
/* The innermost frame with file and line, such as "load_batch (data.c:88)"; NULL: none. */
const char *stacks_place(const struct stacks_thread *t);
/* True if the frame has file and line. */
bool stacks_has_line(const char *frame);
/* The place of a call with file and line, by its return address; NULL: not known. */
const char *stacks_site(const struct rank_stacks *s, uint64_t address);
/* "asleep in read(3) of /data/x", "running (99 % CPU)", "stopped by a signal". */
void stacks_describe(const struct stacks_thread *t, char *out, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The live status line. On a terminal, a job that takes longer than a second shows one line on
 * stderr with the number of ranks up, who waits for whom, the progress of each workload, and the
 * rates of each group.
 * The line is redrawn a few times a second, wiped before other output, and removed at the end. It
 * is never written with --quiet, with TERM=dumb, or if stderr is not a terminal; it is not drawn
 * while the terminal accepts no output (Ctrl-S).
 */
#ifndef RUNNER_REPORT_LIVE_H
#define RUNNER_REPORT_LIVE_H

#include "base/desc.h"
#include "base/loop.h"
#include "diagnose/ranks.h"
#include "report/console.h"

#include <stddef.h>

struct live_group {                                /* totals over all ranks */
    uint64_t operations, bytes;                    /* so far */
    uint64_t then_operations, then_bytes, then_ns; /* when the rates were computed */
    double operations_per_s, bytes_per_s;
    bool has_rates; /* the rates are known */
};

struct live_workload {      /* of one workload: the values of collrun_progress */
    uint64_t *done, *total; /* per rank */
    double at_first;        /* the sum when every rank had reported, since a workload may resume */
    uint64_t first_ns;      /* the time of at_first */
    char what[48];
};

struct live {
    struct loop *loop;
    const struct desc *desc;
    struct console *console;
    bool on, drawn;
    bool watched; /* `collrun top` shows the run: what the line would show is wanted */
    uint64_t begin_ns;
    const struct rank_state *ranks; /* desc->nranks: those that run are counted */
    struct live_group *groups;
    struct live_workload *workloads;
    char waits[256]; /* "3/4 wait in world#1042 for rank 1"; "": none */
    struct loop_timer timer;
    struct arena arena;
};

void live_init(struct live *l, struct loop *loop, const struct desc *desc,
               const struct rank_state *ranks, struct console *console, bool quiet);
void live_fini(struct live *l); /* wipes the line */
void live_wipe(struct live *l); /* before other output on the terminal */
/* One call of collrun_progress. */
struct live_step {
    uint32_t rank, workload;
    uint64_t done, total;
    const char *what;
};
void live_progress(struct live *l, uint64_t now, const struct live_step *step);
/* Takes the counts of a rank. The totals of a group are those of its most advanced rank. */
void live_snapshot(struct live *l, uint64_t now, const struct rank_snapshot *snapshot);
/* The wait that is shown, until the next call; "": none. */
void live_waits(struct live *l, const char *text);
/* How many ranks run: they have been started, have not exited, and their hosts are not lost. */
uint32_t live_up(const struct live *l);

/* Formats the line for a terminal of this width; public for tests. */
void live_format(struct live *l, uint64_t now, size_t width, char *out, size_t size);

/* ---- units ----
 *
 * Numbers as short texts for people, in the live line and the screen of `collrun top`.
 */

/* 1234567 -> "1.2 M" */
void units_scaled(char *out, size_t size, double v);
/* 200 -> "3m20s" */
void units_duration(char *out, size_t size, double seconds);

#endif

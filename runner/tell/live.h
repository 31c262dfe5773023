/* SPDX-License-Identifier: Apache-2.0
 *
 * The live line: on a terminal, a job that takes longer than a second shows one line on stderr that
 * says how many ranks are up, what each group does, and how far each workload is. It is redrawn a
 * few times a second, wiped before anything else is printed, and gone at the end. Not on a
 * terminal, with --quiet or TERM=dumb, nothing of it is ever written. A terminal that takes nothing
 * (Ctrl-S) is not waited for.
 */
#ifndef TELL_LIVE_H
#define TELL_LIVE_H

#include "base/desc.h"
#include "base/loop.h"
#include "tell/console.h"
#include "watch/seen.h"

struct live_group {                                /* totals over all ranks */
    uint64_t operations, bytes;                    /* so far */
    uint64_t then_operations, then_bytes, then_ns; /* when the rates were taken */
    double operations_per_s, bytes_per_s;
    bool rated; /* the rates are known */
};

struct live_work {          /* of one workload: sums over its ranks of what collrun_progress said */
    uint64_t *done, *total; /* per rank */
    double at_first;        /* the sum when each rank had spoken, for a workload may resume */
    uint64_t first_ns;      /* when that was */
    char what[48];
};

struct live {
    struct loop *loop;
    const struct desc *desc;
    struct console *console;
    bool on, drawn;
    uint64_t begin_ns;
    uint32_t up; /* ranks that run */
    struct live_group *groups;
    struct live_work *works;
    struct loop_timer timer;
    struct arena arena;
};

int live_init(struct live *l, struct loop *loop, const struct desc *desc, struct console *console,
              bool quiet);
void live_fini(struct live *l); /* wipes the line */
void live_wipe(struct live *l); /* before something else is printed on the terminal */
void live_progress(struct live *l, uint64_t now, uint32_t rank, uint32_t workload, uint64_t done,
                   uint64_t total, const char *what);
/* What a rank has done in its groups so far. A group's totals are those of its foremost rank. */
void live_seen(struct live *l, uint64_t now, const struct seen *seen);

/* The line as it would be shown now on a terminal that is `width` wide; for tests. */
void live_format(struct live *l, uint64_t now, size_t width, char *out, size_t size);

#endif

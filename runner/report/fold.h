/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal lines of several ranks, shown once: `logging.console.fold`. A line waits until all ranks
 * have written it or a later one, and for FOLD_WINDOW_NS at most; equal lines of other ranks join
 * it.
 * - The lines that a rank writes to one stream keep their order: it joins only lines behind its
 *   last one there. Between stdout and stderr there is no order, since they come through two pipes.
 * - Lines are shown in the order in which their first rank wrote them, so a line that is complete
 *   is held up by no line that another rank may still join.
 * - What waits is bounded by FOLD_LINES_MAX and FOLD_BYTES_MAX: beyond them the oldest line is
 *   shown before its time.
 * - No I/O and no clock: the caller passes the time, and gets each line through `show`.
 */
#ifndef RUNNER_REPORT_FOLD_H
#define RUNNER_REPORT_FOLD_H

#include "base/desc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOLD_WINDOW_NS 100000000ull
enum { FOLD_LINES_MAX = 4096, FOLD_BYTES_MAX = 1 << 20, FOLD_FILTER = 8192 };

struct fold_line {
    uint8_t stream;       /* 1 or 2 */
    uint64_t realtime_ns; /* of the first rank */
    const char *text;
    size_t len;
};

/* `ranks` wrote this line; ascending, n >= 1. */
typedef void fold_show_fn(void *ctx, const struct fold_line *line, const uint32_t *ranks,
                          uint32_t n);

struct fold_entry;
struct fold_rank {
    uint64_t last[2]; /* the number of its last line of each stream; 0: none */
    bool left;        /* no line waits for it */
};

/* Lines have numbers, from 1. Those that wait are first..next-1; number i is in slot
 * i % FOLD_LINES_MAX. */
struct fold {
    fold_show_fn *show;
    void *ctx;
    uint32_t nranks, nleft;
    struct fold_rank *ranks;
    struct fold_entry **entries;
    uint64_t *hashes;             /* of the entries */
    uint16_t filter[FOLD_FILTER]; /* how many entries have these low bits of their hash */
    uint64_t first, next;
    size_t bytes; /* of the texts that wait */
    uint32_t *list;
};

struct fold *fold_new(uint32_t nranks, fold_show_fn *show, void *ctx);
void fold_free(struct fold *f); /* what waits is not shown */
void fold_add(struct fold *f, uint32_t rank, const struct fold_line *line, uint64_t now_ns);
/* No line waits for this rank any longer. What it still writes may join others. */
void fold_leave(struct fold *f, uint32_t rank);
/* Shows what this rank has written, and all lines before that. */
void fold_flush_rank(struct fold *f, uint32_t rank);
void fold_flush(struct fold *f);
void fold_forget(struct fold *f); /* drops what waits */
/* Shows the lines whose time is up. */
void fold_expire(struct fold *f, uint64_t now_ns);
uint64_t fold_due_ns(const struct fold *f); /* when fold_expire is to be called; 0: nothing waits */

/* ---- label ----
 *
 * The text before each line that ranks print, made of the template `logging.console.label`.
 * - Of one rank, its values: "[3]".
 * - Of several ranks that printed one line (report/fold.h), their sets: "[0-3,6]". {local_rank} is
 *   the set of their numbers on their hosts; {host} lists the hosts, or says how many they are if
 *   more than LABEL_HOSTS_MAX.
 */

enum { LABEL_HOSTS_MAX = 4 };

/* With a space at its end, unless the template gives no text. `ranks` are ascending, n >= 1. */
int label_make(const struct desc *desc, const char *template, const uint32_t *ranks, uint32_t n,
               struct arena *arena, const char **out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The track of a rank and a group: rows of operations that do not overlap, each a thread of the
 * trace.
 */
#ifndef RUNNER_TRACE_TRACK_H
#define RUNNER_TRACE_TRACK_H

#include <stdint.h>

enum { TRACE_TRACK_ROWS = 16 };

struct trace_track {
    uint32_t group, group_rank;
    uint32_t named; /* rows that have a name in the trace */
    uint64_t row_end[TRACE_TRACK_ROWS];
    /* The text that trace_track_put wrote last, and its tid. */
    char place[64];
    uint32_t place_tid, place_len;
};

/* The first row whose operations have all ended by `called`; the last one if there is none. */
uint32_t trace_track_row(struct trace_track *t, uint64_t called, uint64_t ended);

/* ,"pid":0,"tid":32 */
char *trace_track_place(char *at, uint32_t pid, uint32_t tid);
/* The same and ,"ts": for an operation of the track, which belongs to `rank`. */
char *trace_track_put(char *at, struct trace_track *t, uint32_t rank, uint32_t tid);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/track.h"

#include "trace/line.h"

#define PUT TRACE_LINE_LITERAL

uint32_t trace_track_row(struct trace_track *t, uint64_t called, uint64_t ended)
{
    uint32_t row = 0;
    while (row < TRACE_TRACK_ROWS - 1 && t->row_end[row] > called)
        row++;
    if (ended > t->row_end[row])
        t->row_end[row] = ended;
    return row;
}

char *trace_track_place(char *at, uint32_t pid, uint32_t tid)
{
    at = PUT(at, ",\"pid\":");
    at = trace_line_number(at, pid);
    at = PUT(at, ",\"tid\":");
    return trace_line_number(at, tid);
}

char *trace_track_put(char *at, struct trace_track *t, uint32_t rank, uint32_t tid)
{
    if (!t->place_len || t->place_tid != tid) {
        char *end = PUT(trace_track_place(t->place, rank, tid), ",\"ts\":");
        t->place_tid = tid;
        t->place_len = (uint32_t)(end - t->place);
    }
    return trace_line_put(at, t->place, t->place_len);
}

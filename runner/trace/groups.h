/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of a trace, one per scope (a formation of a group), in the order in which they were
 * first seen: their members, as far as these have been seen, and the skew of their collectives,
 * which is the time from the first to the last call of one.
 *
 * - Index 0 is the group of operations whose group is forgotten, and of all groups past
 *   TRACE_GROUPS_MOST: memory is bounded.
 * - Not every collective is looked at where there are more than about a thousand per second.
 */
#ifndef RUNNER_TRACE_GROUPS_H
#define RUNNER_TRACE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_GROUPS_MOST = 2048, TRACE_GROUPS_WINDOW = 256, TRACE_GROUPS_LISTED = 16 };

struct trace_call { /* of one collective */
    uint64_t number, first_ns, last_ns;
    uint32_t seen; /* members that have called it */
};

struct trace_group {
    char name[64], scope[64];
    uint32_t size;
    uint32_t *ranks;          /* owned: world ranks by group rank; UINT32_MAX: not seen yet */
    char *text;               /* owned: "[0, 1]", as soon as all members are known; NULL: not yet */
    struct trace_call *calls; /* owned: a window, by number / stride; NULL: no skew */
    uint64_t begin_ns, stride;
};

struct trace_groups {
    struct trace_group *items; /* owned */
    uint32_t n, capacity;
    uint32_t *table; /* owned: index + 1 by hash of the scope; 0: free */
};

void trace_groups_init(struct trace_groups *g);
void trace_groups_fini(struct trace_groups *g);

struct trace_member {
    const char *name, *scope;
    uint32_t size, group_rank, rank; /* rank: world rank */
};
/* The index of the member's group. */
uint32_t trace_groups_join(struct trace_groups *g, const struct trace_member *m);

/* A member has called collective `number` at `called_ns`. True: all members have; *out says when.
 */
bool trace_groups_call(struct trace_groups *g, uint32_t group, uint64_t number, uint64_t called_ns,
                       struct trace_call *out);

/* Text of a trace: parts of JSON, written into room that the caller has. Each function writes at
 * `at` and returns the end; it writes no terminator. */

char *trace_line_put(char *at, const char *text, size_t len);
/* A string literal. */
#define TRACE_LINE_LITERAL(at, text) trace_line_put(at, text, sizeof(text) - 1)
char *trace_line_number(char *at, uint64_t number); /* at most 20 bytes */
char *trace_line_signed(char *at, int64_t number);  /* at most 20 bytes */
char *trace_line_us(char *at, uint64_t ns);         /* microseconds, 3 decimals */
/* A string with its quotes: at most 2 + 6 * strlen(text) bytes. "?" replaces each byte that is not
 * part of a UTF-8 character. */
char *trace_line_string(char *at, const char *text);

#endif

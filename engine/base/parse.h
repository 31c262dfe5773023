/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsers for the texts of job.yaml: durations, sizes, numbers, rank sets. The runner uses them for
 * the file and the engine for the parameters of workloads, so both accept the same syntax. Each
 * parses the whole string, without surrounding blanks. On failure it sets the diag, with the text
 * quoted, returns the negative code, and leaves the output unchanged.
 */
#ifndef ENGINE_BASE_PARSE_H
#define ENGINE_BASE_PARSE_H

#include "base/arena.h"
#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* The YAML 1.2 core schema: [-+]?[0-9]+, 0o17, 0x1F; decimal floats, .inf, .nan; true True TRUE
 * false False FALSE. parse_float takes an integer, too. */
int parse_int(const char *s, int64_t *out, struct diag *d);
int parse_float(const char *s, double *out, struct diag *d);
int parse_bool(const char *s, bool *out, struct diag *d);

/* "500ms", "30s", "5m", "1h30m", "1.5s", "0"; units ns us ms s m h, largest first. Nanoseconds, at
 * most INT64_MAX. */
int parse_duration(const char *s, uint64_t *out, struct diag *d);
/* "64KiB", "1GiB", "1.5MiB", "2MB", "1000", "1000B"; KiB MiB GiB TiB are powers of 1024, kB MB GB
 * TB of 1000. Bytes, at most INT64_MAX. */
int parse_size(const char *s, uint64_t *out, struct diag *d);

/* Names separated by "|": "sum|prod|min". INVALID if there is none, or if one is empty or there
 * twice; also if they exceed this struct. */
struct parse_choices {
    const char *names[64]; /* in `text` */
    uint32_t n;
    char text[1024];
};
int parse_choices(const char *choices, struct parse_choices *out, struct diag *d);
/* The index of `s` among the choices. */
int parse_choice(const char *s, const char *choices, uint32_t *out, struct diag *d);

/* "1KiB, 2KiB": texts separated by commas, without the blanks around them; "" is an empty list.
 * INVALID if one is empty. */
struct parse_list {
    const char **items; /* in the arena */
    uint32_t n;
};
int parse_list(const char *s, struct arena *arena, struct parse_list *out, struct diag *d);

/* What may stand in a rank set beside numbers: roles, and `last`. */
struct parse_role { /* consecutive ranks */
    const char *name;
    uint32_t first, n;
};
struct parse_rank_names {
    uint32_t nranks; /* `last` is one less; 0: unknown, so `last` and roles are refused */
    const struct parse_role *roles;
    uint32_t nroles;
    bool unknown; /* what the job says about them is wrong, and was reported */
};

/* "0-3,8-15:2", not expanded: 0-3 is {0, 3, 1}; 8-15:2 is {8, 15, 2}; "all" is n = 0 and all =
 * true. With `names` (NULL: none) also "0-last", "worker" and "worker[0,2-last]", whose numbers
 * count from the first rank of the role. */
struct parse_range {
    uint32_t first, last, step;
    uint32_t at, len; /* its bytes in the text */
};
struct parse_ranks {
    bool all;
    struct parse_range *ranges;
    uint32_t n;
};
int parse_ranks(const char *s, const struct parse_rank_names *names, struct arena *arena,
                struct parse_ranks *out, struct diag *d);
/* True for letters, digits and _ without a digit in front, except the words of a rank set: all,
 * last, rest. */
bool parse_is_role_name(const char *s);
uint64_t parse_range_count(const struct parse_range *range); /* the number of ranks in it */

/* "512ms", "5m", "1h30m"; "64KiB", "1000": what parse_duration and parse_size read back. `out`
 * holds at least 32 bytes. */
const char *format_duration(uint64_t ns, char out[32]);
const char *format_size(uint64_t bytes, char out[32]);
/* "+0.3 ms", "-12.0 ms": by how much a clock is ahead. */
const char *format_offset(int64_t ns, char out[32]);

/* ---- lists of ranks ----
 *
 * A list of ranks in messages.
 */

/* Two ranks, uint32_t, in ascending order: for qsort and bsearch. */
int rank_compare(const void *a, const void *b);

/* "3, 5-7 and 9": ranks in ascending order as a list of ranges, truncated after a few of them. */
void rank_list_format(char *out, size_t size, const uint32_t *ranks, uint32_t n);

#endif

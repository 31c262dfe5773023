/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a job, the job file and each --set, so that a diag can show the line of its place. A
 * diag_loc names its text by `file`: the `name` here, or NULL for the job file, which is first.
 * Lines are counted as libyaml counts them.
 */
#ifndef RUNNER_SPEC_SOURCE_H
#define RUNNER_SPEC_SOURCE_H

#include "base/arena.h"
#include "base/diag.h"

struct source {
    const char *name; /* "job.yaml", "--set #1" */
    const char *text; /* NUL-terminated; may hold NUL bytes before its end */
    size_t len;
    uint32_t *lines; /* where each line begins; an empty last one counts */
    uint32_t nlines;
    struct diag_loc included; /* where another file includes it; line 0: nowhere */
    struct source *next;
};

enum { SOURCE_MAX = 4 << 20 };

/* Appends; `list` points at the head pointer. `text` is borrowed. */
struct source *source_add(struct source **list, struct arena *arena, const char *name,
                          const char *text, size_t len);
/* Reads a whole file of at most SOURCE_MAX bytes and appends it; `what` it is, for errors: "job
 * file". */
int source_read(struct source **list, struct arena *arena, const char *file, const char *what,
                struct source **out, struct diag *d);
/* "--set #1", "-n": no file. */
bool source_is_option(const char *name);
const struct source *source_find(const struct source *list, const char *name);

/* The bytes of a line (from 1) without its line break; NULL past the end. */
const char *source_line(const struct source *source, uint32_t line, size_t *len);

/* The bytes of a line from a column (from 1, in characters) on; NULL past the end. */
const char *source_at(const struct source *source, uint32_t line, uint32_t column, size_t *len);

/* A character that looks like a space, a quote or a hyphen, or like nothing, and is none of them
 * for YAML: "U+00A0, a no-break space". NULL: the text has none; else *at is its place, in
 * characters from 0. `name` has room for SOURCE_NAME bytes. */
enum { SOURCE_NAME = 64 };
const char *source_find_lookalike(const char *text, size_t len, uint32_t *at,
                                  char name[SOURCE_NAME]);

/* Reports the first byte that YAML does not allow: invalid UTF-8 or a control character. */
int source_check(const struct source *source, struct diag *d);

#endif

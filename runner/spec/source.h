/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts that a job was read from, the job file and each --set, kept so that a diag can show the
 * line it points at. A diag_loc names its text by `file`: the `name` here, the same pointer, or
 * NULL for the first one, the job file.
 */
#ifndef SPEC_SOURCE_H
#define SPEC_SOURCE_H

#include "base/arena.h"
#include "base/diag.h"

struct source {
    const char *name; /* "job.yaml", "--set #1" */
    const char *text; /* NUL-terminated; may hold NUL bytes before its end */
    size_t len;
    struct source *next;
};

/* Appends; `list` points at the head pointer. NULL when out of memory. */
struct source *source_add(struct source **list, struct arena *arena, const char *name,
                          const char *text, size_t len);
const struct source *source_find(const struct source *list, const char *name);

/* The bytes of a line (from 1) without its line break; NULL past the end. */
const char *source_line(const struct source *source, uint32_t line, size_t *len);

#endif

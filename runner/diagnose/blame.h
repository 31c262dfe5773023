/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a verdict share: lists of ranks, and text that is appended to its message.
 */
#ifndef RUNNER_DIAGNOSE_BLAME_H
#define RUNNER_DIAGNOSE_BLAME_H

#include "diagnose/evidence.h"

/* An empty list with room for all ranks; items is NULL if there is no memory. */
struct desc_ranks blame_new_list(const struct evidence *e, struct arena *arena);
bool blame_has(const struct desc_ranks *list, uint32_t rank);
/* The kind of the operation that an error message is about: "allreduce world#17: ...";
 * COLLRUN_KIND_COUNT: none. */
enum collrun_kind blame_kind_of(const char *text);
/* A leading "; " is left out where it would be the beginning. */
void blame_append(struct diag *d, const char *text);
/* Writes "rank 1" or "ranks 0 and 2-3"; returns `out`. */
const char *blame_ranks_text(const struct desc_ranks *ranks, char *out, size_t size);

#endif

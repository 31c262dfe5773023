/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges one job tree over another: mappings key by key, the later value wins; lists and scalars
 * are replaced; null removes. The merge is associative, so a file that includes two others gives
 * the same job as one that includes their merge.
 */
#ifndef RUNNER_SPEC_MERGE_H
#define RUNNER_SPEC_MERGE_H

#include "spec/node.h"
#include "spec/schema.h"

/* `over` over `base`, which may be NULL. Neither is changed. */
struct node *merge_over(const struct node *base, const struct node *over, struct arena *arena);

/* The result without what null has removed. A null below which nothing was is left to the reader
 * where it has a meaning: `NAME:` alone in a mapping of free names. */
struct node *merge_finish(const struct node *root, const struct schema_type *type,
                          struct arena *arena);

#endif

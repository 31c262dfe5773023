/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML document as a tree whose every value knows its place. Untyped: a scalar is its text, and
 * whoever expects a number makes it one. Aliases share what is below them, so nothing in a tree is
 * changed once it is read; node_copy makes a copy of one node that may be.
 */
#ifndef SPEC_NODE_H
#define SPEC_NODE_H

#include "base/arena.h"
#include "base/diag.h"

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct node_entry { /* of a map */
    const char *key;
    struct diag_loc loc; /* of the key */
    struct node *value;
};

struct node {
    enum node_kind kind;
    bool plain;       /* a scalar without quotes: `12` may be a number, `'12'` may not */
    bool filled;      /* ${env:...} was filled in: a number whatever its quotes, and never null */
    const char *text; /* of a scalar, ${env:...} filled in */
    uint32_t text_column;       /* where its first letter stands, if it stands in the file letter by
                                   letter; else 0 */
    struct node_entry *entries; /* of a map: keys differ, in file order */
    struct node **items;        /* of a list */
    uint32_t n;
    uint64_t weight; /* how many nodes it stands for, aliases followed */
    struct diag_loc loc;
};

bool node_is_null(const struct node *node); /* an empty value, ~ or null */
struct node *node_get(const struct node *map, const char *key);
struct node *node_copy(const struct node *node,
                       struct arena *arena); /* shallow, with entries or items of its own */
struct node *node_scalar(struct arena *arena, const char *text); /* plain, without a place */

/* For messages: "a list", "a mapping", "no value", `the text "abc"`, `the number 12`, in `out`. */
const char *node_name(const struct node *node, char *out, size_t size);

#endif

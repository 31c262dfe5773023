/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML document as a tree; every value has its place. The tree is untyped: a scalar is its text,
 * and the reader of a number parses it. Aliases share their nodes, so a tree is not modified once
 * it has been read; node_copy makes a copy of one node that may be modified.
 */
#ifndef RUNNER_SPEC_NODE_H
#define RUNNER_SPEC_NODE_H

#include "base/arena.h"
#include "base/diag.h"

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };
enum node_mark { /* of a null in a merge (merge.h) */
                 NODE_PLAIN,
                 NODE_REMOVED, /* it has removed what lay below */
                 NODE_ABSENT   /* nothing lay below */
};

struct node_entry { /* of a map */
    const char *key;
    struct diag_loc loc; /* of the key */
    struct node *value;
};

struct node {
    enum node_kind kind;
    bool plain;    /* a scalar without quotes: `12` may be a number, `'12'` may not */
    bool refused;  /* an error about its ${...} was reported: it has no value */
    bool deferred; /* it has a ${var:...} that is not filled in yet: `text` is as written */
    bool whole;    /* of a map in a merge: what lies below it is hidden */
    enum node_mark mark;
    const char *text;     /* of a scalar, ${...} filled in */
    const char *written;  /* `text` before ${env:...} was filled in; NULL: it had none, else it may
                             be a number even in quotes, and is never null */
    uint32_t text_column; /* column of its first character if the file contains the text literally;
                             else 0 */
    struct node_entry *entries; /* of a map: keys differ, in file order */
    struct node **items;        /* of a list */
    uint32_t n;
    uint64_t weight; /* its number of nodes, with aliases expanded */
    struct diag_loc loc;
};

bool node_is_null(const struct node *node); /* an empty value, ~ or null */
struct node *node_get(const struct node *map, const char *key);
/* The key of a mapping (NULL or another kind: none) that is most similar to `name`; NULL: none. */
const char *node_suggest(const struct node *map, const char *name, struct arena *arena);
struct node *node_copy(const struct node *node,
                       struct arena *arena); /* a shallow copy with separate entries or items */
struct node *node_scalar(struct arena *arena, const char *text); /* plain, without a place */

/* For messages: "a list", "a mapping", "no value", `the string "abc"`, `the number 12`, in `out`.
 */
const char *node_name(const struct node *node, char *out, size_t size);

#endif

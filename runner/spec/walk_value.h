/* SPDX-License-Identifier: Apache-2.0
 *
 * struct walk: one pass of the reader (walk.c) over the tree. It keeps the path of the current
 * value, with which every message begins, and reads the values that have no parts.
 */
#ifndef RUNNER_SPEC_WALK_VALUE_H
#define RUNNER_SPEC_WALK_VALUE_H

#include "base/arena.h"
#include "spec/diag_list.h"
#include "spec/job.h"
#include "spec/node.h"
#include "spec/schema.h"

struct walk {
    struct arena *arena;
    struct diag_list *diags;
    const struct node *secrets; /* the names of env.secrets; NULL: none */
    char path[192];
};

/* Adds the path before the text of an error, sets its place, and stores it. */
void walk_add_error(struct walk *w, struct diag_loc loc, struct diag *d);
void walk_error(struct walk *w, struct diag_loc loc, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "expected a list, found the string ..." */
void walk_wrong_kind(struct walk *w, const struct schema_type *type, const struct node *node);

/* True: the value of a secret, in a place where it would be shown. It has been reported. */
bool walk_refuse_secret(struct walk *w, const struct schema_type *type, const struct node *node);

/* Each returns the length for walk_leave. */
size_t walk_enter_key(struct walk *w, const char *key);
size_t walk_enter_item(struct walk *w, uint32_t index);
void walk_leave(struct walk *w, size_t len);

/* *out is unchanged if the value is wrong; a rank set that is wrong is marked as refused. */
void walk_read_text(struct walk *w, const struct schema_type *type, const struct node *node,
                    struct job_str *out);
void walk_read_number(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_num *out);
void walk_read_choice(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_num *out);
void walk_read_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
                     struct job_ranks *out);

#endif

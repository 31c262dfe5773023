/* SPDX-License-Identifier: Apache-2.0
 *
 * The errors of one reading, so that all of them are reported at once. Adding never fails: errors
 * beyond the limit are counted.
 */
#ifndef RUNNER_SPEC_DIAG_LIST_H
#define RUNNER_SPEC_DIAG_LIST_H

#include "base/diag.h"

#include <stdbool.h>

struct diag_list {
    struct diag *items;
    uint32_t n, capacity;
    uint32_t dropped;  /* errors that were only counted */
    uint32_t warnings; /* among the items */
};

void diag_list_init(struct diag_list *list);
void diag_list_fini(struct diag_list *list);
void diag_list_add(struct diag_list *list, const struct diag *d);
/* A warning: printed as one, and not counted as an error. */
void diag_list_warn(struct diag_list *list, struct diag *d);
uint32_t diag_list_count(const struct diag_list *list); /* of errors, kept and dropped */
void diag_list_sort(struct diag_list *list); /* by place; those without one last; stable */

#endif

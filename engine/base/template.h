/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates: texts with {rank} {local_rank} {host} {run_id} {attempt}, in env.set, logging.dir,
 * console labels and string parameters. `{{` and `}}` are literal braces. Any other name in braces,
 * and an unpaired brace, is an error.
 */
#ifndef ENGINE_BASE_TEMPLATE_H
#define ENGINE_BASE_TEMPLATE_H

#include "base/arena.h"
#include "base/diag.h"

enum template_name {
    TEMPLATE_RANK = 1u << 0,
    TEMPLATE_LOCAL_RANK = 1u << 1,
    TEMPLATE_HOST = 1u << 2,
    TEMPLATE_RUN_ID = 1u << 3,
    TEMPLATE_ATTEMPT = 1u << 4,
    TEMPLATE_ALL = (1u << 5) - 1
};

struct template_values {
    uint32_t rank, local_rank, attempt;
    const char *host, *run_id;
    const char *ranks, *local_ranks; /* in place of the numbers; NULL: these */
};

/* OK if the text is a template that uses only names of the set `allowed`. */
int template_check(const char *text, unsigned allowed, struct diag *d);
/* The template that stands for the text: braces are doubled. NULL: out of memory. */
const char *template_literal(const char *text, struct arena *arena);
int template_expand(const char *text, const struct template_values *values, struct arena *arena,
                    const char **out, struct diag *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The only code that prints a diag. With a place, as a compiler would:
 *
 *   job.yaml:14:14: error: groups.dp.backend: no backend named "nccll"
 *      14 |     backend: nccll
 *         |              ^~~~~
 *   hint: did you mean "nccl"? known here: gloo, nccl, shm
 *
 * A second place follows as a `note:` in the same form. A diag without a place is printed as
 * "collrun: error: ...".
 */
#ifndef RUNNER_REPORT_REPORT_H
#define RUNNER_REPORT_REPORT_H

#include "base/diag.h"
#include "spec/diag_list.h"
#include "spec/job.h"
#include "spec/source.h"

#include <stdio.h>

struct report {
    FILE *out;
    bool color;
    const struct source *sources;   /* for quoting lines; may be NULL */
    const struct job_strs *secrets; /* variables whose values are not shown; NULL: none */
};

/* Uses colour if `out` is a terminal, without `no_color`, NO_COLOR and TERM=dumb. */
void report_init(struct report *report, FILE *out, bool no_color, const struct source *sources);

/* Values of secrets become ${env:NAME}. */
void report_diag(const struct report *report, const struct diag *d);
/* A line "collrun: TEXT", with the same care. */
void report_line(const struct report *report, const char *text);
/* A text that ranks, hosts or files contain must not control the terminal: "?" replaces what
 * utf8_shown_len refuses, except for newlines and tabs. */
void report_put_text(FILE *out, const char *text, size_t len);

enum { REPORT_MAX = 20 };
/* Sorted by place, at most REPORT_MAX of them, then "... and 3 more errors". Sorts the list. */
void report_diags(const struct report *report, struct diag_list *diags);

#endif

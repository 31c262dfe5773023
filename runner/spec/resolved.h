/* SPDX-License-Identifier: Apache-2.0
 *
 * A job as it was run, written as a job file again: --set applied, ${env:...} filled in, defaults
 * spelt out, relative paths made absolute. Reading it gives the same job, wherever it lies.
 */
#ifndef SPEC_RESOLVED_H
#define SPEC_RESOLVED_H

#include "spec/job.h"

#include <stdio.h>

/* 0, or a negative code (no memory). */
int resolved_write(const struct job *job, FILE *out);

#endif

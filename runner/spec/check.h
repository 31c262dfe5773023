/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold between keys of one job, as far as no plugin has to be asked. Each contradiction
 * is reported with both places.
 */
#ifndef SPEC_CHECK_H
#define SPEC_CHECK_H

#include "spec/job.h"

void job_check(const struct job *job, struct arena *arena, struct diag_list *diags);

#endif

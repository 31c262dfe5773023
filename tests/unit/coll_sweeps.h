/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps over coll_cases.h for every backend: all kinds at given sizes in every variant, all types
 * and operators, ranks late at random, several groups in turn. Kinds that the backend's table does
 * not list, which the engine emulates, are left out.
 */
#ifndef TESTS_UNIT_COLL_SWEEPS_H
#define TESTS_UNIT_COLL_SWEEPS_H

#include "coll_cases.h"

#define COLL_NKINDS 14
extern const enum collrun_kind coll_kinds[COLL_NKINDS];

/* Bodies of a rank for harness_run; they return 0, or 1 after harness_fail. */

/* coll_case_run, for what the backend's table lists; 0 for what it does not. */
int coll_run_native(struct harness_rank *r, struct harness_group *g, const struct coll_case *c);
/* Every kind and count, plain and in place, aligned and not, with `heap` also in the backend's
 * memory; types, operators and roots vary from case to case. */
int coll_every_variant(struct harness_rank *r, const size_t *counts, size_t ncounts, bool heap);
/* Every valid pair of type and operator, for each reduction, with 5 and with `many` elements. */
int coll_every_type(struct harness_rank *r, size_t many);
/* Random collectives in the same order on all ranks, each rank late at random. */
int coll_out_of_step(struct harness_rank *r, uint32_t turns, bool heap);
/* Every kind `turns` times, with a few elements and sometimes `many`. */
int coll_all_small(struct harness_rank *r, uint32_t turns, size_t many);
/* All kinds on these groups of the same nranks ranks, in turn. */
int coll_across_groups(struct harness_rank *r, struct harness_group **groups, uint32_t ngroups,
                       uint32_t nranks, uint32_t turns);

#endif

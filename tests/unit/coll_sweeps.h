/* SPDX-License-Identifier: Apache-2.0
 *
 * What every backend's test does with coll_cases.h: all kinds at given sizes in every variant, all
 * types and operators, ranks that fall behind at random, several groups in turn. What a backend's
 * own table leaves to the engine is left out.
 */
#ifndef TESTS_UNIT_COLL_SWEEPS_H
#define TESTS_UNIT_COLL_SWEEPS_H

#include "coll_cases.h"

#define COLL_NKINDS 14
extern const enum collrun_kind coll_kinds[COLL_NKINDS];

/* Bodies of a rank, for rig_run: 0, or 1 after rig_fail. */

/* Every kind and count, plain and in place, aligned and not, with `heap` also in the backend's own
 * memory; types, operators and roots take turns. */
int coll_every_variant(struct rig_rank *r, const size_t *counts, size_t ncounts, bool heap);
/* Every type and operator that go together, for each reduction, with 5 and with `many` elements. */
int coll_every_type(struct rig_rank *r, size_t many);
/* Random collectives in the same order everywhere, while ranks fall behind at random. */
int coll_out_of_step(struct rig_rank *r, uint32_t turns, bool heap);
/* Every kind `turns` times, with a few elements and sometimes `many`. */
int coll_all_small(struct rig_rank *r, uint32_t turns, size_t many);
/* All kinds on these groups of the same nranks ranks, in turn. */
int coll_across_groups(struct rig_rank *r, struct rig_group **groups, uint32_t ngroups,
                       uint32_t nranks, uint32_t turns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct match, lent to backends: see struct collrun_match_ops in <collrun/backend.h>.
 */
#ifndef ENGINE_CORE_MATCH_OPS_H
#define ENGINE_CORE_MATCH_OPS_H

#include <collrun/backend.h>

extern const struct collrun_match_ops match_ops;

#endif

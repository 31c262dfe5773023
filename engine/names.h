/* SPDX-License-Identifier: Apache-2.0
 *
 * The words for kinds, dtypes and operators are the runner's, too: see base/names.h.
 */
#ifndef ENGINE_NAMES_H
#define ENGINE_NAMES_H

#include "base/names.h"

#endif

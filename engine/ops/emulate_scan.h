/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated scan and exscan, with an operator of types.h or of the caller.
 */
#ifndef ENGINE_OPS_EMULATE_SCAN_H
#define ENGINE_OPS_EMULATE_SCAN_H

#include "ops/emulate_rounds.h"

/* On failure the cause is stored. */
int emulate_scan(struct emulation *e);

#endif

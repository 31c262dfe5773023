/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated reductions of processes with several devices: one call for each device of this process.
 * Scans, and any reduction with an operator of the caller.
 */
#ifndef ENGINE_OPS_EMULATE_DEVICES_H
#define ENGINE_OPS_EMULATE_DEVICES_H

#include "ops/emulate_rounds.h"

/* e->call is the first of e->ndevices calls. On failure the cause is stored. */
int emulate_devices(struct emulation *e);

#endif

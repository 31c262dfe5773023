/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-engine --devices PATH: prints the devices of this machine that belong to the kind of
 * memory which a backend declares, as base/devices.h defines the lines. Runner and agent start it,
 * since they never load a backend.
 */
#ifndef ENGINE_RANK_DEVICES_H
#define ENGINE_RANK_DEVICES_H

#include <stdio.h>

/* Returns the exit code. A backend that cannot be loaded is a `reason` in the output. */
int devices_print(const char *path, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated collectives that only move data. Each returns a status; on failure the cause is stored.
 */
#ifndef ENGINE_OPS_EMULATE_MOVE_H
#define ENGINE_OPS_EMULATE_MOVE_H

#include "ops/emulate_rounds.h"

int emulate_barrier(struct emulation *e);
int emulate_broadcast(struct emulation *e);
/* Each rank has one block; all ranks get all blocks. */
int emulate_all_gather(struct emulation *e, const void *mine, const struct cut *into);
int emulate_gather(struct emulation *e, const void *mine, size_t len, const struct cut *into,
                   uint32_t root);
int emulate_scatter(struct emulation *e, const struct cut *from, void *mine, size_t len,
                    uint32_t root);
int emulate_all_to_all(struct emulation *e, struct cut from, const struct cut *into);

#endif

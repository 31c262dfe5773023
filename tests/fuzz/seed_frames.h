/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of the control protocol for fuzz targets to start from, and the job that they are about:
 * two hosts, rank 0 and 1 on the first one, rank 2 on the second one; one group "world". Rank 2
 * runs a command, the others a plugin.
 */
#ifndef TESTS_FUZZ_SEED_FRAMES_H
#define TESTS_FUZZ_SEED_FRAMES_H

#include "base/desc.h"
#include "base/wire.h"

enum { SEED_HOSTS = 2, SEED_RANKS = 3 };

/* The same memory at every call. */
struct desc *seed_desc(void);

/* Appends a frame, or a payload, of parts with a blank between them: "4=7 s=world" is a number of 4
 * bytes and a string. 1, 2, 4, 8: numbers, of which @ is `rank` and ^ the next one; s: a string; d:
 * a diag; t: text as it is. */
void seed_frame(struct buf *out, uint16_t type, uint32_t rank, const char *parts);
void seed_parts(struct buf *out, uint32_t rank, const char *parts);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A small record with something of everything, for fuzz targets to start from.
 */
#ifndef TESTS_FUZZ_SEED_RECORD_H
#define TESTS_FUZZ_SEED_RECORD_H

#include "base/buf.h"

#include <stdint.h>

/* Appends the record of a rank of two: `wrong`: its last collective differs from that of its peer.
 * Ends the process without memory. */
void seed_record(uint32_t rank, bool wrong, struct buf *out);
/* Writes a file; ends the process if it cannot. */
void seed_write(const char *folder, const char *name, const void *bytes, size_t len);

#endif

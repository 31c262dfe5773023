/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the operations that the flight records of a failed run hold (diag/rank-N.record): the last
 * ones of each rank. Times are those of each host's clock.
 */
#ifndef RUNNER_HTML_FLIGHT_RECORDS_H
#define RUNNER_HTML_FLIGHT_RECORDS_H

#include "diagnose/evidence.h"
#include "html/ops.h"

/* Returns how many operations the records no longer have. */
uint64_t flight_records_read(const struct evidence *e, struct ops *ops);

#endif

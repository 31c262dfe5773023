/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers as short texts for people, in the live line and the screen of `collrun top`.
 */
#ifndef RUNNER_REPORT_UNITS_H
#define RUNNER_REPORT_UNITS_H

#include <stddef.h>

/* 1234567 -> "1.2 M" */
void units_scaled(char *out, size_t size, double v);
/* 200 -> "3m20s" */
void units_duration(char *out, size_t size, double seconds);
#endif

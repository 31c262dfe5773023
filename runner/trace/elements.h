/* SPDX-License-Identifier: Apache-2.0
 *
 * How many elements an operation reads and writes on one rank, of a group of `size`; `root`: the
 * rank is the root of the operation. Of v-forms only the number that is read is known.
 */
#ifndef RUNNER_TRACE_ELEMENTS_H
#define RUNNER_TRACE_ELEMENTS_H

#include "base/trace_op.h"

#include <stdbool.h>

uint64_t trace_elements_in(const struct trace_op *op, uint32_t size, bool root);
uint64_t trace_elements_out(const struct trace_op *op, uint32_t size, bool root);

#endif

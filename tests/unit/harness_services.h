/* SPDX-License-Identifier: Apache-2.0
 *
 * The services that the harness lends to a backend: the engine's, except for those that the harness
 * records (errors) or replaces (log, options, kinds of memory).
 */
#ifndef TESTS_UNIT_HARNESS_SERVICES_H
#define TESTS_UNIT_HARNESS_SERVICES_H

#include "backend_harness.h"

/* They speak for `owner`, which must outlive them. */
struct collrun_services harness_services(struct harness_rank *owner);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of collectives that every backend on backends/net is tested with, as cmocka tests.
 */
#ifndef TESTS_UNIT_NET_FAILURES_H
#define TESTS_UNIT_NET_FAILURES_H

/* Runs them. Kinds that the backend lacks are left out. Returns the number of failures. */
int net_failures_run(const char *backend);

#endif

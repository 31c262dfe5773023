/* SPDX-License-Identifier: Apache-2.0
 *
 * What the table needs of this folder's C++: the release of Gloo that it is built for, and the one
 * function, which no exception leaves.
 */
#ifndef BACKENDS_GLOO_COLLECTIVE_H
#define BACKENDS_GLOO_COLLECTIVE_H

/* Debian 12 has the snapshot of 2022-05, Debian 13 that of 2023-12, sid that of 2025-09. All three
 * call themselves 0.5.0 and libgloo.so.0, so files tell the headers apart, and functions the
 * libraries. The classes that transport.cc derives from differ. */
#if __has_include(<gloo/transport/remote_key.h>)
#define GLOO_YEAR 2025
#elif __has_include(<gloo/common/store.h>)
#define GLOO_YEAR 2023
#else
#define GLOO_YEAR 2022
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct net_op;

/* Runs Gloo's algorithm for the call of the operation, as net_run asks for it (net/backend.h).
 * Returns the status; a failure is stored, and the group has failed. */
int gloo_collective(void *ctx, struct net_op *op);

#ifdef __cplusplus
}
#endif
#endif

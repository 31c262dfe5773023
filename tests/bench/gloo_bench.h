/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo as its own users call it (gloo_bench_raw.cc), for gloo_bench.c to time beside the backend:
 * float32 sums over all ranks, Gloo's default algorithms, one TCP device on the loopback.
 */
#ifndef TESTS_BENCH_GLOO_BENCH_H
#define TESTS_BENCH_GLOO_BENCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAW_ADDRESS_BYTES 192

struct raw_gloo;

/* addresses: one of RAW_ADDRESS_BYTES for each peer, to be given to that peer. */
struct raw_gloo *raw_gloo_new(int rank, int nranks, char *addresses);
/* addresses: what each peer has for this rank. */
void raw_gloo_connect(struct raw_gloo *g, const char *addresses);
/* `name` as in gloo_bench.c; nonzero if this Gloo has no such operation for this many ranks. */
int raw_gloo_prepare(struct raw_gloo *g, const char *name, float *send, float *recv, size_t count);
void raw_gloo_run(struct raw_gloo *g);
void raw_gloo_free(struct raw_gloo *g);

#ifdef __cplusplus
}
#endif
#endif

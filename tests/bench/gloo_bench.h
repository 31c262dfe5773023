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
/* `name` as in gloo_bench.c, whose blocks have `count` elements; in v-forms those of uneven_count.
 * The root is rank 0. */
void raw_gloo_prepare(struct raw_gloo *g, const char *name, float *send, float *recv, size_t count);
void raw_gloo_run(struct raw_gloo *g);
void raw_gloo_free(struct raw_gloo *g);

/* Half a block more for every other rank, and half a block less for the rest. */
static inline size_t uneven_count(size_t count, size_t i)
{
    return i % 2 == 0 ? count - count / 2 : count + count / 2;
}

#ifdef __cplusplus
}
#endif
#endif

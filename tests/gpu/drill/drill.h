/* SPDX-License-Identifier: Apache-2.0
 *
 * What the drills share: who this rank is, values whose sums are known, and the drills themselves,
 * one file for each sort.
 */
#ifndef GPU_DRILL_H
#define GPU_DRILL_H

#include "cuda.h"

#include <collrun/workload.h>
#include <stdint.h>

enum { COUNT = 5000, MOST = 16, BALLAST = 16 << 20 };

struct drill {
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    int rank, size, devices, places; /* places: ranks of the communicator */
    int failures;
};

/* ---- values.c ---- */
void wrong(struct drill *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ok(struct drill *d, int status, const char *what);
/* Element i of what a place contributes; `salt` tells one use from another. */
int32_t given(int place, size_t i, int salt);
int32_t *host_values(int place, size_t count, int salt); /* the caller's to free */
void *device_values(int device, int place, size_t count, int salt);
int32_t sum_at(int places, size_t i, int salt);
void expect_sum(struct drill *d, int device, const void *ptr, int salt, const char *what);
void expect_given(struct drill *d, int device, const void *ptr, size_t count, int place, int salt,
                  const char *what);

/* ---- calls.c ---- */
struct collrun_call allreduce_call(const void *send, void *recv);
struct collrun_call message_call(enum collrun_kind kind, void *buffer, int device, int peer);
int run_all(struct drill *d, struct collrun_call *calls, int n); /* as one request, waited for */
int place_of(const struct drill *d, int rank, int device);
void pause_ms(long ms);

/* ---- streams.c ---- */
void drill_streams(struct drill *d);

/* ---- devices.c ---- */
void drill_devices(struct drill *d);
void drill_messages(struct drill *d);
void drill_memory(struct drill *d);

/* ---- messages.c ---- */
void drill_cross(struct drill *d);
void drill_deadlock(struct drill *d);
void drill_unmet(struct drill *d);

/* ---- order.c ---- */
void drill_overtake(struct drill *d);
void drill_walk(struct drill *d);
void drill_groups(struct drill *d);
void drill_threads(struct drill *d);
void drill_inverse(struct drill *d);
void drill_chains(struct drill *d);
void drill_forming(struct drill *d);

/* ---- host.c ---- */
void drill_staged(struct drill *d);
void drill_mixed(struct drill *d);

/* ---- failures.c ---- */
void drill_late(struct drill *d);
void drill_self(struct drill *d);
void drill_peer(struct drill *d);
void drill_mismatch(struct drill *d);
void drill_fault(struct drill *d);

#endif

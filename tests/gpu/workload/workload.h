/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cases share: the state of this rank, values with known sums, and the cases, one file per
 * topic.
 */
#ifndef GPU_WORKLOAD_H
#define GPU_WORKLOAD_H

#include "cuda.h"

#include <collrun/workload.h>
#include <stdint.h>

enum { COUNT = 5000, MAX_BLOCKS = 16, BALLAST = 16 << 20 };

struct gpu_test {
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    int rank, size, devices, comm_size; /* comm_size: communicator ranks */
    int failures;
};

/* ---- values.c ---- */
void case_failed(struct gpu_test *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ok(struct gpu_test *t, int status, const char *what);
/* Element i of what a communicator rank contributes; each use has its own `salt`. */
int32_t value_at(int comm_rank, size_t i, int salt);
int32_t *host_values(int comm_rank, size_t count, int salt); /* the caller frees it */
void *device_values(int device, int comm_rank, size_t count, int salt);
int32_t sum_at(int comm_size, size_t i, int salt);
void expect_sum(struct gpu_test *t, int device, const void *ptr, int salt, const char *what);
void expect_values(struct gpu_test *t, int device, const void *ptr, size_t count, int comm_rank,
                   int salt, const char *what);

/* ---- calls.c ---- */
struct collrun_call allreduce_call(const void *send, void *recv);
struct collrun_call message_call(enum collrun_kind kind, void *buffer, int device, int peer);
int run_all(struct gpu_test *t, struct collrun_call *calls, int n); /* one request; waits */
int comm_rank_of(const struct gpu_test *t, int rank, int device);
void pause_ms(long ms);

/* ---- streams.c ---- */
void gpu_streams(struct gpu_test *t);
void gpu_held_up(struct gpu_test *t);

/* ---- capture.c ---- */
void gpu_capture(struct gpu_test *t);

/* ---- devices.c ---- */
void gpu_devices(struct gpu_test *t);
void gpu_messages(struct gpu_test *t);
void gpu_memory(struct gpu_test *t);

/* ---- batches.c ---- */
void gpu_batches(struct gpu_test *t);

/* ---- communicators.c ---- */
void gpu_lean(struct gpu_test *t);
void gpu_first_use(struct gpu_test *t);
void gpu_left(struct gpu_test *t);
void gpu_broken(struct gpu_test *t);

/* ---- messages.c ---- */
void gpu_cross(struct gpu_test *t);
void gpu_posted(struct gpu_test *t);
void gpu_deadlock(struct gpu_test *t);
void gpu_unmatched(struct gpu_test *t);

/* ---- direct.c ---- */
void gpu_direct_flight(struct gpu_test *t);
void gpu_direct_behind(struct gpu_test *t);
void gpu_direct_pipeline(struct gpu_test *t);
void gpu_direct_exchange(struct gpu_test *t);
void gpu_direct_stopped(struct gpu_test *t);
void gpu_direct_count(struct gpu_test *t);
void gpu_direct_type(struct gpu_test *t);
void gpu_direct_cancel(struct gpu_test *t);
void gpu_direct_refused(struct gpu_test *t);
void gpu_direct_killed(struct gpu_test *t);
void gpu_direct_unmatched(struct gpu_test *t);
void gpu_direct_unformed(struct gpu_test *t);

/* ---- order.c ---- */
void gpu_overtake(struct gpu_test *t);
void gpu_late_sender(struct gpu_test *t);
void gpu_groups(struct gpu_test *t);
void gpu_threads(struct gpu_test *t);
void gpu_inverse(struct gpu_test *t);
void gpu_chains(struct gpu_test *t);
void gpu_forming(struct gpu_test *t);

/* ---- host.c ---- */
void gpu_staged(struct gpu_test *t);
void gpu_mixed(struct gpu_test *t);

/* ---- failures.c ---- */
void gpu_late(struct gpu_test *t);
void gpu_late_scan(struct gpu_test *t);
void gpu_self(struct gpu_test *t);
void gpu_peer(struct gpu_test *t);
void gpu_mismatch(struct gpu_test *t);
void gpu_fault(struct gpu_test *t);

#endif

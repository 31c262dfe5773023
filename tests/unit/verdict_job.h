/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of four ranks on one host, which run one workload, and endings of its ranks.
 */
#ifndef TESTS_UNIT_VERDICT_JOB_H
#define TESTS_UNIT_VERDICT_JOB_H

#include "diagnose/verdict.h"

#define EXIT(code) ((code) << 8)

static struct desc_host host = {.name = "here", .nranks = 4};
static struct desc_rank rank_places[4];
static uint32_t all_ranks[] = {0, 1, 2, 3};
static struct desc_workload workload = {.name = "train", .ranks = {all_ranks, 4}};
static const struct desc desc = {.hosts = &host,
                                 .nhosts = 1,
                                 .ranks = rank_places,
                                 .nranks = 4,
                                 .workloads = &workload,
                                 .nworkloads = 1};

#define FAILED_AT(t)                                                                               \
    .phase = PHASE_RUNNING, .first_failure_phase = PHASE_RUNNING, .end = RANK_EXITED,              \
    .first_failure_ns = (t), .workload = UINT32_MAX
#define FAILED(code_)                                                                              \
    .failed = FAILURE_REPORTED, .failed_phase = WIRE_PHASE_RUN,                                    \
    .failure = {.code = (code_), .text = "why"}
#define OF_WORKLOAD(t)                                                                             \
    .phase = PHASE_RUNNING, .first_failure_phase = PHASE_RUNNING, .end = RANK_EXITED,              \
    .first_failure_ns = (t), .workload = 0, .failed = FAILURE_REPORTED,                            \
    .failed_phase = WIRE_PHASE_RUN

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Agent and runner in one, inside a test: starts real collrun-engine processes on socketpairs,
 * plays the protocol of base/wire.h with them (the runner's own store behind it), and collects what
 * each rank says and how it ends. A job that passes its time limit is killed, and fake_run says so.
 *
 *     struct fake_job job;
 *     fake_init(&job, 4);
 *     fake_backend(&job, "msg", "msg.so");
 *     fake_group(&job, "world", 0, NULL, 0);
 *     fake_param(fake_workload(&job, "probe", "probe.so"), "do", "sum");
 *     assert_int_equal(fake_run(&job), 0);
 *     fake_fini(&job);
 */
#ifndef TESTS_UNIT_FAKE_AGENT_H
#define TESTS_UNIT_FAKE_AGENT_H

#include "base/desc.h"
#include "base/wire.h"

#include <sys/types.h>

enum { FAKE_RANKS = 8 };

struct fake_rank {
    pid_t pid;           /* 0: reaped */
    int control, output; /* -1: closed */
    struct buf in;
    bool attached, ready, done, idle, failed, ended;
    int exit_code; /* or 128 + signal */
    uint32_t failed_workload, failed_phase;
    char failed_group[64];
    uint64_t failed_number;
    struct diag failure;
    struct buf said;    /* LOG texts, one a line; always ends in NUL */
    struct buf printed; /* stdout and stderr; always ends in NUL */
    unsigned progress, metrics;
    double last_metric;
    char last_metric_name[64];
    double failed_s, ended_s; /* seconds after the job's start */
};

struct fake_job {
    struct arena arena;
    struct desc desc;
    struct desc_backend backends[4];
    struct desc_group groups[4];
    struct desc_workload workloads[4];
    struct fake_rank ranks[FAKE_RANKS];
    double limit_s;                 /* default 30 */
    bool no_abort;                  /* do not tell the others when a rank fails */
    uint32_t odd_rank;              /* with odd: which rank */
    void (*odd)(struct desc *desc); /* changes a copy of the description, for that rank alone */
    double after_go_s;              /* with after_go: when */
    void (*after_go)(struct fake_job *job);
    struct rdv *rdv;
    struct fake_segment *segments;
    uint32_t scopes_left; /* after the job: scopes that somebody has not left */
};

void fake_init(struct fake_job *job, uint32_t nranks);
void fake_fini(struct fake_job *job);

/* Paths without a slash lie in the test plugins' folder. */
struct desc_backend *fake_backend(struct fake_job *job, const char *name, const char *file);
/* ranks NULL = all */
struct desc_group *fake_group(struct fake_job *job, const char *name, uint32_t backend,
                              const uint32_t *ranks, uint32_t n);
struct desc_workload *fake_workload(struct fake_job *job, const char *name, const char *file);
void fake_option(struct fake_job *job, struct desc_kvs *kvs, const char *key, const char *value);
const char *fake_path(struct fake_job *job, const char *file);
const char *fake_engine(struct fake_job *job); /* the path of collrun-engine */

/* One group "world" of all ranks on the test backend, one workload "probe" that does `what`.
 * `starts`: the variant of the backend that has `start` of its own. */
struct desc_workload *fake_simple(struct fake_job *job, uint32_t nranks, bool starts,
                                  const char *what);

/* Runs the job. 0 = every rank ended well; 1 = some did not; 2 = it had to be killed. */
int fake_run(struct fake_job *job);

/* Starts one engine whose agent says these bytes and hangs up; returns its exit code, and what it
 * printed. */
int fake_stammer(const void *bytes, size_t len, char *printed, size_t size);

/* For after_go. */
void fake_abort(struct fake_job *job, int status, uint32_t culprit, const char *sentence);
void fake_hang_up(struct fake_job *job, uint32_t rank);
void fake_kill(struct fake_job *job, uint32_t rank);
void fake_babble(struct fake_job *job, uint32_t rank, uint16_t type); /* a frame out of place */

#endif

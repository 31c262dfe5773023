/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated agent and runner. It starts real collrun-engine processes on socketpairs, sends and
 * receives the frames of base/wire.h (with the runner's rendezvous store), and records what each
 * rank sends, prints and how it exits. A job that passes its time limit is killed; fake_run reports
 * that.
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
    enum wire_subject failed_subject;
    struct diag failure;
    struct record_view_failure why; /* of FAILED */
    struct buf logged;              /* texts of LOG frames, one per line, NUL-terminated */
    struct buf printed;             /* stdout and stderr, NUL-terminated */
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
    double limit_s;      /* default 120 */
    const char *program; /* NULL: collrun-engine; else a program that calls collrun_init */
    const char *program_argument;
    bool early_go;                          /* behind WELCOME, as the runner does for programs */
    bool no_abort;                          /* no ABORT to the others when a rank fails */
    uint32_t changed_rank;                  /* the rank whose description change_desc changes */
    void (*change_desc)(struct desc *desc); /* NULL: all ranks get the same one */
    double after_go_s;                      /* when after_go is called, after the GO */
    void (*after_go)(struct fake_job *job);
    struct rdv *rdv;
    int hostmem;          /* the memory that the ranks share */
    uint32_t scopes_left; /* after the job: scopes that not all ranks have left */
};

void fake_init(struct fake_job *job, uint32_t nranks);
void fake_fini(struct fake_job *job);

/* A path without a slash is relative to the folder of the test plugins. */
struct desc_backend *fake_backend(struct fake_job *job, const char *name, const char *file);
/* ranks NULL: all */
struct desc_group *fake_group(struct fake_job *job, const char *name, uint32_t backend,
                              const uint32_t *ranks, uint32_t n);
struct desc_workload *fake_workload(struct fake_job *job, const char *name, const char *file);
void fake_option(struct fake_job *job, struct desc_kvs *kvs, const char *key, const char *value);
const char *fake_path(struct fake_job *job, const char *file);
const char *fake_engine(struct fake_job *job); /* the path of collrun-engine */

/* One group "world" of all ranks on the test backend, one workload "probe" that does `what`.
 * `starts`: the variant of the backend with a `start` function. */
struct desc_workload *fake_simple(struct fake_job *job, uint32_t nranks, bool starts,
                                  const char *what);

/* Runs the job. Returns 0 if every rank exited with 0, 1 if not, 2 if the job was killed at its
 * time limit. */
int fake_run(struct fake_job *job);

/* Starts one engine, sends these bytes and closes the stream. Returns the engine's exit code, and
 * what it printed. */
int fake_send_garbage(const void *bytes, size_t len, char *printed, size_t size);

/* For after_go. */
void fake_abort(struct fake_job *job, int status, uint32_t culprit, const char *error);
void fake_disconnect(struct fake_job *job, uint32_t rank);
void fake_kill(struct fake_job *job, uint32_t rank);
/* Sends a frame with a payload of one byte. */
void fake_send_bad_frame(struct fake_job *job, uint32_t rank, uint16_t type);

#endif

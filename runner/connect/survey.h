/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the agents of all hosts of a job, and starts no rank: connects to each as a run does,
 * staging included, and reads its HELLO. `collrun doctor` and `collrun plan --hosts` send their
 * questions then. What goes wrong with a host is reported with its place in job.yaml; the host is
 * lost.
 */
#ifndef RUNNER_CONNECT_SURVEY_H
#define RUNNER_CONNECT_SURVEY_H

#include "base/conn.h"
#include "base/desc.h"
#include "connect/connector.h"
#include "report/report.h"
#include "spec/job.h"

struct survey_host {
    struct survey *survey;
    uint32_t index;
    struct conn conn;
    bool answered, lost;
    char build[64], machine[160], rdma[96]; /* as in HELLO */
    uint64_t reached_ns;                    /* after the survey began */
    int64_t clock_offset_ns;                /* of its clock to this one */
};

struct survey_hooks {
    void (*on_hello)(void *ctx, struct survey_host *host);
    void (*on_frame)(void *ctx, struct survey_host *host, const struct wire_frame *f);
    void (*on_lost)(void *ctx, struct survey_host *host, bool other_build);
    /* Whether a host that is not lost owes an answer when timeouts.start has passed. */
    bool (*owes)(void *ctx, const struct survey_host *host);
    void *ctx;
};

struct survey {
    /* Set by the caller: */
    const struct job *job;
    const struct desc *desc;
    const struct report *report;
    struct survey_hooks hooks;
    /* Owned: */
    struct loop *loop;
    struct loop_timer limit;
    struct connector *connector;
    struct arena arena;
    struct survey_host *hosts;
    uint32_t n;
    int exit_code; /* of the worst problem so far */
    bool stopped;
    uint64_t begin_ns;
};

/* survey_fini is due even if it fails. What was staged is logged to stderr if `verbose`. */
int survey_init(struct survey *s, bool verbose, struct diag *d);
void survey_fini(struct survey *s);
/* Returns after survey_stop, or when timeouts.start has passed. */
void survey_run(struct survey *s);
void survey_stop(struct survey *s);

/* Reports a problem of the job; `loc` is its place if `d` has none. */
void survey_report(struct survey *s, struct diag *d, struct diag_loc loc, int exit_code);
bool survey_all_answered(const struct survey *s); /* that are not lost */
/* All have answered: chooses what a run chooses then, the backends for RDMA and the network of
 * hosts that are one machine, which it returns. */
bool survey_choose_network(struct survey *s);

#endif

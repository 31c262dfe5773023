/* SPDX-License-Identifier: Apache-2.0
 *
 * The runs of a matrix, one after the other, each in a new process and a new folder.
 * - The folder of the matrix has NNN-AXIS=VALUE,... for each combination, a run directory like any
 *   other, NNN-....log with what collrun printed in it, matrix.json and matrix.csv, which are
 *   written again after each run.
 * - A line says how a combination has ended and how long the rest will take; at the end there is a
 *   table.
 * - SIGINT, SIGTERM and SIGHUP end the current run as they end any run, and then the matrix.
 */
#ifndef RUNNER_MATRIX_RUN_H
#define RUNNER_MATRIX_RUN_H

#include "report/report.h"
#include "spec/job.h"

struct matrix_run {
    const struct job *job; /* with any combination */
    const char *dir;       /* absolute */
    const bool *selected;  /* of each combination */
    bool resume;           /* leave out combinations whose run has the verdict ok */
    struct report *report; /* of errors; lines and table go to stdout */
    /* In the process of a combination: runs it, with this run directory. Returns the exit code. */
    int (*run)(void *context, uint32_t combination, const char *dir);
    void *context;
};

/* Returns the exit code of the first combination that has failed. */
int matrix_run(const struct matrix_run *m);

#endif

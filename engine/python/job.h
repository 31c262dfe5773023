/* SPDX-License-Identifier: Apache-2.0
 *
 * The job as this rank sees it: the functions of the module. The first of them that needs the job
 * calls collrun_init(); an exit with code 0 calls collrun_finalize().
 */
#ifndef PYTHON_JOB_H
#define PYTHON_JOB_H

#include <Python.h>
#include <collrun/collrun.h>
#include <stdbool.h>

/* The context, after collrun_init(). NULL: an exception. */
struct collrun_ctx *job_get(void);
/* Devices of that kind of memory (NULL: of all) that this rank owns; -1: an exception. */
int job_device_count(const char *kind);
/* True after collrun_finalize(), and in a child of fork(): groups must not be touched. */
bool job_is_over(void);
/* 0; or -1, with an exception, after collrun.finalize(). */
int job_check(void);
/* `n` more arrays have memory of a group. */
void job_count_arrays(int n);

/* The functions of the module about the job. */
extern PyMethodDef job_methods[];

#endif

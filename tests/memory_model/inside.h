/* SPDX-License-Identifier: Apache-2.0
 *
 * What schedule.c and memory.c know of each other.
 */
#ifndef TESTS_MEMORY_MODEL_INSIDE_H
#define TESTS_MEMORY_MODEL_INSIDE_H

#include "memory_model/model.h"

/* False between the runs, and while the model itself executes: memory is then only memory. */
extern bool model_watching;

/* The thread that executes, 0 .. MODEL_THREADS - 1. */
extern uint32_t model_thread;

/* Before an access that others may see: maybe another thread goes on first. */
void schedule_point(void);
/* True with the run's probability that a load returns an old value. */
bool schedule_wants_old(void);
uint32_t schedule_choose(uint32_t n);
bool schedule_is_exhaustive(void);

void memory_begin(void); /* of a run */
/* All threads see all stores. */
void memory_settle(void);

#endif

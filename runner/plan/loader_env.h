/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of env.set that decide how a plugin is loaded: LD_PRELOAD, LD_LIBRARY_PATH and the
 * options of the sanitizers. A plugin built with AddressSanitizer can be loaded only with them, so
 * the processes that examine plugins have them, too.
 */
#ifndef RUNNER_PLAN_LOADER_ENV_H
#define RUNNER_PLAN_LOADER_ENV_H

#include "spec/job.h"

enum { LOADER_ENV_MAX = 6 };
struct loader_env { /* the values of this process; NULL = not set */
    char *saved[LOADER_ENV_MAX];
    bool changed[LOADER_ENV_MAX];
};

/* Sets them in this process, for its children. A value with a template is left out: it differs by
 * rank. */
void loader_env_set(const struct job *job, struct loader_env *saved);
void loader_env_restore(struct loader_env *saved);

#endif

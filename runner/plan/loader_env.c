/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/loader_env.h"

#include "xalloc.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[LOADER_ENV_MAX] = {"LD_PRELOAD",   "LD_LIBRARY_PATH",
                                                  "ASAN_OPTIONS", "LSAN_OPTIONS",
                                                  "TSAN_OPTIONS", "UBSAN_OPTIONS"};

void loader_env_set(const struct job *job, struct loader_env *saved)
{
    *saved = (struct loader_env){0};
    for (uint32_t i = 0; i < job->env.set.n; i++) {
        const struct job_pair *pair = &job->env.set.items[i];
        for (int k = 0; k < LOADER_ENV_MAX; k++) {
            if (strcmp(pair->key, names[k]) != 0 || pair->is_list || strchr(pair->value, '{'))
                continue;
            const char *before = getenv(names[k]);
            if (!saved->changed[k])
                saved->saved[k] = before ? xstrdup(before) : NULL;
            saved->changed[k] = true;
            setenv(names[k], pair->value, 1);
        }
    }
}

void loader_env_restore(struct loader_env *saved)
{
    for (int k = 0; k < LOADER_ENV_MAX; k++) {
        if (saved->changed[k] && saved->saved[k])
            setenv(names[k], saved->saved[k], 1);
        else if (saved->changed[k])
            unsetenv(names[k]);
        free(saved->saved[k]);
        saved->saved[k] = NULL;
        saved->changed[k] = false;
    }
}

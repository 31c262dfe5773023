/* SPDX-License-Identifier: Apache-2.0
 *
 * struct engine_child: a collrun-engine that loads plugins for the runner, which never loads them
 * itself. Its stdout is read under a time limit; a child that exceeds it is killed. The limit
 * counts the time in which the child runs or sleeps, not that in which it waits for a CPU
 * (base/standstill.h), and CHILD_TIME_WALL limits in any case. The end of its stderr is part of the
 * error if it fails: what a plugin, or a library of it, has printed before it ended the process.
 */
#ifndef RUNNER_PLAN_ENGINE_CHILD_H
#define RUNNER_PLAN_ENGINE_CHILD_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/standstill.h"
#include "spec/job.h"

#include <sys/types.h>

struct engine_child {
    pid_t pid;
    int fd;               /* its stdout */
    int errors;           /* its stderr, a memory file; -1: none */
    uint32_t deadline_ms; /* from its start; set by the caller */
    struct child_time time;
    bool late, talks; /* too long; too much */
    char words[400];  /* the last lines of its stderr, after its end */
    char crash[300];  /* " in boom (t.c:5), called by begin (t.c:6)"; "": not known */
};

/* `argv` ends with NULL. `input`: its stdin, borrowed; -1: none. */
int engine_child_start(struct engine_child *child, const char *engine, char *const *argv, int input,
                       struct diag *d);
/* Reads more output into `in`. False: end of file, or the deadline is over. */
bool engine_child_read(struct engine_child *child, struct buf *in);
/* Waits for its end, of a late child after it has killed it. Returns the status of waitpid. */
int engine_child_end(struct engine_child *child);
/* Why the child ended without its output: `doing` ("loading the plugin") takes too long, or the
 * plugin crashes or exits while it `when` ("is loaded"). */
const char *engine_child_failure(const struct engine_child *child, int status, const char *doing,
                                 const char *when, struct arena *arena);

/* ---- the variables that decide how a plugin is loaded ---- */

/* These are of env.set: LD_PRELOAD, LD_LIBRARY_PATH and the options of the sanitizers. A plugin
 * built with AddressSanitizer can be loaded only with them, so the processes that examine plugins
 * have them, too. */

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

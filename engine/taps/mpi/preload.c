/* SPDX-License-Identifier: Apache-2.0
 *
 * The library in the process, from its start until exec.
 *
 * - The agent has put this library in front of LD_PRELOAD. Before main, the variable gets the value
 *   that the user gave it, so that the program, its children and getenv find that.
 * - The record belongs to the process of the rank, whose pid the agent's child has stored: children
 *   have no record, and write nothing.
 * - The rank may become another program by exec: `bash -c`, `env`, a wrapper. The functions of exec
 *   therefore put this library in front again, if they are called by the process of the rank and
 *   its new program can take it. They have no effect in children.
 */
#include "base/preload.h"
#include "taps/mpi/tap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define EXPORT __attribute__((visibility("default")))

static struct {
    struct record_head *record; /* NULL: this is not the rank */
    pid_t pid;                  /* of the rank */
    char library[4096];         /* as LD_PRELOAD names it */
    int (*execve)(const char *, char *const[], char *const[]);
    int (*execvpe)(const char *, char *const[], char *const[]);
    int (*fexecve)(int, char *const[], char *const[]);
} preload;

struct record_head *tap_record(void)
{
    return preload.record && preload.pid == getpid() ? preload.record : NULL;
}

/* ---- the start ---- */

/* The list itself is changed: programs like bash have a getenv and setenv of their own, which do
 * not work before main. */
static void preload_restore(void)
{
    static const char prefix[] = PRELOAD_VARIABLE "=";
    const size_t len = sizeof prefix - 1;
    char **e = environ, *entry = NULL;
    while (e && *e && strncmp(*e, prefix, len) != 0)
        e++;
    if (!e || !*e)
        return;
    const char *value = *e + len, *rest = preload_rest(preload.library, value);
    if (rest == value)
        return;
    if (rest && asprintf(&entry, "%s%s", prefix, rest) >= 0) {
        *e = entry;
        return;
    }
    for (; *e; e++)
        e[0] = e[1];
}

static void preload_find_exec(void)
{
    const struct {
        const char *name;
        void *to;
    } rows[] = {
        {"execve", &preload.execve}, {"execvpe", &preload.execvpe}, {"fexecve", &preload.fexecve}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *found = dlsym(RTLD_NEXT, rows[i].name);
        memcpy(rows[i].to, &found, sizeof found);
    }
}

__attribute__((constructor)) static void preload_begin(void)
{
    Dl_info own = {0};
    preload_find_exec();
    if (!dladdr((void *)(uintptr_t)preload_begin, &own) || !own.dli_fname)
        return;
    snprintf(preload.library, sizeof preload.library, "%s", own.dli_fname);
    preload_restore();
    struct record_head *record = record_map(RECORD_FD);
    if (!record)
        return;
    if (atomic_load(&record->pid) == (uint32_t)getpid()) {
        preload.record = record;
        preload.pid = getpid();
    } else {
        record_unmap(record, record_len(record));
    }
}

/* ---- exec ---- */

/* Constructors of other libraries may execute programs before preload_begin has looked. */
static void preload_need(const void *function)
{
    if (!function)
        preload_find_exec();
}

/* A copy of the environment with this library in front of LD_PRELOAD, or `env` itself if the
 * program must not have it. It is not freed: exec replaces the process, and a failed one is rare.
 */
static char *const *preload_environment(const char *program, char *const env[])
{
    static const char prefix[] = PRELOAD_VARIABLE "=";
    const char *value = NULL, *path = NULL;
    size_t n = 0, at = 0;
    struct record_head *record = tap_record();
    if (!record || !env)
        return env;
    /* exec looks in the PATH of this process. */
    for (char **e = environ; e && *e; e++)
        path = strncmp(*e, "PATH=", 5) == 0 ? *e + 5 : path;
    for (; env[n]; n++) {
        if (strncmp(env[n], prefix, sizeof prefix - 1) != 0)
            continue;
        value = env[n] + sizeof prefix - 1;
        at = n;
    }
    const enum record_unobserved why = preload_refusal(program, path, value);
    char **copy = why ? NULL : calloc(n + 2, sizeof *copy);
    char *list = copy ? preload_add(preload.library, value) : NULL, *entry;
    if (!list || asprintf(&entry, "%s%s", prefix, list) < 0) {
        atomic_store(&record->unobserved, (uint32_t)(why ? why : RECORD_UNOBSERVED_MEMORY));
        free(list);
        free(copy);
        return env;
    }
    free(list);
    /* A shell tries one folder of PATH after the other: what the last one did counts. */
    if (atomic_load(&record->unobserved) != RECORD_UNOBSERVED_ISOLATED)
        atomic_store(&record->unobserved, RECORD_UNOBSERVED_NO_CALL);
    memcpy(copy, env, n * sizeof *copy);
    copy[value ? at : n] = entry;
    return copy;
}

EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
    preload_need((const void *)(uintptr_t)preload.execve);
    return preload.execve(path, argv, preload_environment(path, env));
}

EXPORT int execv(const char *path, char *const argv[])
{
    preload_need((const void *)(uintptr_t)preload.execve);
    return preload.execve(path, argv, preload_environment(path, environ));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
    preload_need((const void *)(uintptr_t)preload.execvpe);
    return preload.execvpe(file, argv, preload_environment(file, env));
}

EXPORT int execvp(const char *file, char *const argv[])
{
    preload_need((const void *)(uintptr_t)preload.execvpe);
    return preload.execvpe(file, argv, preload_environment(file, environ));
}

EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    preload_need((const void *)(uintptr_t)preload.fexecve);
    return preload.fexecve(fd, argv, preload_environment(path, env));
}

/* How many arguments execl and its like have got, up to NULL; `rest` begins behind `first`. */
static size_t preload_count(va_list rest)
{
    va_list again;
    size_t n = 1;
    va_copy(again, rest);
    while (va_arg(again, char *))
        n++;
    va_end(again);
    return n;
}

/* Their array: argv has n + 1 places. It lies on the caller's stack, as in the C library: a child
 * of vfork shares the heap of its parent, and a signal handler may not use it. */
static char **preload_list(char **argv, size_t n, const char *first, va_list *rest)
{
    argv[0] = (char *)(uintptr_t)first;
    for (size_t i = 1; i <= n; i++)
        argv[i] = va_arg(*rest, char *);
    return argv;
}
#define PRELOAD_PLACES(n) __builtin_alloca(((n) + 1) * sizeof(char *))

EXPORT int execl(const char *path, const char *arg, ...)
{
    va_list rest;
    va_start(rest, arg);
    const size_t n = preload_count(rest);
    char **argv = preload_list(PRELOAD_PLACES(n), n, arg, &rest);
    va_end(rest);
    return execv(path, argv);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
    va_list rest;
    va_start(rest, arg);
    const size_t n = preload_count(rest);
    char **argv = preload_list(PRELOAD_PLACES(n), n, arg, &rest);
    va_end(rest);
    return execvp(file, argv);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
    va_list rest;
    va_start(rest, arg);
    const size_t n = preload_count(rest);
    char **argv = preload_list(PRELOAD_PLACES(n), n, arg, &rest);
    char *const *env = va_arg(rest, char *const *); /* what follows NULL */
    va_end(rest);
    return execve(path, argv, env);
}

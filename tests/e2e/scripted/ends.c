/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that end the rank.
 */
#include "scripted.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int do_exit(struct script *s, char *args)
{
    (void)s;
    return atoi(args);
}

static int do_leave(struct script *s, char *args)
{
    (void)s;
    _exit(atoi(args));
}

static int do_libc_exit(struct script *s, char *args)
{
    (void)s;
    exit(atoi(args));
}

static int do_signal(struct script *s, char *args)
{
    (void)s;
    raise(atoi(args));
    return GO_ON;
}

static int do_crash(struct script *s, char *args)
{
    volatile int *nowhere = (volatile int *)(uintptr_t)(strlen(args) & 0);
    (void)s;
    *nowhere = 1;
    return GO_ON;
}

static void *signal_later(void *args)
{
    char *rest;
    pause_ms(strtol(args, &rest, 10));
    kill(getpid(), atoi(rest));
    return NULL;
}

static int do_later(struct script *s, char *args)
{
    pthread_t thread;
    (void)s;
    return pthread_create(&thread, NULL, signal_later, strdup(args)) == 0 ? GO_ON : 98;
}

static int do_abort(struct script *s, char *args)
{
    (void)s;
    (void)args;
    abort();
}

static void *exit_here(void *args)
{
    exit(atoi(args));
}

/* exit() in a second thread while the workload's thread sleeps. */
static int do_thread_exit(struct script *s, char *args)
{
    pthread_t thread;
    (void)s;
    if (pthread_create(&thread, NULL, exit_here, args) != 0)
        return 98;
    pause_ms(60000);
    return GO_ON;
}

static int do_pthread_exit(struct script *s, char *args)
{
    (void)s;
    (void)args;
    pthread_exit(NULL);
}

static int deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    return deeper(here) + here[0];
}

static int do_overflow(struct script *s, char *args)
{
    (void)s;
    return deeper(args);
}

static int do_exec(struct script *s, char *args)
{
    (void)s;
    execl("/bin/sh", "sh", "-c", args, (char *)NULL);
    return 98;
}

/* Allocates and touches memory. */
static int do_eat(struct script *s, char *args)
{
    (void)s;
    for (long mib = atol(args); mib > 0; mib--) {
        char *p = malloc(1 << 20);
        if (p == NULL)
            return 98;
        memset(p, 1, 1 << 20);
    }
    return GO_ON;
}

static int do_fail(struct script *s, char *args)
{
    return collrun_fail(s->ctx, "%s", args);
}

const struct command end_commands[] = {
    {"exit", do_exit},           /* N: return N */
    {"leave", do_leave},         /* N: _exit(N) */
    {"libc-exit", do_libc_exit}, /* N: exit(N) */
    {"signal", do_signal},       /* N: raise(N) */
    {"crash", do_crash},         /* write to address 0 */
    {"later", do_later},         /* MS SIGNAL: another thread signals this process */
    {"abort", do_abort},
    {"thread-exit", do_thread_exit}, /* N: exit(N) in another thread */
    {"pthread-exit", do_pthread_exit},
    {"overflow", do_overflow}, /* of the stack */
    {"exec", do_exec},         /* COMMAND: sh replaces the rank */
    {"eat", do_eat},           /* MIB */
    {"fail", do_fail},         /* TEXT: collrun_fail */
    {NULL, NULL},
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * How an actor ends, or comes near it.
 */
#include "actor.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int do_exit(struct actor *a, char *words)
{
    (void)a;
    return atoi(words);
}

static int do_leave(struct actor *a, char *words)
{
    (void)a;
    _exit(atoi(words));
}

static int do_libc_exit(struct actor *a, char *words)
{
    (void)a;
    exit(atoi(words));
}

static int do_signal(struct actor *a, char *words)
{
    (void)a;
    raise(atoi(words));
    return GO_ON;
}

static int do_crash(struct actor *a, char *words)
{
    volatile int *nowhere = (volatile int *)(uintptr_t)(strlen(words) & 0);
    (void)a;
    *nowhere = 1;
    return GO_ON;
}

static void *signal_later(void *words)
{
    char *rest;
    pause_ms(strtol(words, &rest, 10));
    kill(getpid(), atoi(rest));
    return NULL;
}

static int do_later(struct actor *a, char *words)
{
    pthread_t thread;
    (void)a;
    return pthread_create(&thread, NULL, signal_later, strdup(words)) == 0 ? GO_ON : 98;
}

static int do_abort(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    abort();
}

static void *exit_here(void *words)
{
    exit(atoi(words));
}

/* exit() while the workload's own thread is elsewhere. */
static int do_thread_exit(struct actor *a, char *words)
{
    pthread_t thread;
    (void)a;
    if (pthread_create(&thread, NULL, exit_here, words) != 0)
        return 98;
    pause_ms(60000);
    return GO_ON;
}

static int do_pthread_exit(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    pthread_exit(NULL);
}

static int deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    return deeper(here) + here[0];
}

static int do_overflow(struct actor *a, char *words)
{
    (void)a;
    return deeper(words);
}

static int do_exec(struct actor *a, char *words)
{
    (void)a;
    execl("/bin/sh", "sh", "-c", words, (char *)NULL);
    return 98;
}

/* Memory that is touched, until there is no more. */
static int do_eat(struct actor *a, char *words)
{
    (void)a;
    for (long mib = atol(words); mib > 0; mib--) {
        char *p = malloc(1 << 20);
        if (p == NULL)
            return 98;
        memset(p, 1, 1 << 20);
    }
    return GO_ON;
}

static int do_fail(struct actor *a, char *words)
{
    return collrun_fail(a->ctx, "%s", words);
}

const struct verb verbs_of_ends[] = {
    {"exit", do_exit},           /* N: return N */
    {"leave", do_leave},         /* N: _exit(N) */
    {"libc-exit", do_libc_exit}, /* N: exit(N) */
    {"signal", do_signal},       /* N: raise(N) */
    {"crash", do_crash},         /* write to address 0 */
    {"later", do_later},         /* MS SIGNAL: to itself, from another thread */
    {"abort", do_abort},
    {"thread-exit", do_thread_exit}, /* N: exit(N) in another thread */
    {"pthread-exit", do_pthread_exit},
    {"overflow", do_overflow}, /* the stack */
    {"exec", do_exec},         /* COMMAND: in place of the rank */
    {"eat", do_eat},           /* MIB */
    {"fail", do_fail},         /* TEXT: collrun_fail */
    {NULL, NULL},
};

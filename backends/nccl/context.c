/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the groups of a process share: creation, release, and the wait for groups that
 * are being closed.
 */
#include "context.h"

#include <stdlib.h>

static void context_init_monotonic_cond(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void context_free(struct context *context)
{
    for (int i = 0; context->devices && i < context->lib.device_count; i++)
        pthread_mutex_destroy(&context->devices[i].issue_lock);
    pthread_mutex_destroy(&context->env_lock);
    pthread_mutex_destroy(&context->set_lock);
    pthread_mutex_destroy(&context->closings.lock);
    pthread_cond_destroy(&context->closings.changed);
    aborter_fini(&context->aborter);
    sched_fini(&context->sched);
    free(context->devices);
    free(context);
}

struct context *context_new(const struct collrun_services *services, const struct libraries *lib)
{
    struct context *context = calloc(1, sizeof *context);
    if (!context)
        return NULL;
    context->services = services;
    context->lib = *lib;
    context->devices = calloc((size_t)lib->device_count, sizeof *context->devices);
    sched_init(&context->sched);
    aborter_init(&context->aborter);
    pthread_mutex_init(&context->env_lock, NULL);
    pthread_mutex_init(&context->set_lock, NULL);
    pthread_mutex_init(&context->closings.lock, NULL);
    context_init_monotonic_cond(&context->closings.changed);
    for (int i = 0; context->devices && i < lib->device_count; i++) {
        struct device *d = &context->devices[i];
        pthread_mutex_init(&d->issue_lock, NULL);
        if (lib->cuda.cudaDeviceGetPCIBusId(d->pci, sizeof d->pci, i) != cudaSuccess)
            d->pci[0] = '\0';
    }
    if (context->devices)
        return context;
    context_free(context);
    return NULL;
}

void context_set_variable(struct context *context, const char *name, const char *value)
{
    pthread_mutex_lock(&context->set_lock);
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
    pthread_mutex_unlock(&context->set_lock);
}

/* ---- groups that are being closed ---- */

void context_count_closing(struct context *context, int groups, int serving)
{
    struct closings *c = &context->closings;
    pthread_mutex_lock(&c->lock);
    c->groups += (unsigned)groups;
    c->serving += (unsigned)serving;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

bool context_is_ending(struct context *context)
{
    return atomic_load(&context->closings.ending);
}

bool context_await_closings(struct context *context, uint64_t limit_ns)
{
    struct closings *c = &context->closings;
    uint64_t until_ns = context_now_ns(context) + limit_ns;
    int late = 0;
    atomic_store(&c->ending, true);
    pthread_mutex_lock(&c->lock);
    while (c->groups && (c->serving || !late)) {
        const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                       .tv_nsec = (long)(until_ns % 1000000000u)};
        late = pthread_cond_timedwait(&c->changed, &c->lock, &until);
        if (late) /* a coordinator still serves: look again in a second */
            until_ns += 1000000000u;
    }
    bool all = c->groups == 0;
    pthread_mutex_unlock(&c->lock);
    return all;
}

/* ---- the current device ---- */

int device_enter(const struct context *context, int ordinal)
{
    int before = ordinal;
    context->lib.cuda.cudaGetDevice(&before);
    if (before != ordinal)
        context->lib.cuda.cudaSetDevice(ordinal);
    return before;
}

void device_leave(const struct context *context, int before)
{
    int now = before;
    context->lib.cuda.cudaGetDevice(&now);
    if (before != now)
        context->lib.cuda.cudaSetDevice(before);
}

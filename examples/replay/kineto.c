/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the times of a PyTorch trace from the timeline that Kineto (torch.profiler) wrote of the
 * same run, since execution traces have none.
 *
 * - The events "record_param_comms" of the CPU, in the order of their begin, are the nodes of that
 *   name in the order of their ids: ids differ between the files, but both have the same number.
 *   The time between two of them is computation.
 * - Kernels of NCCL, in the order of their begin, are the operations that move data, if there are
 *   as many; their durations are the recorded times.
 */
#include "format.h"

#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kineto_event {
    double begin_us, us;
};

struct kineto_events {
    struct kineto_event *event;
    size_t n, room;
};

struct kineto_reader {
    struct kineto_events calls, kernels;
};

static int kineto_add(struct trace *t, struct kineto_events *list, const json_t *event)
{
    const json_t *begin = json_object_get(event, "ts"), *took = json_object_get(event, "dur");
    const struct kineto_event e = {json_number_value(begin), json_number_value(took)};
    if (!json_is_number(begin) || !json_is_number(took) || e.begin_us < 0 || e.begin_us > 1e16 ||
        e.us < 0 || e.us > 1e12)
        return trace_fail(t, TRACE_FILE, "event %zu of its kind has no begin and duration",
                          list->n + 1);
    void *grown = list->event;
    if (trace_grow(t, &grown, &list->room, list->n + 1, sizeof *list->event))
        return -1;
    list->event = grown;
    list->event[list->n++] = e;
    return 0;
}

static int kineto_by_begin(const void *a, const void *b)
{
    const struct kineto_event *x = a, *y = b;
    return (x->begin_us > y->begin_us) - (x->begin_us < y->begin_us);
}

static int kineto_take(struct trace_json *j)
{
    struct kineto_reader *r = j->reader;
    const char *name = json_string_value(json_object_get(j->value, "name"));
    const char *category = json_string_value(json_object_get(j->value, "cat"));
    if (strcmp(j->key, "traceEvents") != 0 || !name || !category)
        return 0;
    if (strcmp(category, "cpu_op") == 0 && strcmp(name, "record_param_comms") == 0)
        return kineto_add(j->t, &r->calls, j->value);
    if (strcmp(category, "kernel") == 0 && strncmp(name, "nccl", 4) == 0)
        return kineto_add(j->t, &r->kernels, j->value);
    return 0;
}

/* Computation before each call, and from the first call to the end of the last. */
static void kineto_calls(struct trace *t, const struct kineto_events *calls)
{
    double last_us = calls->event[0].begin_us, gap_us = 0;
    for (size_t i = 0; i < calls->n; i++) {
        const struct kineto_event *e = &calls->event[i];
        gap_us += e->begin_us > last_us ? e->begin_us - last_us : 0;
        last_us = e->begin_us + e->us > last_us ? e->begin_us + e->us : last_us;
        if (t->calls[i] == TRACE_NO_OP)
            continue;
        t->ops[t->calls[i]].gap_ns = (uint64_t)(gap_us * 1e3);
        gap_us = 0;
    }
    t->span_ns = (uint64_t)((last_us - calls->event[0].begin_us) * 1e3);
}

static bool kineto_moves_data(const struct op *op)
{
    return op->kind != TRACE_WAIT && op->kind != COLLRUN_BARRIER;
}

static void kineto_kernels(struct trace *t, const struct kineto_events *kernels, double begin_us)
{
    size_t n = 0;
    for (size_t i = 0; i < t->nops; i++)
        n += kineto_moves_data(&t->ops[i]);
    if (n != kernels->n)
        return; /* operations were joined, or do not run on a GPU */
    n = 0;
    for (size_t i = 0; i < t->nops; i++) {
        if (!kineto_moves_data(&t->ops[i]))
            continue;
        const struct kineto_event *e = &kernels->event[n++];
        double end_us = e->begin_us + e->us - begin_us;
        t->ops[i].timed = true;
        t->ops[i].recorded_ns = (uint64_t)(e->us * 1e3);
        if (end_us > 0 && (uint64_t)(end_us * 1e3) > t->span_ns)
            t->span_ns = (uint64_t)(end_us * 1e3);
    }
}

int kineto_read(struct trace *t, char *text, size_t len)
{
    struct kineto_reader r = {0};
    struct kineto_events *calls = &r.calls, *kernels = &r.kernels;
    int rc = trace_json_read(
        &(struct trace_json){.t = t, .text = text, .len = len, .take = kineto_take, .reader = &r});
    if (calls->n)
        qsort(calls->event, calls->n, sizeof *calls->event, kineto_by_begin);
    if (kernels->n)
        qsort(kernels->event, kernels->n, sizeof *kernels->event, kineto_by_begin);
    if (!rc && (calls->n != t->ncalls || !calls->n))
        rc = trace_fail(t, TRACE_FILE,
                        "%zu events record_param_comms; the execution trace has %zu: "
                        "they are not of one run",
                        calls->n, t->ncalls);
    if (!rc) {
        kineto_calls(t, calls);
        kineto_kernels(t, kernels, calls->event[0].begin_us);
    }
    free(calls->event);
    free(kernels->event);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of collrun.h about the job, reports to the runner, and parameters. A name that is
 * not declared, another type or an index out of range is a misuse by the workload, which fails with
 * that message when it returns.
 */
#include "base/loop.h"
#include "base/quote.h"
#include "base/wire_fields.h"
#include "core/error.h"
#include "core/memory_kind.h"
#include "core/reduce.h"
#include "core/threads.h"
#include "rank/task.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PROGRESS_GAP_NS = 100000000, LOG_LEN = 4096 };

/* ---- the job ---- */

static const struct desc_rank *context_rank(const struct collrun_ctx *ctx)
{
    return &ctx->process->desc.ranks[ctx->process->rank];
}

int collrun_world_rank(const struct collrun_ctx *ctx)
{
    return (int)ctx->process->rank;
}

int collrun_world_size(const struct collrun_ctx *ctx)
{
    return (int)ctx->process->desc.nranks;
}

int collrun_local_rank(const struct collrun_ctx *ctx)
{
    return (int)context_rank(ctx)->local_rank;
}

int collrun_local_size(const struct collrun_ctx *ctx)
{
    return (int)ctx->process->desc.hosts[context_rank(ctx)->host].nranks;
}

int collrun_attempt(const struct collrun_ctx *ctx)
{
    return (int)ctx->process->attempt;
}

int collrun_gpu_count(const struct collrun_ctx *ctx)
{
    const struct desc *desc = &ctx->process->desc;
    const struct desc_rank *me = &desc->ranks[ctx->process->rank];
    int n = 0;
    for (uint32_t i = 0; i < me->ndevices; i++)
        n += desc->kinds[me->devices[i].kind].gpus;
    return n;
}

int collrun_device_count(const struct collrun_ctx *ctx, const char *kind)
{
    const struct desc *desc = &ctx->process->desc;
    const struct desc_rank *me = &desc->ranks[ctx->process->rank];
    int n = 0;
    for (uint32_t i = 0; i < me->ndevices; i++)
        n += !kind || strcmp(desc->kinds[me->devices[i].kind].name, kind) == 0;
    return n;
}

const char *collrun_host(const struct collrun_ctx *ctx)
{
    return ctx->process->desc.hosts[context_rank(ctx)->host].name;
}

const char *collrun_run_id(const struct collrun_ctx *ctx)
{
    return ctx->process->desc.run_id;
}

const char *collrun_run_dir(const struct collrun_ctx *ctx)
{
    return ctx->process->desc.run_dir;
}

const char *collrun_address(const struct collrun_ctx *ctx)
{
    return ctx->process->address;
}

int collrun_failed(const struct collrun_ctx *ctx, int *ranks, int max)
{
    int n = 0;
    for (uint32_t i = 0; i < ctx->process->desc.nranks; i++) {
        if (!atomic_load_explicit(&ctx->process->failed[i], memory_order_acquire))
            continue;
        if (ranks && n < max)
            ranks[n] = (int)i;
        n++;
    }
    return n;
}

int collrun_backend_available(struct collrun_ctx *ctx, const char *name, char *why, size_t len)
{
    struct diag d;
    if (!ctx || !name || (len && !why))
        return error_set(COLLRUN_ERR_INVALID, "collrun_backend_available: the %s is NULL",
                         !ctx    ? "context"
                         : !name ? "name"
                                 : "buffer");
    diag_init(&d);
    int rc = process_check_member(ctx->process, "collrun_backend_available");
    if (rc != COLLRUN_OK)
        return rc;
    rc = registry_probe(ctx->process, name, &d);
    if (len)
        snprintf(why, len, "%s", rc == COLLRUN_OK ? "" : d.text);
    if (rc == COLLRUN_OK)
        return rc;
    /* A file that cannot be loaded is no backend that works here, either. */
    rc = rc == COLLRUN_ERR_NOT_FOUND ? rc : COLLRUN_ERR_UNAVAILABLE;
    return error_set(rc, "%s", d.text);
}

int collrun_device_synchronize(struct collrun_ctx *ctx, int device)
{
    struct process *p = ctx ? ctx->process : NULL;
    if (!p)
        return error_set(COLLRUN_ERR_INVALID, "collrun_device_synchronize: the context is NULL");
    int rc = process_check_member(p, "collrun_device_synchronize");
    if (rc != COLLRUN_OK)
        return rc;
    uint32_t k = 0, index = (uint32_t)device;
    while (k < p->kinds.nowned && index >= p->kinds.open.items[k]->ndevices)
        index -= p->kinds.open.items[k++]->ndevices;
    if (device < 0 || k == p->kinds.nowned)
        return error_set(COLLRUN_ERR_INVALID, "device %d is not one of the %d devices of this rank",
                         device, collrun_device_count(ctx, NULL));
    error_clear_cause();
    threads_busy(&p->busy, 1);
    rc = memory_kind_synchronize(p->kinds.open.items[k], index);
    threads_busy(&p->busy, -1);
    return rc == COLLRUN_OK ? rc : error_wrap(rc, "", 0, "collrun_device_synchronize");
}

const char *collrun_version(void)
{
    return COLLRUN_VERSION;
}

size_t collrun_dtype_size(enum collrun_dtype dtype)
{
    return dtype_size(dtype);
}

/* ---- reports to the runner ---- */

/* At most ten a second; the last one is always sent. */
static bool context_progress_is_due(struct collrun_ctx *ctx, uint64_t done, uint64_t total)
{
    struct task *task = task_of(ctx);
    uint64_t now = now_ns();
    pthread_mutex_lock(&task->report_lock);
    bool due = now >= task->next_progress_ns || (total && done >= total);
    if (due)
        task->next_progress_ns = now + PROGRESS_GAP_NS;
    pthread_mutex_unlock(&task->report_lock);
    return due;
}

void collrun_progress(struct collrun_ctx *ctx, uint64_t done, uint64_t total, const char *what)
{
    size_t mark;
    if (!context_progress_is_due(ctx, done, total))
        return;
    struct buf *out = control_begin(&ctx->process->control, WIRE_PROGRESS, &mark);
    wire_put_progress(out, &(struct wire_progress){ctx->index, done, total, what});
    control_end(&ctx->process->control, mark);
}

void collrun_metric(struct collrun_ctx *ctx, const char *name, double value)
{
    size_t mark;
    struct buf *out = control_begin(&ctx->process->control, WIRE_METRIC, &mark);
    wire_put_metric(out, &(struct wire_metric){ctx->index, name, value});
    control_end(&ctx->process->control, mark);
}

void collrun_log(struct collrun_ctx *ctx, enum collrun_log_level level, const char *format, ...)
{
    char text[LOG_LEN];
    int n = snprintf(text, sizeof text, "%s: ", ctx->desc->name);
    va_list args;
    va_start(args, format);
    if (n >= 0 && (size_t)n < sizeof text)
        vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    control_log(&ctx->process->control, level, text);
}

/* The first reason counts. */
__attribute__((format(printf, 3, 0))) static int
context_fail(struct collrun_ctx *ctx, const char *param, const char *format, va_list args)
{
    struct task *task = task_of(ctx);
    pthread_mutex_lock(&task->report_lock);
    if (!task->fail_text[0]) {
        int n = vsnprintf(task->fail_text, sizeof task->fail_text, format, args);
        if (n >= 0 && (size_t)n >= sizeof task->fail_text)
            utf8_mark_cut(task->fail_text, sizeof task->fail_text);
        snprintf(task->refused, sizeof task->refused, "%s", param);
    }
    pthread_mutex_unlock(&task->report_lock);
    return 1;
}

int collrun_fail_exception(struct collrun_ctx *ctx, const struct collrun_exception *exception)
{
    struct task *task = task_of(ctx);
    const struct collrun_exception *e = exception;
    const char *file = e->file ? e->file : "", *thread = e->thread ? e->thread : "";
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    char place[300] = "";
    if (*file)
        snprintf(place, sizeof place, " (%.255s:%d)", name, e->line);
    if (strstr(e->text, place)) /* of an exception that contains others */
        place[0] = '\0';
    pthread_mutex_lock(&task->report_lock);
    if (!*thread || !task->thread_text[0]) {
        const size_t size = *thread ? sizeof task->thread_text : sizeof task->fail_text;
        char *text = *thread ? task->thread_text : task->fail_text;
        const int most = (int)(size - strlen(place) - 1);
        if (!text[0]) {
            snprintf(text, (size_t)most, "%s%s%s", e->type, *e->text ? ": " : "", e->text);
            if (strlen(e->type) + 2 + strlen(e->text) >= (size_t)most)
                utf8_mark_cut(text, (size_t)most);
            snprintf(text + strlen(text), size - strlen(text), "%s", place);
        }
        size_t mark;
        struct buf *out = control_begin(&ctx->process->control, WIRE_EXCEPTION, &mark);
        wire_put_exception(
            out, &(struct wire_exception){e->type, e->text, file, (uint32_t)e->line, thread});
        control_end(&ctx->process->control, mark);
    }
    pthread_mutex_unlock(&task->report_lock);
    return 1;
}

int collrun_fail(struct collrun_ctx *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = context_fail(ctx, "", format, args);
    va_end(args);
    return code;
}

int collrun_refuse(struct collrun_ctx *ctx, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = context_fail(ctx, param ? param : "", format, args);
    va_end(args);
    return code;
}

bool collrun_stopping(const struct collrun_ctx *ctx)
{
    unsigned events = CONTROL_ABORT | (ctx->desc->background ? CONTROL_STOP_BACKGROUND : 0u);
    bool stopping = control_has(&ctx->process->control, events);
    if (stopping)
        process_set_disturbed(ctx->process);
    return stopping;
}

/* ---- parameters ---- */

/* What is read in the place of a misuse: 0, false, "". */
static const struct param_value reader_none;

static const struct param_value *reader_find(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = name ? params_find(&task_of(ctx)->params, name) : NULL;
    if (!v)
        task_misused(ctx, "workload \"%s\" asks for a parameter \"%s\", but does not declare it",
                     ctx->desc->name, name ? name : "(null)");
    return v;
}

/* A string reader takes enums, too. */
static bool reader_fits(enum collrun_param_type declared, enum collrun_param_type asked)
{
    return declared == asked || (asked == COLLRUN_PARAM_STRING && declared == COLLRUN_PARAM_ENUM);
}

static const struct param_value *reader_value(const struct collrun_ctx *ctx, const char *name,
                                              enum collrun_param_type type)
{
    const struct param_value *v = reader_find(ctx, name);
    if (!v)
        return &reader_none;
    if (reader_fits(v->type, type))
        return v;
    task_misused(ctx, "workload \"%s\" asks for parameter \"%s\" as %s; it is declared as %s",
                 ctx->desc->name, name, params_type_name(type), params_type_name(v->type));
    return &reader_none;
}

static const struct param_value *reader_item(const struct collrun_ctx *ctx, const char *name,
                                             int index, enum collrun_param_type type)
{
    const struct param_value *v = reader_value(ctx, name, COLLRUN_PARAM_LIST);
    if (v == &reader_none)
        return v;
    if (index < 0 || (uint32_t)index >= v->as.list.n) {
        task_misused(ctx, "workload \"%s\" asks for item %d of parameter \"%s\", which has %u",
                     ctx->desc->name, index, name, v->as.list.n);
        return &reader_none;
    }
    const struct param_value *item = &v->as.list.items[index];
    if (reader_fits(item->type, type))
        return item;
    task_misused(
        ctx, "workload \"%s\" asks for item %d of parameter \"%s\" as %s; it is declared as %s",
        ctx->desc->name, index, name, params_type_name(type), params_type_name(item->type));
    return &reader_none;
}

static const char *reader_text(const struct param_value *v)
{
    if (v == &reader_none)
        return "";
    return v->type == COLLRUN_PARAM_ENUM ? v->as.choice.text : v->as.string;
}

const char *collrun_param_string(const struct collrun_ctx *ctx, const char *name)
{
    return reader_text(reader_value(ctx, name, COLLRUN_PARAM_STRING));
}

int64_t collrun_param_int(const struct collrun_ctx *ctx, const char *name)
{
    return reader_value(ctx, name, COLLRUN_PARAM_INT)->as.number;
}

double collrun_param_float(const struct collrun_ctx *ctx, const char *name)
{
    return reader_value(ctx, name, COLLRUN_PARAM_FLOAT)->as.real;
}

bool collrun_param_bool(const struct collrun_ctx *ctx, const char *name)
{
    return reader_value(ctx, name, COLLRUN_PARAM_BOOL)->as.truth;
}

uint64_t collrun_param_size(const struct collrun_ctx *ctx, const char *name)
{
    return reader_value(ctx, name, COLLRUN_PARAM_SIZE)->as.amount;
}

uint64_t collrun_param_duration(const struct collrun_ctx *ctx, const char *name)
{
    return reader_value(ctx, name, COLLRUN_PARAM_DURATION)->as.amount;
}

int collrun_param_enum(const struct collrun_ctx *ctx, const char *name)
{
    return (int)reader_value(ctx, name, COLLRUN_PARAM_ENUM)->as.choice.index;
}

/* ---- lists ---- */

int collrun_param_count(const struct collrun_ctx *ctx, const char *name)
{
    return (int)reader_value(ctx, name, COLLRUN_PARAM_LIST)->as.list.n;
}

const char *collrun_param_string_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_text(reader_item(ctx, name, index, COLLRUN_PARAM_STRING));
}

int64_t collrun_param_int_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_item(ctx, name, index, COLLRUN_PARAM_INT)->as.number;
}

double collrun_param_float_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_item(ctx, name, index, COLLRUN_PARAM_FLOAT)->as.real;
}

bool collrun_param_bool_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_item(ctx, name, index, COLLRUN_PARAM_BOOL)->as.truth;
}

uint64_t collrun_param_size_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_item(ctx, name, index, COLLRUN_PARAM_SIZE)->as.amount;
}

uint64_t collrun_param_duration_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return reader_item(ctx, name, index, COLLRUN_PARAM_DURATION)->as.amount;
}

int collrun_param_enum_at(const struct collrun_ctx *ctx, const char *name, int index)
{
    return (int)reader_item(ctx, name, index, COLLRUN_PARAM_ENUM)->as.choice.index;
}

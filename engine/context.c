/* SPDX-License-Identifier: Apache-2.0
 *
 * What a workload asks about its job, its parameters and itself, and what it tells the runner.
 */
#include "base/loop.h"
#include "engine.h"
#include "reduce.h"
#include "task.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PROGRESS_GAP_NS = 100000000, LOG_LEN = 4096 };

/* ---- the job ---- */

static const struct desc_rank *me(const struct collrun_ctx *ctx)
{
    return &ctx->engine->desc.ranks[ctx->engine->rank];
}

int collrun_world_rank(const struct collrun_ctx *ctx)
{
    return (int)ctx->engine->rank;
}

int collrun_world_size(const struct collrun_ctx *ctx)
{
    return (int)ctx->engine->desc.nranks;
}

int collrun_local_rank(const struct collrun_ctx *ctx)
{
    return (int)me(ctx)->local_rank;
}

int collrun_local_size(const struct collrun_ctx *ctx)
{
    return (int)ctx->engine->desc.hosts[me(ctx)->host].nranks;
}

int collrun_attempt(const struct collrun_ctx *ctx)
{
    return (int)ctx->engine->attempt;
}

int collrun_gpu_count(const struct collrun_ctx *ctx)
{
    return (int)ctx->engine->ngpus;
}

const char *collrun_host(const struct collrun_ctx *ctx)
{
    return ctx->engine->desc.hosts[me(ctx)->host].name;
}

const char *collrun_run_id(const struct collrun_ctx *ctx)
{
    return ctx->engine->desc.run_id;
}

const char *collrun_run_dir(const struct collrun_ctx *ctx)
{
    return ctx->engine->desc.run_dir;
}

size_t collrun_dtype_size(enum collrun_dtype dtype)
{
    return dtype_size(dtype);
}

/* ---- parameters ---- */

static const struct param_value *param(const struct collrun_ctx *ctx, const char *name,
                                       enum collrun_param_type type)
{
    const struct param_value *v = name ? params_find(&ctx->params, name) : NULL;
    if (!v)
        task_misused(ctx, "workload \"%s\" asks for a parameter \"%s\", which it does not declare",
                     ctx->desc->name, name ? name : "(null)");
    else if (v->type != type)
        task_misused(ctx, "workload \"%s\" asks for parameter \"%s\" as %s; it is declared as %s",
                     ctx->desc->name, name, params_type_name(type), params_type_name(v->type));
    return v && v->type == type ? v : NULL;
}

const char *collrun_param_string(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_STRING);
    return v ? v->as.string : "";
}

int64_t collrun_param_int(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_INT);
    return v ? v->as.number : 0;
}

double collrun_param_float(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_FLOAT);
    return v ? v->as.real : 0;
}

bool collrun_param_bool(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_BOOL);
    return v && v->as.truth;
}

uint64_t collrun_param_size(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_SIZE);
    return v ? v->as.amount : 0;
}

uint64_t collrun_param_duration(const struct collrun_ctx *ctx, const char *name)
{
    const struct param_value *v = param(ctx, name, COLLRUN_PARAM_DURATION);
    return v ? v->as.amount : 0;
}

/* ---- telling the runner ---- */

/* At most ten a second; the last one always goes. */
static bool progress_is_due(struct collrun_ctx *ctx, uint64_t done, uint64_t total)
{
    uint64_t now = now_ns();
    pthread_mutex_lock(&ctx->words_lock);
    bool due = now >= ctx->next_progress_ns || (total && done >= total);
    if (due)
        ctx->next_progress_ns = now + PROGRESS_GAP_NS;
    pthread_mutex_unlock(&ctx->words_lock);
    return due;
}

void collrun_progress(struct collrun_ctx *ctx, uint64_t done, uint64_t total, const char *what)
{
    size_t mark;
    if (!progress_is_due(ctx, done, total))
        return;
    struct buf *out = control_begin(&ctx->engine->control, WIRE_PROGRESS, &mark);
    buf_put_u32(out, ctx->index);
    buf_put_u64(out, done);
    buf_put_u64(out, total);
    buf_put_str(out, what);
    control_end(&ctx->engine->control, mark);
}

void collrun_metric(struct collrun_ctx *ctx, const char *name, double value)
{
    size_t mark;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    struct buf *out = control_begin(&ctx->engine->control, WIRE_METRIC, &mark);
    buf_put_u32(out, ctx->index);
    buf_put_str(out, name);
    buf_put_u64(out, bits);
    control_end(&ctx->engine->control, mark);
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
    control_log(&ctx->engine->control, level, text);
}

int collrun_fail(struct collrun_ctx *ctx, const char *format, ...)
{
    char text[sizeof ctx->said];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&ctx->words_lock);
    if (!ctx->said[0]) /* the first to say why knows best */
        memcpy(ctx->said, text, sizeof text);
    pthread_mutex_unlock(&ctx->words_lock);
    return 1;
}

bool collrun_stopping(const struct collrun_ctx *ctx)
{
    unsigned events = CONTROL_ABORT | (ctx->desc->background ? CONTROL_STOP_BACKGROUND : 0u);
    return control_has(&ctx->engine->control, events);
}

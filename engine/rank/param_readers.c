/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of collrun.h that read parameters. A name that is not declared, another type or an
 * index out of range is a misuse by the workload, which fails with that message when it returns.
 */
#include "rank/task.h"

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * An error is kept for harness_error() and stored where the engine's half (progress/p2p.c) looks
 * for it.
 */
#include "harness_services.h"

#include "core/error.h"
#include "core/services.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[1024];

static void log_line(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    const struct harness_rank *r = ctx;
    if (level > COLLRUN_LOG_WARN && !getenv("HARNESS_VERBOSE"))
        return;
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "# rank %u: %s\n", r->rank, text);
}

static int store_error(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    va_list ap;
    va_start(ap, format);
    vsnprintf(last_error, sizeof(last_error), format, ap);
    va_end(ap);
    return error_cause(status, "%s", last_error); /* where the engine's half looks for it */
}

static const char *option(void *ctx, const char *key)
{
    const struct harness_rank *r = ctx;
    for (const char *const *s = r->options->settings; s && s[0]; s += 2)
        if (strcmp(s[0], key) == 0)
            return s[1];
    return NULL;
}

static int memory_kind(void *ctx, const void *ptr)
{
    (void)ctx;
    (void)ptr;
    return COLLRUN_MEMORY_HOST;
}

const char *harness_error(void)
{
    return last_error;
}

static void lent_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                               uint32_t rank_b, const struct collrun_call *b, char *out, size_t len)
{
    (void)ctx;
    struct services engine;
    services_init(&engine, NULL, NULL, NULL, "harness");
    engine.table.mismatch_text(&engine, rank_a, a, rank_b, b, out, len);
}

static int lent_fail_mismatch(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                              uint32_t rank_b, const struct collrun_call *b)
{
    lent_mismatch_text(ctx, rank_a, a, rank_b, b, last_error, sizeof last_error);
    return COLLRUN_ERR_MISMATCH;
}

static void lent_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                              uint64_t waited_ns, char *out, size_t len)
{
    (void)ctx;
    struct services engine;
    services_init(&engine, NULL, NULL, NULL, "harness");
    engine.table.timeout_text(&engine, rank, missing, nmissing, waited_ns, out, len);
}

static void lent_count_mismatch_text(void *ctx, const struct collrun_count_mismatch *counts,
                                     char *out, size_t len)
{
    (void)ctx;
    struct services engine;
    services_init(&engine, NULL, NULL, NULL, "harness");
    engine.table.count_mismatch_text(&engine, counts, out, len);
}

static int lent_fail_timeout(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                             uint64_t waited_ns)
{
    lent_timeout_text(ctx, rank, missing, nmissing, waited_ns, last_error, sizeof last_error);
    return COLLRUN_ERR_TIMEOUT;
}

struct collrun_services harness_services(struct harness_rank *owner)
{
    struct services engine;
    services_init(&engine, NULL, NULL, NULL, "harness");
    struct collrun_services s = engine.table;
    s.ctx = owner;
    s.log = log_line;
    s.fail = store_error;
    s.option = option;
    s.memory_kind = memory_kind;
    s.mismatch_text = lent_mismatch_text;
    s.fail_mismatch = lent_fail_mismatch;
    s.timeout_text = lent_timeout_text;
    s.count_mismatch_text = lent_count_mismatch_text;
    s.fail_timeout = lent_fail_timeout;
    return s;
}

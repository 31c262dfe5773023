/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions behind struct collrun_services.
 */
#include "services.h"

#include "base/desc.h"
#include "control.h"
#include "error.h"
#include "gpu.h"
#include "names.h"
#include "reduce.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void lent_log(void *ctx, enum collrun_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int lent_fail(void *ctx, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void lent_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    struct services *s = ctx;
    if (!s->control)
        return;
    char text[1024];
    int n = snprintf(text, sizeof text, "%s: ", s->speaker);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    control_log(s->control, level, text);
}

static int lent_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return status;
}

static const char *lent_option(void *ctx, const char *key)
{
    const struct services *s = ctx;
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; s->options[i] && k < s->options[i]->n; k++) {
            if (strcmp(s->options[i]->items[k].key, key) == 0)
                return s->options[i]->items[k].value;
        }
    }
    return NULL;
}

static int lent_memory_kind(void *ctx, const void *ptr)
{
    (void)ctx;
    return (int)gpu_memory_kind(ptr, NULL);
}

static const char *lent_dtype_name(enum collrun_dtype dtype)
{
    const char *name = dtype_name(dtype);
    return name ? name : "?";
}

void services_init(struct services *s, struct control *control, const struct desc_kvs *first,
                   const struct desc_kvs *second, const char *speaker_format, ...)
{
    va_list args;
    va_start(args, speaker_format);
    vsnprintf(s->speaker, sizeof s->speaker, speaker_format, args);
    va_end(args);
    s->control = control;
    s->options[0] = first;
    s->options[1] = second;
    s->lent = (struct collrun_services){.size = sizeof s->lent,
                                        .ctx = s,
                                        .log = lent_log,
                                        .fail = lent_fail,
                                        .option = lent_option,
                                        .memory_kind = lent_memory_kind,
                                        .dtype_size = dtype_size,
                                        .reduce = reduce_vectors,
                                        .dtype_name = lent_dtype_name};
}

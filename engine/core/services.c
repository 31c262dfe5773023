/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions behind struct collrun_services.
 */
#include "core/services.h"

#include "base/call_text.h"
#include "base/debug.h"
#include "base/desc.h"
#include "base/loop.h"
#include "base/names.h"
#include "base/network.h"
#include "base/standstill.h"
#include "base/thread.h"
#include "core/control.h"
#include "core/error.h"
#include "core/match.h"
#include "core/memory_kind.h"
#include "core/reduce.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void services_log(void *ctx, enum collrun_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int services_fail(void *ctx, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void services_debug_line(void *ctx, enum collrun_debug area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void services_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    struct services *s = ctx;
    if (!s->control)
        return;
    char text[1024];
    int n = snprintf(text, sizeof text, "%s: ", s->log_prefix);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    control_log(s->control, level, text);
}

static int services_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return status;
}

_Static_assert(COLLRUN_DEBUG_LINK == 1u << DEBUG_LINK && COLLRUN_DEBUG_COORD == 1u << DEBUG_COORD &&
                   COLLRUN_DEBUG_GROUP == 1u << DEBUG_GROUP,
               "the areas of a backend are those of base/debug.h");

static void services_debug_line(void *ctx, enum collrun_debug area, const char *format, ...)
{
    const struct services *s = ctx;
    char text[DEBUG_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    debug_write((enum debug_area)__builtin_ctz(area), "%s: %s", s->log_prefix, text);
}

static const char *services_option(void *ctx, const char *key)
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

static int services_memory_kind(void *ctx, const void *ptr)
{
    const struct services *s = ctx;
    bool on_device = s->kind && memory_kind_locate(s->kind, ptr, NULL);
    return on_device ? COLLRUN_MEMORY_DEVICE : COLLRUN_MEMORY_HOST;
}

/* ---- mismatches and time-outs ---- */

/* The parameters are the ABI's. NOLINTNEXTLINE(readability-function-size) */
static void services_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                                   uint32_t rank_b, const struct collrun_call *b, char *out,
                                   size_t len)
{
    const struct services *s = ctx;
    const struct failure_call first = {rank_a, a}, second = {rank_b, b};
    failure_text_mismatch(s->world_rank, &first, &second, out, len);
}

static int services_fail_mismatch(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                                  uint32_t rank_b, const struct collrun_call *b)
{
    char text[512];
    services_mismatch_text(ctx, rank_a, a, rank_b, b, text, sizeof text);
    return error_cause(COLLRUN_ERR_MISMATCH, "%s", text);
}

/* The host at the other end of a connection without an answer, if it is certain: the only other one
 * of the missing ranks, or, if they are here and wait themselves, of the job. Else NULL. */
static const char *services_other_host(const struct services *s, const uint32_t *missing,
                                       uint32_t nmissing)
{
    const uint32_t own = s->host;
    uint32_t found = own;
    for (uint32_t i = 0; i < nmissing; i++) {
        const uint32_t rank = s->world_rank[missing[i]];
        const uint32_t host = rank < s->desc->nranks ? s->desc->ranks[rank].host : own;
        if (host != own && found != own && host != found)
            return NULL;
        found = host != own ? host : found;
    }
    if (found == own && s->desc->nhosts == 2)
        found = 1 - own;
    return found != own ? s->desc->hosts[found].name : NULL;
}

/* Adds "; no answer from 10.2.0.7 port 4711 for 5.9 s (3 retransmissions, 65536 bytes
 * unacknowledged): the network between hosts a and b may be cut". Also a rank without connections
 * takes NETWORK_ANSWER_MS: those that wait for another rank of its host are not reported before
 * that one has looked at its connections. */
static void services_explain_network(const struct services *s, const uint32_t *missing,
                                     uint32_t nmissing, char *text, size_t len)
{
    struct network_survey survey;
    struct network_fault fault = {.found = false};
    char what[NETWORK_TEXT];
    const size_t at = strlen(text);
    network_begin(&survey, getpid());
    while (!network_poll(&survey))
        poll(NULL, 0, NETWORK_TICK_MS);
    if (!network_end(&survey, s->address, &fault))
        return;
    network_fault_text(&fault, what);
    const char *other = services_other_host(s, missing, nmissing);
    if (other)
        snprintf(text + at, len - at, "; %s: the network between hosts %s and %s may be cut", what,
                 s->desc->hosts[s->host].name, other);
    else
        snprintf(text + at, len - at, "; %s", what);
}

/* The parameters are the ABI's. NOLINTNEXTLINE(readability-function-size) */
static void services_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing,
                                  uint32_t nmissing, uint64_t waited_ns, char *out, size_t len)
{
    const struct services *s = ctx;
    const struct failure_wait wait = {
        .rank = rank, .nmissing = nmissing, .missing = missing, .waited_ns = waited_ns};
    failure_text_timeout(s->world_rank, &wait, out, len);
    if (s->desc && s->desc->nhosts > 1 && s->address && waited_ns >= NETWORK_LEAST_NS)
        services_explain_network(s, missing, nmissing, out, len);
}

static void services_count_mismatch_text(void *ctx, const struct collrun_count_mismatch *counts,
                                         char *out, size_t len)
{
    const struct services *s = ctx;
    failure_text_counts(s->world_rank, counts, out, len);
}

static uint64_t services_stopped_ns(void *ctx)
{
    (void)ctx;
    return standstill_total(now_ns());
}

static int services_fail_timeout(void *ctx, uint32_t rank, const uint32_t *missing,
                                 uint32_t nmissing, uint64_t waited_ns)
{
    char text[512];
    services_timeout_text(ctx, rank, missing, nmissing, waited_ns, text, sizeof text);
    return error_cause(COLLRUN_ERR_TIMEOUT, "%s", text);
}

/* ---- threads and connections ---- */

static int services_thread_start(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    (void)ctx;
    int err = thread_start(thread, 0, run, arg);
    return err ? error_cause(COLLRUN_ERR_SYSTEM, "cannot start a thread: %s", strerror(err))
               : COLLRUN_OK;
}

static int services_connect(void *ctx, const struct sockaddr *address, uint32_t len,
                            uint64_t deadline_ns, int *fd)
{
    (void)ctx;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    int err = tcp_connect(address, len, deadline_ns, -1, fd);
    if (!err && !debug_on(DEBUG_LINK))
        return COLLRUN_OK;
    getnameinfo(address, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    debug_log(DEBUG_LINK, "connect to %s port %s: %s", host, port, err ? strerror(err) : "done");
    if (!err)
        return COLLRUN_OK;
    return error_cause(err == ETIMEDOUT ? COLLRUN_ERR_TIMEOUT : COLLRUN_ERR_SYSTEM,
                       "cannot connect to %s port %s: %s", host, port, strerror(err));
}

void services_init(struct services *s, struct control *control, const struct desc_kvs *first,
                   const struct desc_kvs *second, const char *prefix_format, ...)
{
    va_list args;
    va_start(args, prefix_format);
    vsnprintf(s->log_prefix, sizeof s->log_prefix, prefix_format, args);
    va_end(args);
    s->control = control;
    s->options[0] = first;
    s->options[1] = second;
    s->world_rank = NULL;
    s->desc = NULL;
    s->kind = NULL;
    s->table = (struct collrun_services){.size = sizeof s->table,
                                         .ctx = s,
                                         .log = services_log,
                                         .fail = services_fail,
                                         .option = services_option,
                                         .memory_kind = services_memory_kind,
                                         .dtype_size = dtype_size,
                                         .reduce = reduce_vectors,
                                         .dtype_name = dtype_name,
                                         .kind_name = kind_name,
                                         .op_name = op_name,
                                         .call_text = call_text,
                                         .mismatch_text = services_mismatch_text,
                                         .fail_mismatch = services_fail_mismatch,
                                         .timeout_text = services_timeout_text,
                                         .count_mismatch_text = services_count_mismatch_text,
                                         .fail_timeout = services_fail_timeout,
                                         .thread_start = services_thread_start,
                                         .connect = services_connect,
                                         .match = &match_ops,
                                         .stopped_ns = services_stopped_ns,
                                         .now_ns = now_ns,
                                         .debug = debug_areas(),
                                         .debug_line = services_debug_line};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload whose reports contain what JSON and terminals cannot take, or arrive late.
 */
#include <collrun/collrun.h>
#include <collrun/workload.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { CONTROL_FD = 3 };

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .def = "forge"},
    {.name = "pad", .type = COLLRUN_PARAM_INT, .def = "0"},
    {0}};

/* Characters of three bytes, behind `pad` of one. */
static int fail_at_length(struct collrun_ctx *ctx)
{
    char text[2048] = "";
    int64_t pad = collrun_param_int(ctx, "pad");
    memset(text, 'x', (size_t)pad);
    for (int i = 0; i < 300; i++)
        memcpy(text + pad + 3 * i, "\xe6\xbc\xa2", 4);
    return collrun_fail(ctx, "%s", text);
}

static int fail_in_latin1(struct collrun_ctx *ctx)
{
    return collrun_fail(ctx, "caf\xe9 is closed");
}

static int send_metrics(struct collrun_ctx *ctx)
{
    collrun_metric(ctx, "loss", 1.5);
    collrun_metric(ctx, "loss", NAN);
    collrun_metric(ctx, "low", -INFINITY);
    collrun_metric(ctx, "bad\xff", 2.5);
    return 0;
}

/* The reason of the failure is behind 16 MB, all of which the socket can hold. */
static int fail_after_much(struct collrun_ctx *ctx)
{
    int room = 64 << 20;
    char text[4000];
    if (setsockopt(CONTROL_FD, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
        puts("unprivileged"), fflush(stdout);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 4000; i++)
        collrun_log(ctx, COLLRUN_LOG_DEBUG, "%s", text);
    return collrun_fail(ctx, "the real reason");
}

static int forge(struct collrun_ctx *ctx)
{
    collrun_log(ctx, COLLRUN_LOG_WARN,
                "a\033]0;title\007b \xc2\x9b" /* CSI */ "31m \xe2\x80\xae" /* right to left */
                "c\ncollrun: error: forged");
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    const char *what = collrun_param_string(ctx, "do");
    (void)state;
    return strcmp(what, "fail") == 0     ? fail_at_length(ctx)
           : strcmp(what, "latin1") == 0 ? fail_in_latin1(ctx)
           : strcmp(what, "metric") == 0 ? send_metrics(ctx)
           : strcmp(what, "late") == 0   ? fail_after_much(ctx)
                                         : forge(ctx);
}

COLLRUN_WORKLOAD(.name = "hostile", .run = run, .params = params);

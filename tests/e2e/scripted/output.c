/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that write output or notes, or report to the engine.
 */
#include "scripted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno != EINTR)
            _exit(99);
        if (n > 0)
            data += n, len -= (size_t)n;
    }
}

static int do_print(struct script *s, char *args)
{
    (void)s;
    printf("%s\n", args);
    fflush(stdout);
    return GO_ON;
}

static int do_err(struct script *s, char *args)
{
    (void)s;
    fprintf(stderr, "%s\n", args);
    return GO_ON;
}

static int do_bare(struct script *s, char *args)
{
    (void)s;
    put(args, strlen(args));
    return GO_ON;
}

static int do_hex(struct script *s, char *args)
{
    (void)s;
    for (char *at = args; *at != '\0';) {
        char byte = (char)strtol(at, &at, 16);
        put(&byte, 1);
        at += strspn(at, " ");
    }
    return GO_ON;
}

/* One line of `n` letters, written in pieces. */
static int do_long(struct script *s, char *args)
{
    char piece[1000];
    long n = atol(args);
    memset(piece, 'a' + collrun_world_rank(s->ctx), sizeof piece);
    for (; n > 0; n -= (long)sizeof piece)
        put(piece, n < (long)sizeof piece ? (size_t)n : sizeof piece);
    put("\n", 1);
    return GO_ON;
}

/* `lines` numbered lines of `width` bytes. */
static int do_spew(struct script *s, char *args)
{
    char line[1000];
    long lines = strtol(args, &args, 10), width = strtol(args, NULL, 10);
    for (long i = 0; i < lines; i++) {
        int len = snprintf(line, sizeof line, "%d %ld ", collrun_world_rank(s->ctx), i);
        memset(line + len, 'x', sizeof line - (size_t)len);
        line[width - 1] = '\n';
        put(line, (size_t)width);
    }
    return GO_ON;
}

static int do_env(struct script *s, char *args)
{
    const char *value = getenv(args);
    (void)s;
    printf(value != NULL ? "%s=%s\n" : "%s is unset\n", args, value);
    fflush(stdout);
    return GO_ON;
}

static int do_job(struct script *s, char *args)
{
    (void)args;
    printf("rank %d of %d, local %d of %d, attempt %d, host %s, run %s, dir %s\n",
           collrun_world_rank(s->ctx), collrun_world_size(s->ctx), collrun_local_rank(s->ctx),
           collrun_local_size(s->ctx), collrun_attempt(s->ctx), collrun_host(s->ctx),
           collrun_run_id(s->ctx), collrun_run_dir(s->ctx));
    fflush(stdout);
    return GO_ON;
}

static int do_note(struct script *s, char *args)
{
    note(s, "%s", args);
    return GO_ON;
}

static int do_pid(struct script *s, char *args)
{
    (void)args;
    note(s, "pid %ld", (long)getpid());
    return GO_ON;
}

static int do_read(struct script *s, char *args)
{
    char byte;
    (void)args;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    note(s, "read %zd", n);
    return GO_ON;
}

static int do_progress(struct script *s, char *args)
{
    collrun_progress(s->ctx, 1, 10, args);
    collrun_metric(s->ctx, "speed", 1.5);
    collrun_log(s->ctx, COLLRUN_LOG_DEBUG, "%s", args);
    return GO_ON;
}

/* N steps of MS each; the progress is reported after each. */
static int do_advance(struct script *s, char *args)
{
    long n = strtol(args, &args, 10), ms = strtol(args, &args, 10);
    for (long i = 0; i < n; i++) {
        pause_ms(ms);
        collrun_progress(s->ctx, (uint64_t)i + 1, (uint64_t)n, args + strspn(args, " "));
    }
    return GO_ON;
}

static int do_warn(struct script *s, char *args)
{
    collrun_log(s->ctx, COLLRUN_LOG_WARN, "%s", args);
    return GO_ON;
}

/* N debug messages of 500 bytes. */
static int do_log(struct script *s, char *args)
{
    for (long n = strtol(args, NULL, 10); n > 0; n--)
        collrun_log(s->ctx, COLLRUN_LOG_DEBUG, "%0500ld", n);
    return GO_ON;
}

const struct command output_commands[] = {
    {"print", do_print}, /* TEXT */
    {"err", do_err},     /* TEXT */
    {"bare", do_bare},   /* TEXT, without a newline */
    {"hex", do_hex},     /* BYTES */
    {"long", do_long},   /* N */
    {"spew", do_spew},   /* LINES WIDTH */
    {"env", do_env},     /* NAME */
    {"job", do_job},
    {"note", do_note}, /* TEXT */
    {"pid", do_pid},
    {"read", do_read},
    {"progress", do_progress}, /* TEXT */
    {"advance", do_advance},   /* N MS TEXT */
    {"warn", do_warn},         /* TEXT */
    {"log", do_log},           /* N */
    {NULL, NULL},
};

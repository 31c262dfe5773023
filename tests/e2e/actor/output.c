/* SPDX-License-Identifier: Apache-2.0
 *
 * What an actor prints, notes and tells the engine.
 */
#include "actor.h"

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

static int do_print(struct actor *a, char *words)
{
    (void)a;
    printf("%s\n", words);
    fflush(stdout);
    return GO_ON;
}

static int do_err(struct actor *a, char *words)
{
    (void)a;
    fprintf(stderr, "%s\n", words);
    return GO_ON;
}

static int do_bare(struct actor *a, char *words)
{
    (void)a;
    put(words, strlen(words));
    return GO_ON;
}

static int do_hex(struct actor *a, char *words)
{
    (void)a;
    for (char *at = words; *at != '\0';) {
        char byte = (char)strtol(at, &at, 16);
        put(&byte, 1);
        at += strspn(at, " ");
    }
    return GO_ON;
}

/* One line of `n` letters, in pieces. */
static int do_long(struct actor *a, char *words)
{
    char piece[1000];
    long n = atol(words);
    memset(piece, 'a' + collrun_world_rank(a->ctx), sizeof piece);
    for (; n > 0; n -= (long)sizeof piece)
        put(piece, n < (long)sizeof piece ? (size_t)n : sizeof piece);
    put("\n", 1);
    return GO_ON;
}

/* `lines` numbered lines of `width` bytes. */
static int do_spew(struct actor *a, char *words)
{
    char line[1000];
    long lines = strtol(words, &words, 10), width = strtol(words, NULL, 10);
    for (long i = 0; i < lines; i++) {
        int len = snprintf(line, sizeof line, "%d %ld ", collrun_world_rank(a->ctx), i);
        memset(line + len, 'x', sizeof line - (size_t)len);
        line[width - 1] = '\n';
        put(line, (size_t)width);
    }
    return GO_ON;
}

static int do_env(struct actor *a, char *words)
{
    const char *value = getenv(words);
    (void)a;
    printf(value != NULL ? "%s=%s\n" : "%s is unset\n", words, value);
    fflush(stdout);
    return GO_ON;
}

static int do_job(struct actor *a, char *words)
{
    (void)words;
    printf("rank %d of %d, local %d of %d, attempt %d, host %s, run %s, dir %s\n",
           collrun_world_rank(a->ctx), collrun_world_size(a->ctx), collrun_local_rank(a->ctx),
           collrun_local_size(a->ctx), collrun_attempt(a->ctx), collrun_host(a->ctx),
           collrun_run_id(a->ctx), collrun_run_dir(a->ctx));
    fflush(stdout);
    return GO_ON;
}

static int do_note(struct actor *a, char *words)
{
    note(a, "%s", words);
    return GO_ON;
}

static int do_pid(struct actor *a, char *words)
{
    (void)words;
    note(a, "pid %ld", (long)getpid());
    return GO_ON;
}

static int do_read(struct actor *a, char *words)
{
    char byte;
    (void)words;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    note(a, "read %zd", n);
    return GO_ON;
}

static int do_progress(struct actor *a, char *words)
{
    collrun_progress(a->ctx, 1, 10, words);
    collrun_metric(a->ctx, "speed", 1.5);
    collrun_log(a->ctx, COLLRUN_LOG_DEBUG, "%s", words);
    return GO_ON;
}

/* N steps of MS each, told of as they are done. */
static int do_advance(struct actor *a, char *words)
{
    long n = strtol(words, &words, 10), ms = strtol(words, &words, 10);
    for (long i = 0; i < n; i++) {
        pause_ms(ms);
        collrun_progress(a->ctx, (uint64_t)i + 1, (uint64_t)n, words + strspn(words, " "));
    }
    return GO_ON;
}

static int do_warn(struct actor *a, char *words)
{
    collrun_log(a->ctx, COLLRUN_LOG_WARN, "%s", words);
    return GO_ON;
}

const struct verb verbs_of_output[] = {
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
    {NULL, NULL},
};

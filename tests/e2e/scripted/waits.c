/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that block the rank, or change how it can be stopped.
 */
#include "scripted.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t terminated;

static void on_term(int sig)
{
    (void)sig;
    terminated = 1;
}

static int do_sleep(struct script *s, char *args)
{
    (void)s;
    pause_ms(atol(args));
    return GO_ON;
}

/* The number of ranks (the test counts as one) whose notes contain `text`. */
static long noters(const struct script *s, const char *text)
{
    char path[600], notes[65536];
    long n = 0;
    for (int rank = -1; rank < collrun_world_size(s->ctx); rank++) {
        snprintf(path, sizeof path, rank < 0 ? "%s/notes.test" : "%s/notes.%d", s->dir, rank);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        notes[fread(notes, 1, sizeof notes - 1, f)] = '\0';
        n += strstr(notes, text) != NULL;
        fclose(f);
    }
    return n;
}

static int do_await(struct script *s, char *args)
{
    long n = strtol(args, &args, 10);
    const char *text = args + strspn(args, " ");
    for (int tries = 0; noters(s, text) < n; tries++) {
        if (tries == 5000) /* 25 s: less than the time limit of a job */
            return collrun_fail(s->ctx, "fewer than %ld ranks have noted \"%s\"", n, text);
        pause_ms(5);
    }
    return GO_ON;
}

static int do_hang(struct script *s, char *args)
{
    (void)s;
    (void)args;
    for (;;)
        pause_ms(1000);
    return GO_ON;
}

static int do_spin(struct script *s, char *args)
{
    (void)s;
    (void)args;
    for (volatile unsigned i = 0;; i++)
        continue;
    return GO_ON;
}

static int do_ignore(struct script *s, char *args)
{
    (void)s;
    signal(atoi(args), SIG_IGN);
    return GO_ON;
}

/* Closes every descriptor from N on, including those of the engine. */
static int do_close_from(struct script *s, char *args)
{
    (void)s;
    for (int fd = atoi(args); fd < 1024; fd++)
        close(fd);
    return GO_ON;
}

static int do_close(struct script *s, char *args)
{
    (void)s;
    close(atoi(args));
    return GO_ON;
}

/* Writes text to a descriptor that it has not opened. */
static int do_scribble(struct script *s, char *args)
{
    (void)s;
    dprintf(atoi(args), "a line that is meant for another descriptor\n");
    return GO_ON;
}

/* Writes the head of a frame of 1 MiB to a descriptor that it has not opened: nothing follows. */
static int do_half_frame(struct script *s, char *args)
{
    const unsigned char head[16] = {0, 0, 16, 0, 69};
    (void)s;
    return write(atoi(args), head, sizeof head) == sizeof head ? GO_ON : 1;
}

/* Returns when the job stops or SIGTERM arrives; notes "waiting" before and "stopped" after. */
static int do_until_stopped(struct script *s, char *args)
{
    (void)args;
    signal(SIGTERM, on_term);
    note(s, "waiting");
    while (!collrun_stopping(s->ctx) && !terminated)
        pause_ms(5);
    pause_ms(100);
    note(s, "stopped");
    return GO_ON;
}

const struct command wait_commands[] = {
    {"sleep", do_sleep}, /* MS */
    {"await", do_await}, /* N TEXT: until N ranks have noted it */
    {"hang", do_hang},
    {"spin", do_spin},
    {"ignore", do_ignore},         /* SIGNAL */
    {"close-from", do_close_from}, /* N */
    {"close", do_close},           /* N */
    {"scribble", do_scribble},     /* N */
    {"half-frame", do_half_frame}, /* N */
    {"until-stopped", do_until_stopped},
    {NULL, NULL},
};

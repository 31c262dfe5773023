/* SPDX-License-Identifier: Apache-2.0
 *
 * What keeps an actor from going on.
 */
#include "actor.h"

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

static int do_sleep(struct actor *a, char *words)
{
    (void)a;
    pause_ms(atol(words));
    return GO_ON;
}

/* How many of the ranks, and the test itself, have noted this in DIR. */
static long noters(const struct actor *a, const char *text)
{
    char path[600], notes[65536];
    long n = 0;
    for (int rank = -1; rank < collrun_world_size(a->ctx); rank++) {
        snprintf(path, sizeof path, rank < 0 ? "%s/notes.test" : "%s/notes.%d", a->dir, rank);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        notes[fread(notes, 1, sizeof notes - 1, f)] = '\0';
        n += strstr(notes, text) != NULL;
        fclose(f);
    }
    return n;
}

static int do_await(struct actor *a, char *words)
{
    long n = strtol(words, &words, 10);
    const char *text = words + strspn(words, " ");
    for (int tries = 0; noters(a, text) < n; tries++) {
        if (tries == 5000) /* 25 s: less than a test gives a job */
            return collrun_fail(a->ctx, "fewer than %ld have noted \"%s\"", n, text);
        pause_ms(5);
    }
    return GO_ON;
}

static int do_hang(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    for (;;)
        pause_ms(1000);
    return GO_ON;
}

static int do_spin(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    for (volatile unsigned i = 0;; i++)
        continue;
    return GO_ON;
}

static int do_ignore(struct actor *a, char *words)
{
    (void)a;
    signal(atoi(words), SIG_IGN);
    return GO_ON;
}

/* Every descriptor from N on, also those that are not the workload's. */
static int do_close_from(struct actor *a, char *words)
{
    (void)a;
    for (int fd = atoi(words); fd < 1024; fd++)
        close(fd);
    return GO_ON;
}

/* Until asked to stop, in whatever way; then says so. */
static int do_until_stopped(struct actor *a, char *words)
{
    (void)words;
    signal(SIGTERM, on_term);
    note(a, "waiting");
    while (!collrun_stopping(a->ctx) && !terminated)
        pause_ms(5);
    pause_ms(100);
    note(a, "stopped");
    return GO_ON;
}

const struct verb verbs_of_waits[] = {
    {"sleep", do_sleep}, /* MS */
    {"await", do_await}, /* N TEXT: until that many have noted it */
    {"hang", do_hang},
    {"spin", do_spin},
    {"ignore", do_ignore},         /* SIGNAL */
    {"close-from", do_close_from}, /* N */
    {"until-stopped", do_until_stopped},
    {NULL, NULL},
};

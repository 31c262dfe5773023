/* SPDX-License-Identifier: Apache-2.0
 *
 * What the actor's verbs share: the actor, its tables of verbs, and its notes.
 */
#ifndef TESTS_E2E_ACTOR_H
#define TESTS_E2E_ACTOR_H

#include <collrun/workload.h>

#include <signal.h>

enum { GO_ON = 1000 }; /* a verb's result, unless it ends the workload */

struct actor {
    struct collrun_ctx *ctx;
    const char *dir;
};

struct verb {
    const char *name;
    int (*run)(struct actor *a, char *words);
};
extern const struct verb verbs_of_ends[], verbs_of_waits[], verbs_of_output[], verbs_of_groups[];

extern volatile sig_atomic_t terminated; /* a SIGTERM has come that "until-stopped" waits for */

/* Until then, or until terminated. */
void pause_ms(long ms);
/* A line in DIR/notes.RANK. */
void note(const struct actor *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

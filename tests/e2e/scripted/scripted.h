/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands of the scripted workload share.
 */
#ifndef TESTS_E2E_SCRIPTED_H
#define TESTS_E2E_SCRIPTED_H

#include <collrun/workload.h>

#include <signal.h>

enum { GO_ON = 1000 }; /* result of a command after which the script continues */

struct script {
    struct collrun_ctx *ctx;
    const char *dir;
};

struct command {
    const char *name;
    int (*run)(struct script *s, char *args);
};
extern const struct command end_commands[], wait_commands[], output_commands[], group_commands[];

extern volatile sig_atomic_t terminated; /* set by SIGTERM once "until-stopped" runs */

/* Sleeps for `ms`, or until `terminated` is set. */
void pause_ms(long ms);
/* Appends a line to DIR/notes.RANK. */
void note(const struct script *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

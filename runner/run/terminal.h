/* SPDX-License-Identifier: Apache-2.0
 *
 * The terminal of collrun, while a rank has it (collrun JOB --wrap RANK COMMAND): every key goes to
 * the rank, Ctrl-C and Ctrl-Z too, and the terminal shows what the rank writes as it is.
 */
#ifndef RUNNER_RUN_TERMINAL_H
#define RUNNER_RUN_TERMINAL_H

#include "base/desc.h"

#include <termios.h>

struct terminal {
    bool taken;
    struct termios before;
};

/* Whether standard input and output are one terminal, with this process in its foreground. Fills in
 * all but the rank. */
bool terminal_describe(struct desc_terminal *out);
/* The size of the terminal; 24 rows of 80 characters if it has none. */
void terminal_size(uint16_t *rows, uint16_t *columns);
void terminal_take(struct terminal *t);
/* Restores it. No effect if it is not taken. */
void terminal_give(struct terminal *t);

#endif

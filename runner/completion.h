/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion scripts of shells, made from the tables of commands and options (opts_table.h).
 */
#ifndef RUNNER_COMPLETION_H
#define RUNNER_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

/* Prints the script for "bash", "zsh" or "fish". False: another shell; nothing is printed. */
bool completion_write(const char *shell, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun new: copies the files of a first project from share/collrun/new (in this tree:
 * runner/new) into a folder. @PREFIX@ in them becomes the prefix of this build.
 */
#ifndef RUNNER_NEW_H
#define RUNNER_NEW_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdio.h>

/* `kind`: the folder below share/collrun/new, "c" or "python". The folder is created if it is
 * missing. A file that exists already is an error, and then nothing is written. Prints to `out`
 * which files it has written, and how to continue. */
int new_project(const char *folder, const char *kind, struct arena *arena, FILE *out,
                struct diag *d);

#endif

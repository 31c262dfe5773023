/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the files of a run directory, which other programs, a host or a foreign archive may have
 * written. Only regular files below the folder are opened: a link, also one in the place of a
 * subfolder, could lead to a private file of the reader, and a FIFO would hang it. The folder
 * itself may be a link, since the user names it.
 */
#ifndef RUNNER_REPORT_RUN_FILE_H
#define RUNNER_REPORT_RUN_FILE_H

#include "base/diag.h"

#include <stdio.h>

/* `name` is a path below the folder, without "..". NULL: `d` says why; sys_errno is ENOENT if the
 * file is not there, and ELOOP if it is a link or below one. */
FILE *run_file_open(const char *folder, const char *name, struct diag *d);

#endif

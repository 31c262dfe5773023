/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a trace, one per rank that was traced, by the parameter `trace`:
 *
 * - a folder: all files in it whose names do not begin with "."
 * - a pattern with *, ? or [...]: the files that it matches
 * - a file
 *
 * Several files are in the order of their names, numbers in them compared as numbers: file i is
 * that of rank i.
 */
#ifndef REPLAY_FILES_H
#define REPLAY_FILES_H

#include <stddef.h>

struct files {
    char **path;
    int n;
};

/* 0, or -1 with the reason in `error`. The caller calls files_fini in both cases. */
int files_find(struct files *f, const char *trace, char *error, size_t size);
void files_fini(struct files *f);
#endif

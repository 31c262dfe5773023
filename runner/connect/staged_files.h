/* SPDX-License-Identifier: Apache-2.0
 *
 * The files below a path of `stage_files`, with the places that they have in the copy on a host.
 *
 *  - A folder is read recursively, in the order of names. __pycache__ and .git are left out.
 *  - A symbolic link is replaced by what it names.
 *  - A file is executable in the copy if its owner may execute it; in the copy it is read-only.
 *
 * Failure modes, each an error: a link that names nothing, or a folder that contains it; a socket,
 * a FIFO or a device; a name that the script of staging.c cannot pass on; too many files or bytes.
 */
#ifndef RUNNER_CONNECT_STAGED_FILES_H
#define RUNNER_CONNECT_STAGED_FILES_H

#include "base/arena.h"
#include "base/diag.h"

enum { STAGED_FILES_MAX = 1024 };
#define STAGED_BYTES_MAX (512ull << 20)

struct staged_file {
    const char *source; /* absolute */
    const char *name;   /* below the copy: the place of `source`, without the first slash */
    bool executable;
};

struct staged_files {
    struct staged_file *items; /* STAGED_FILES_MAX of them are allocated */
    uint32_t n;
    uint64_t bytes;
};

/* Adds a file, or all files below a folder. `path` is absolute; "." and ".." are removed. */
int staged_files_add(struct staged_files *files, const char *path, struct arena *arena,
                     struct diag *d);
/* "/a/./b/../c/" -> "/a/c", as text: symbolic links are not followed. */
char *staged_files_normalize(const char *path, struct arena *arena);

#endif

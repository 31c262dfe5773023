/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths of the job file and of the command line. One rule holds for all of them: "~/" at the
 * beginning is the folder that HOME names, and a path that is not absolute starts in a folder.
 */
#ifndef RUNNER_SPEC_PATH_H
#define RUNNER_SPEC_PATH_H

#include "base/arena.h"
#include "base/diag.h"

/* Stores the path with "~" and "~/" replaced in *out, any other path as it is. `template`: the path
 * is a template (base/template.h). Fails for "~user", and if HOME is not set. */
int path_expand_home(const char *path, bool template, struct arena *arena, const char **out,
                     struct diag *d);

/* The path, in `folder` unless it is absolute: "/a" and "./b//c/./d" are "/a/b/c/d". Symbolic links
 * and ".." remain: a program may look at its own path. */
const char *path_join(const char *folder, const char *path, struct arena *arena);

/* The folder of a regular file, links resolved; of anything else, such as a pipe or NULL, the
 * working directory. */
const char *path_folder(const char *file, struct arena *arena);

#endif

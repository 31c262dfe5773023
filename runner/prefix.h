/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix of this build: the parent of the bin/ directory of the running collrun, both in the
 * build tree and when installed. All other parts are found relative to it, never through the
 * environment:
 *   libexec/collrun/collrun-{agent,engine}   lib/collrun/backends/libcollrun_NAME.so
 *   lib/collrun/workloads/NAME.so   lib/collrun/python/collrun
 */
#ifndef RUNNER_PREFIX_H
#define RUNNER_PREFIX_H

#include "base/arena.h"
#include "base/diag.h"

/* The absolute path of `relative` below the prefix. NULL: /proc/self/exe cannot be read; see *d. */
const char *prefix_path(struct arena *arena, const char *relative, struct diag *d);

/* The hint for `import collrun` where lib/collrun/python/collrun does not exist. */
#define PREFIX_NO_PYTHON                                                                           \
    "this build has no Python package, since Python.h was missing: install python3-dev, and "      \
    "build again with make"

/* The plugins installed in lib/collrun/backends or lib/collrun/workloads, sorted by name. */
enum prefix_kind { PREFIX_BACKENDS, PREFIX_WORKLOADS };
struct prefix_plugin {
    const char *name; /* of the file: lower case, without libcollrun_ and .so */
    const char *path; /* absolute */
};
struct prefix_plugins {
    struct prefix_plugin *items;
    uint32_t n;
};
int prefix_plugins(enum prefix_kind kind, struct arena *arena, struct prefix_plugins *out,
                   struct diag *d);

#endif

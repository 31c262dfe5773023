/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int engine_path(const char *given, char *path, size_t size, struct diag *d)
{
    if (given[0]) {
        snprintf(path, size, "%s", given);
        return COLLRUN_OK;
    }
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return diag_sys(d, errno, "cannot read the path of collrun-agent");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    if (size - dir < sizeof "collrun-engine")
        return diag_set(d, COLLRUN_ERR_SYSTEM, "the path of collrun-agent is too long");
    memcpy(path + dir, "collrun-engine", sizeof "collrun-engine");
    return COLLRUN_OK;
}

bool engine_path_beside(const char *engine, const char *name, char *path, size_t size)
{
    const char *slash = strrchr(engine, '/');
    int n = snprintf(path, size, "%.*s%s", slash ? (int)(slash - engine) + 1 : 0, engine, name);
    return n > 0 && (size_t)n < size && access(path, X_OK) == 0;
}

void engine_path_set_libraries(const char *engine)
{
    const char *slash = strrchr(engine, '/'), *old = getenv("LD_LIBRARY_PATH");
    char *folder = NULL, *path = NULL;
    if (asprintf(&folder, "%.*s/../../lib/collrun/private", slash ? (int)(slash - engine) : 0,
                 engine) < 0)
        return;
    if (access(folder, X_OK) == 0 &&
        asprintf(&path, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") >= 0) {
        setenv("LD_LIBRARY_PATH", path, 1);
        free(path);
    }
    free(folder);
}

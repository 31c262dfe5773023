/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rdma.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RDMA_ROOT "/sys/class/infiniband/"

static bool rdma_is_active(const char *file)
{
    char state[64] = "";
    FILE *f = fopen(file, "re");
    const bool read = f && fgets(state, sizeof state, f);
    if (f)
        fclose(f);
    return read && strstr(state, "ACTIVE");
}

/* In another process: UCX starts threads and handlers when it is loaded. */
static bool rdma_has_ucx(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        setenv("UCX_LOG_LEVEL", "fatal", 1);
        setenv("UCX_HANDLE_ERRORS", "none", 1);
        _exit(dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL) ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void rdma_ports(char *out, size_t size)
{
    glob_t files;
    size_t used = 0;
    out[0] = '\0';
    if (glob(RDMA_ROOT "*/ports/*/state", 0, NULL, &files) != 0)
        return;
    for (size_t i = 0; i < files.gl_pathc && used < size; i++) {
        char device[64], port[16];
        if (sscanf(files.gl_pathv[i], RDMA_ROOT "%63[^/]/ports/%15[^/]/", device, port) == 2 &&
            rdma_is_active(files.gl_pathv[i]))
            used += (size_t)snprintf(out + used, size - used, "%s%s:%s", used ? ", " : "", device,
                                     port);
    }
    globfree(&files);
    if (used && !rdma_has_ucx())
        out[0] = '\0';
}

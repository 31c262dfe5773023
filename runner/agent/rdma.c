/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rdma.h"

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
}

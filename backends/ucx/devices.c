/* SPDX-License-Identifier: Apache-2.0
 *
 * RDMA devices, as the kernel lists them in /sys/class/infiniband.
 */
#include "devices.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_ROOT "/sys/class/infiniband"

static bool devices_is_active(const char *name, const char *port)
{
    char path[600], state[64] = "";
    snprintf(path, sizeof path, DEVICES_ROOT "/%s/ports/%s/state", name, port);
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(state, sizeof state, f);
    if (f)
        fclose(f);
    return read && strstr(state, "ACTIVE");
}

static bool devices_has_interface(const char *name, const char *interface)
{
    char path[600];
    snprintf(path, sizeof path, DEVICES_ROOT "/%s/device/net/%s", name, interface);
    return access(path, F_OK) == 0;
}

static void devices_append(char *out, size_t len, const char *name, const char *port)
{
    const size_t used = strlen(out);
    if (used < len)
        snprintf(out + used, len - used, "%s%s%s%s", used ? "," : "", name, port ? ":" : "",
                 port ? port : "");
}

static unsigned devices_ports(const char *name, char *out, size_t len)
{
    char path[600];
    unsigned n = 0;
    snprintf(path, sizeof path, DEVICES_ROOT "/%s/ports", name);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && devices_is_active(name, e->d_name)) {
            devices_append(out, len, name, e->d_name);
            n++;
        }
    if (dir)
        closedir(dir);
    return n;
}

unsigned devices_rdma(const char *interface, char *out, size_t len)
{
    unsigned n = 0;
    out[0] = '\0';
    DIR *dir = opendir(DEVICES_ROOT);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && (!interface || devices_has_interface(e->d_name, interface)))
            n += devices_ports(e->d_name, out, len);
    if (dir)
        closedir(dir);
    return n;
}

void devices_choose(const char *option, const char *interface, char *out, size_t len)
{
    if (option && *option) {
        snprintf(out, len, "%s", option);
        return;
    }
    if (devices_rdma(interface, out, len) == 0)
        devices_rdma(NULL, out, len);
    devices_append(out, len, interface, NULL);
}

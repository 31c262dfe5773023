/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens libucp and finds its functions.
 */
#include "library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct symbol {
    const char *name;
    size_t offset; /* of its pointer in struct ucx_library */
};

#define LIBRARY_ROW(name) {#name, offsetof(struct ucx_library, name)},
static const struct symbol symbols[] = {UCX_FUNCTIONS(LIBRARY_ROW){NULL, 0}};

/* UCX reads these while it is loaded. A value of the user's is kept. */
static const struct setting {
    const char *name, *value;
} settings[] = {
    {"UCX_HANDLE_ERRORS", "none"},      {"UCX_ERROR_SIGNALS", ""},
    {"UCX_MEM_EVENTS", "no"},           {"UCX_MEM_MMAP_HOOK_MODE", "none"},
    {"UCX_MEM_CUDA_HOOK_MODE", "none"}, {"UCX_WARN_UNUSED_ENV_VARS", "no"},
    {"UCX_LOG_LEVEL", "fatal"},         {NULL, NULL},
};

static void *library_open(void)
{
    bool is_ours[sizeof settings / sizeof *settings] = {false};
    for (size_t i = 0; settings[i].name; i++)
        if ((is_ours[i] = !getenv(settings[i].name)))
            setenv(settings[i].name, settings[i].value, 0);
    void *object = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; settings[i].name; i++)
        if (is_ours[i])
            unsetenv(settings[i].name); /* programs that the rank starts do not inherit it */
    return object;
}

int library_load(struct ucx_library *library, char *why, size_t len)
{
    void *object = library_open();
    if (!object) {
        snprintf(why, len, "UCX cannot be loaded: %s; it is in the package libucx0", dlerror());
        return -1;
    }
    for (const struct symbol *s = symbols; s->name; s++) {
        void *address = dlsym(object, s->name);
        if (!address) {
            snprintf(why, len, "libucp.so.0 is too old: it lacks %s", s->name);
            return -1;
        }
        memcpy((char *)library + s->offset, &address, sizeof address);
    }
    return 0;
}

/* ---- devices ----
 *
 * RDMA devices, as the kernel lists them in /sys/class/infiniband.
 */

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

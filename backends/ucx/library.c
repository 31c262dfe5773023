/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens libucp and finds its functions.
 */
#include "library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

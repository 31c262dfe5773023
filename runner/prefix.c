/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/self/exe, and the two folders of plugins.
 */
#include "prefix.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *prefix_path(struct arena *arena, const char *relative, struct diag *d)
{
    char exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len < 0) {
        diag_sys(d, errno, "cannot read /proc/self/exe");
        return NULL;
    }
    exe[len] = '\0';
    for (int up = 0; up < 2; up++) { /* the program, then its bin/ */
        char *slash = strrchr(exe, '/');
        if (slash)
            *slash = '\0';
    }
    return arena_printf(arena, "%s/%s", exe, relative);
}

static int by_name(const void *a, const void *b)
{
    const struct prefix_plugin *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

/* "libcollrun_gloo.so" -> "gloo", "hello.so" -> "hello"; NULL for other files. */
static const char *plugin_name(const char *file, const char *head, struct arena *arena)
{
    size_t len = strlen(file), cut = strlen(head);
    if (len <= cut + 3 || strncmp(file, head, cut) != 0 || strcmp(file + len - 3, ".so") != 0)
        return NULL;
    char *name = arena_strndup(arena, file + cut, len - cut - 3);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return name;
}

static void add_plugin(struct prefix_plugins *out, const char *folder, const char *file,
                       const char *name, struct arena *arena)
{
    if (!(out->n & (out->n - 1))) { /* room for the next power of two */
        struct prefix_plugin *grown =
            arena_calloc(arena, out->n ? 2 * (size_t)out->n : 1, sizeof *grown);
        if (out->n)
            memcpy(grown, out->items, out->n * sizeof *grown);
        out->items = grown;
    }
    out->items[out->n++] = (struct prefix_plugin){name, arena_printf(arena, "%s/%s", folder, file)};
}

int prefix_plugins(enum prefix_kind kind, struct arena *arena, struct prefix_plugins *out,
                   struct diag *d)
{
    *out = (struct prefix_plugins){0};
    bool backends = kind == PREFIX_BACKENDS;
    const char *folder =
        prefix_path(arena, backends ? "lib/collrun/backends" : "lib/collrun/workloads", d);
    if (!folder)
        return d ? d->code : COLLRUN_ERR_SYSTEM;
    DIR *dir = opendir(folder);
    if (!dir) /* none installed */
        return errno == ENOENT ? 0 : diag_sys(d, errno, "cannot read %s", folder);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        const char *name = plugin_name(entry->d_name, backends ? "libcollrun_" : "", arena);
        if (name)
            add_plugin(out, folder, entry->d_name, name, arena);
    }
    closedir(dir);
    if (out->n)
        qsort(out->items, out->n, sizeof *out->items, by_name);
    return 0;
}

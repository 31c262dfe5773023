/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/path.h"

#include "base/quote.h"
#include "base/template.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int path_expand_home(const char *path, bool template, struct arena *arena, const char **out,
                     struct diag *d)
{
    if (path[0] != '~' || (path[1] && path[1] != '/')) {
        *out = path;
        if (path[0] != '~' || !strchr(path, '/'))
            return 0; /* "~x" is the name of a file */
        diag_set(d, COLLRUN_ERR_INVALID, "%s: only \"~/\" is expanded",
                 quote(path, (char[QUOTE_SIZE]){0}));
        return diag_hint(d, "write the home folder of %.*s in full", (int)strcspn(path, "/") - 1,
                         path + 1);
    }
    const struct passwd *me = getenv("HOME") ? NULL : getpwuid(geteuid());
    const char *home = me ? me->pw_dir : getenv("HOME");
    if (!home || home[0] != '/') {
        diag_set(d, COLLRUN_ERR_INVALID, "%s: the environment variable HOME %s",
                 quote(path, (char[QUOTE_SIZE]){0}),
                 home ? "is not an absolute path" : "is not set");
        return diag_hint(d, "write the path in full");
    }
    home = template ? template_literal(home, arena) : home;
    const char *full = arena_printf(arena, "%s%s", strcmp(home, "/") ? home : "", path + 1);
    *out = *full ? full : "/";
    return 0;
}

/* Steps over slashes, and over "." as a part of the path. */
static const char *path_skip(const char *at)
{
    for (;;) {
        if (*at == '/')
            at++;
        else if (*at == '.' && (at[1] == '/' || !at[1]))
            at++;
        else
            return at;
    }
}

const char *path_join(const char *folder, const char *path, struct arena *arena)
{
    const char *joined =
        *path == '/' ? arena_strdup(arena, path) : arena_printf(arena, "%s/%s", folder, path);
    char *out = arena_strdup(arena, joined), *to = out;
    for (const char *at = joined; *at;) {
        const char *part = path_skip(at);
        size_t len = strcspn(part, "/");
        if (len || (to == out && !*part)) {
            *to++ = '/';
            memcpy(to, part, len);
            to += len;
        }
        at = part + len;
    }
    *to = '\0';
    return out;
}

const char *path_folder(const char *file, struct arena *arena)
{
    struct stat st;
    const bool regular = file && stat(file, &st) == 0 && S_ISREG(st.st_mode);
    char *real = realpath(regular ? file : ".", NULL);
    char *slash = real && regular ? strrchr(real, '/') : NULL;
    if (slash)
        *slash = '\0';
    const char *folder = real && *real ? arena_strdup(arena, real) : "/";
    free(real);
    return folder;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * dlerror() speaks to linker people; the cases that users meet (a missing library, an undefined
 * symbol, a file that is no shared object) are put into their words, all others are quoted.
 */
#include "plugin.h"

#include <collrun/backend.h>
#include <collrun/workload.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A directory with the sticky bit (/tmp) lets nobody replace what is not theirs. */
static int check_not_writable(const char *what, const char *path, const char *part, struct diag *d)
{
    struct stat st;
    if (stat(part, &st) != 0)
        return diag_sys(d, errno, "%s %s", what, path);
    bool shared = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX);
    if (!(st.st_mode & S_IWOTH) || shared)
        return COLLRUN_OK;
    diag_set(d, COLLRUN_ERR_INVALID, "%s %s: everybody may write %s%s, so it is not loaded", what,
             path, S_ISDIR(st.st_mode) ? "the directory " : "it", S_ISDIR(st.st_mode) ? part : "");
    return diag_hint(d, "chmod o-w %s", part);
}

static int check_file(const char *what, const char *path, struct diag *d)
{
    char real[PATH_MAX];
    if (!realpath(path, real))
        return diag_sys(d, errno, "%s %s", what, path);
    struct stat st;
    if (stat(real, &st) == 0 && !S_ISREG(st.st_mode))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s %s is not a file", what, path);
    for (;;) {
        int rc = check_not_writable(what, path, real, d);
        if (rc != COLLRUN_OK)
            return rc;
        char *slash = strrchr(real, '/');
        if (!slash || !slash[1])
            return COLLRUN_OK;
        slash[slash == real] = '\0';
    }
}

static bool is_elf(const char *path)
{
    char head[4] = "";
    FILE *f = fopen(path, "re");
    bool elf = f && fread(head, 1, 4, f) == 4 && memcmp(head, "\177ELF", 4) == 0;
    if (f)
        fclose(f);
    return elf;
}

/* The word after `before` in s, up to a character of `stop`. */
static bool word_after(const char *s, const char *before, const char *stop, char *out, size_t size)
{
    const char *p = strstr(s, before);
    if (!p)
        return false;
    p += strlen(before);
    snprintf(out, size, "%.*s", (int)strcspn(p, stop), p);
    return true;
}

static int explain_dlerror(const char *what, const char *path, const char *said, struct diag *d)
{
    char word[256];
    if (!is_elf(path))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s %s is not a shared object", what, path);
    if (word_after(said, "undefined symbol: ", " ,(", word, sizeof word)) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s %s uses the symbol \"%s\", which no library provides",
                 what, path, word);
        if (strncmp(word, "collrun_", 8) == 0)
            return diag_hint(d, "it was built for a newer collrun, or the name is misspelt");
        return diag_hint(d, "link it with the library that defines %s", word);
    }
    if (strstr(said, "cannot open shared object file") && !strstr(said, path)) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(said, ":"), said);
        diag_set(d, COLLRUN_ERR_INVALID, "%s %s needs %s, which is not on this host", what, path,
                 word);
        return diag_hint(d, "install %s, or link with -Wl,-rpath where it lies", word);
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "%s %s cannot be loaded: %s", what, path, said);
}

static int no_symbol(const char *what, const char *path, const char *symbol, void *object,
                     struct diag *d)
{
    bool backend = strcmp(what, "backend") == 0;
    if (dlsym(object, backend ? "collrun_workload_v1" : "collrun_backend_v1"))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s is a %s, not a %s", path,
                        backend ? "workload" : "backend", what);
    diag_set(d, COLLRUN_ERR_INVALID, "%s %s has no symbol %s", what, path, symbol);
    if (backend)
        return diag_hint(d, "a backend exports const struct collrun_backend %s", symbol);
    return diag_hint(d, "a workload ends with COLLRUN_WORKLOAD(.name = \"...\", .run = ...);");
}

int plugin_open(const char *what, const char *path, const char *symbol, const void **symbol_out,
                struct diag *d)
{
    int rc = check_file(what, path, d);
    if (rc != COLLRUN_OK)
        return rc;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *said = dlerror();
        return explain_dlerror(what, path, said ? said : "no reason given", d);
    }
    const void *found = dlsym(object, symbol);
    if (!found) {
        rc = no_symbol(what, path, symbol, object, d);
        dlclose(object);
        return rc;
    }
    *symbol_out = found;
    return COLLRUN_OK;
}

int plugin_open_workload(const char *path, struct collrun_workload *out, struct diag *d)
{
    const void *symbol = NULL;
    int rc = plugin_open("workload", path, "collrun_workload_v1", &symbol, d);
    if (rc != COLLRUN_OK)
        return rc;
    const struct collrun_workload *theirs = symbol;
    if (theirs->abi != COLLRUN_WORKLOAD_ABI)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "workload %s was built for workload ABI %u; this collrun has %u", path,
                        theirs->abi, COLLRUN_WORKLOAD_ABI);
    if (theirs->size < offsetof(struct collrun_workload, run) + sizeof theirs->run)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "workload %s: its description is %u bytes, too short to be one", path,
                        theirs->size);
    struct collrun_workload w = {0};
    memcpy(&w, theirs, theirs->size < sizeof w ? theirs->size : sizeof w);
    if (!w.name || !w.name[0])
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s has no .name", path);
    if (!w.run)
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s has no .run", path);
    *out = w;
    return COLLRUN_OK;
}

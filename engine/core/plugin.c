/* SPDX-License-Identifier: Apache-2.0
 *
 * The common errors of dlopen() (a missing library, an undefined symbol, a file that is not a
 * shared object) are translated into messages for users; all others are quoted.
 */
#include "core/plugin.h"

#include "base/arena.h"
#include "base/elf_machine.h"

#include <collrun/backend.h>
#include <collrun/workload.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int plugin_refuse_writable(const char *what, const char *path, const char *part, bool is_dir,
                                  struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "%s %s: every user may write %s%s, so it is not loaded", what,
             path, is_dir ? "the directory " : "it", is_dir ? part : "");
    return diag_hint(d, "chmod o-w %s", part);
}

static int plugin_refuse_owner(const char *what, const char *path, const char *part, uid_t owner,
                               struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID,
             "%s %s: %s belongs to user %u and is in a directory that every user may write, so it "
             "is not loaded",
             what, path, part, (unsigned)owner);
    return diag_hint(d, "copy the file to a directory of yours");
}

/* Checks the file, and each directory that leads to it. In a directory with the sticky bit (/tmp),
 * users cannot replace files of others, but each can make one. `real` becomes "/". */
static int plugin_check_parts(const char *what, const char *path, char *real, struct diag *d)
{
    char entry[PATH_MAX] = ""; /* in `real` */
    struct stat of_entry = {0}, st;
    for (;;) {
        if (stat(real, &st) != 0)
            return diag_sys(d, errno, "%s %s", what, path);
        const bool shared = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX);
        if ((st.st_mode & S_IWOTH) && !shared)
            return plugin_refuse_writable(what, path, real, S_ISDIR(st.st_mode), d);
        if ((st.st_mode & S_IWOTH) && of_entry.st_uid != 0 && of_entry.st_uid != geteuid())
            return plugin_refuse_owner(what, path, entry, of_entry.st_uid, d);
        char *slash = strrchr(real, '/');
        if (!slash || !slash[1])
            return COLLRUN_OK;
        memcpy(entry, real, strlen(real) + 1);
        of_entry = st;
        slash[slash == real] = '\0';
    }
}

/* Leaves the path without links in `real`, of PATH_MAX bytes: a link may change after the check. */
static int plugin_check_file(const char *what, const char *path, char *real, struct diag *d)
{
    struct stat st;
    if (!realpath(path, real))
        return diag_sys(d, errno, "%s %s", what, path);
    if (stat(real, &st) == 0 && !S_ISREG(st.st_mode))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s %s is not a file", what, path);
    char parts[PATH_MAX];
    memcpy(parts, real, strlen(real) + 1);
    return plugin_check_parts(what, path, parts, d);
}

/* `why`: 0, or the errno for which the file cannot be opened. */
static bool plugin_is_elf(const char *path, int *why)
{
    char head[4] = "";
    FILE *f = fopen(path, "re");
    *why = f ? 0 : errno;
    bool elf = f && fread(head, 1, 4, f) == 4 && memcmp(head, "\177ELF", 4) == 0;
    if (f)
        fclose(f);
    return elf;
}

/* `dot`: its extension, or NULL. */
static bool plugin_is_script(const char *path, const char *dot)
{
    char head[2] = "";
    FILE *f = fopen(path, "re");
    bool script = f && fread(head, 1, 2, f) == 2 && memcmp(head, "#!", 2) == 0;
    if (f)
        fclose(f);
    return script || (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".sh") == 0));
}

/* The word after `before` in s, up to a character of `stop`. */
static bool plugin_word_after(const char *s, const char *before, const char *stop, char *out,
                              size_t size)
{
    const char *p = strstr(s, before);
    if (!p)
        return false;
    p += strlen(before);
    snprintf(out, size, "%.*s", (int)strcspn(p, stop), p);
    return true;
}

static int plugin_not_shared(const char *what, const char *path, const char *is, struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "%s %s is %s, not a shared object", what, path, is);
    if (strcmp(what, "workload") == 0 && strcmp(is, "a program") == 0)
        return diag_hint(d,
                         "build it with cc -shared -fPIC, or run it by command: [%s] in place of "
                         "plugin",
                         path);
    return diag_hint(d, "build it with cc -shared -fPIC");
}

/* `real`: the path that was opened. */
static int plugin_explain_dlerror(const char *what, const char *path, const char *real,
                                  const char *reason, struct diag *d)
{
    char word[256];
    int why;
    bool elf = plugin_is_elf(path, &why);
    struct rlimit files;
    if (why == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        return diag_sys(d, why,
                        "cannot open %s %s, as this process has %llu open files (ulimit -n)", what,
                        path, (unsigned long long)files.rlim_cur);
    if (why)
        return diag_sys(d, why, "cannot open %s %s", what, path);
    const unsigned type = elf_machine_type(path);
    snprintf(word, sizeof word, "%s ", what);
    if (elf_machine_check(word, path, d) < 0)
        return d->code;
    if (type == ET_REL)
        return plugin_not_shared(what, path, "an object file", d);
    if (type == ET_EXEC || strstr(reason, "cannot dynamically load"))
        return plugin_not_shared(what, path, "a program", d);
    if (!elf) {
        const char *dot = strrchr(path, '.');
        diag_set(d, COLLRUN_ERR_INVALID, "%s %s is not a shared object", what, path);
        if (dot && strcmp(dot, ".a") == 0)
            diag_hint(d, "this is a static library: link it with cc -shared -fPIC");
        else if (dot &&
                 (strcmp(dot, ".c") == 0 || strcmp(dot, ".cc") == 0 || strcmp(dot, ".cpp") == 0))
            diag_hint(d, "this is source code: build it with cc -shared -fPIC");
        else if (strcmp(what, "workload") == 0 && plugin_is_script(path, dot))
            diag_hint(d, "a program is run by command: [%s%s] in place of plugin",
                      dot && strcmp(dot, ".py") == 0 ? "python3, " : "", path);
        else
            diag_hint(d, "a %s is a shared object, built with cc -shared -fPIC", what);
        return d->code;
    }
    if (plugin_word_after(reason, "undefined symbol: ", " ,(", word, sizeof word)) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s %s uses the symbol \"%s\", which no library provides",
                 what, path, word);
        if (strncmp(word, "collrun_", 8) == 0)
            return diag_hint(d, "it was built for a newer collrun, or the name is misspelt");
        return diag_hint(d, "link it with the library that defines %s", word);
    }
    if (strstr(reason, "cannot open shared object file") && !strstr(reason, real)) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(reason, ":"), reason);
        diag_set(d, COLLRUN_ERR_INVALID, "%s %s needs %s, which is not on this host", what, path,
                 word);
        return diag_hint(d, "install %s, or link with -Wl,-rpath,DIRECTORY", word);
    }
    diag_set(d, COLLRUN_ERR_INVALID, "%s %s cannot be loaded: %s", what, path, reason);
    /* The runtime of ThreadSanitizer, for one. */
    if (strstr(reason, ": cannot allocate memory in static TLS block")) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(reason, ":"), reason);
        return diag_hint(d, "preload it: env: {set: {LD_PRELOAD: %s}}", word);
    }
    return d->code;
}

static int plugin_no_symbol(const char *what, const char *path, const char *symbol, void *object,
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
    char real[PATH_MAX];
    int rc = plugin_check_file(what, path, real, d);
    if (rc != COLLRUN_OK)
        return rc;
    void *object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *reason = dlerror();
        return plugin_explain_dlerror(what, path, real, reason ? reason : "no reason given", d);
    }
    const void *found = dlsym(object, symbol);
    if (!found) {
        rc = plugin_no_symbol(what, path, symbol, object, d);
        dlclose(object);
        return rc;
    }
    *symbol_out = found;
    return COLLRUN_OK;
}

/* The table of parameters in the engine's stride. */
static int plugin_adopt_params(struct collrun_workload *w, struct arena *arena)
{
    size_t stride = w->param_size, our_stride = sizeof(struct collrun_param);
    if (!w->params || stride == our_stride)
        return COLLRUN_OK;
    size_t n = abi_table_len(w->params, stride, sizeof(char *)) + 1;
    void *converted = abi_convert(w->params, stride, n, our_stride);
    w->params = converted ? arena_memdup(arena, converted, n * our_stride) : NULL;
    free(converted);
    return w->params ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

int plugin_open_workload(const char *path, struct arena *arena, struct collrun_workload *out,
                         struct diag *d)
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
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s: its description has only %u bytes",
                        path, theirs->size);
    struct collrun_workload w = {0};
    memcpy(&w, theirs, theirs->size < sizeof w ? theirs->size : sizeof w);
    if (!w.name || !w.name[0])
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s has no .name", path);
    if (!w.run)
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s has no .run", path);
    if (w.params && !w.param_size)
        return diag_set(d, COLLRUN_ERR_INVALID, "workload %s is not defined by COLLRUN_WORKLOAD",
                        path);
    if (plugin_adopt_params(&w, arena) != COLLRUN_OK)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for workload %s", path);
    *out = w;
    return COLLRUN_OK;
}

/* ---- tables of another stride ---- */

/* Plain copies; strides are at least 1. */

size_t abi_table_len(const void *table, size_t stride, size_t key_len)
{
    static const char zeros[16];
    const char *at = table;
    size_t n = 0;
    while (memcmp(at + n * stride, zeros, key_len) != 0)
        n++;
    return n;
}

void *abi_convert(const void *from, size_t from_stride, size_t n, size_t to_stride)
{
    char *to = calloc(n ? n : 1, to_stride);
    size_t len = from_stride < to_stride ? from_stride : to_stride;
    for (size_t i = 0; to && i < n; i++)
        memcpy(to + i * to_stride, (const char *)from + i * from_stride, len);
    return to;
}

struct collrun_call *abi_convert_calls(const struct collrun_call *calls, uint32_t n,
                                       uint32_t call_size)
{
    char *to = abi_convert(calls, sizeof *calls, n, call_size);
    for (uint32_t i = 0; to && i < n; i++)
        memcpy(to + (size_t)i * call_size, &call_size, sizeof call_size); /* collrun_call.size */
    return (struct collrun_call *)(void *)to;
}

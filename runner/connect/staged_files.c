/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/staged_files.h"

#include "base/quote.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { STAGED_DEPTH_MAX = 32 };

/* A folder, and those that contain it. */
struct staged_folder {
    const char *path;
    dev_t dev;
    ino_t ino;
    unsigned depth;
    const struct staged_folder *parent;
};

struct staged_walk {
    struct staged_files *files;
    struct arena *arena;
    struct diag *d;
};

char *staged_files_normalize(const char *path, struct arena *arena)
{
    char *out = arena_alloc(arena, strlen(path) + 2);
    size_t n = 0;
    while (*path) {
        path += strspn(path, "/");
        size_t len = strcspn(path, "/");
        if (len == 2 && memcmp(path, "..", 2) == 0) {
            while (n && out[--n] != '/')
                ;
        } else if (len && !(len == 1 && *path == '.')) {
            out[n++] = '/';
            memcpy(out + n, path, len);
            n += len;
        }
        path += len;
    }
    if (!n)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

/* ---- one file ---- */

/* The script reads names as words of lines, and sha256sum escapes a backslash. */
static bool staged_name_is_good(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\')
            return false;
    return name[strlen(name) - 1] != ' ';
}

static int staged_add_file(struct staged_walk *w, const char *path, const struct stat *st)
{
    struct staged_files *files = w->files;
    if (!staged_name_is_good(path))
        return diag_set(w->d, COLLRUN_ERR_INVALID,
                        "the name %s has a control character, a backslash or a space at its end",
                        QUOTED(path));
    files->bytes += (uint64_t)st->st_size;
    if (files->n == STAGED_FILES_MAX || files->bytes > STAGED_BYTES_MAX) {
        if (files->n == STAGED_FILES_MAX)
            diag_set(w->d, COLLRUN_ERR_INVALID, "more than %d files", STAGED_FILES_MAX);
        else
            diag_set(w->d, COLLRUN_ERR_INVALID, "more than %llu MiB", STAGED_BYTES_MAX >> 20);
        return diag_hint(w->d, "put them on a file system that the hosts share");
    }
    files->items[files->n++] = (struct staged_file){
        .source = path, .name = path + 1, .executable = (st->st_mode & S_IXUSR) != 0};
    return COLLRUN_OK;
}

/* ---- folders ---- */

static int staged_add_path(struct staged_walk *w, const char *path,
                           const struct staged_folder *parent);

static int staged_is_wanted(const struct dirent *entry)
{
    const char *name = entry->d_name;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, ".git") != 0 &&
           strcmp(name, "__pycache__") != 0;
}

static int staged_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int staged_add_folder(struct staged_walk *w, const struct staged_folder *folder)
{
    struct dirent **entries;
    for (const struct staged_folder *p = folder->parent; p; p = p->parent)
        if (p->dev == folder->dev && p->ino == folder->ino)
            return diag_set(w->d, COLLRUN_ERR_INVALID, "%s is a link to a folder that contains it",
                            folder->path);
    if (folder->depth > STAGED_DEPTH_MAX)
        return diag_set(w->d, COLLRUN_ERR_INVALID, "%s: more than %d folders deep", folder->path,
                        STAGED_DEPTH_MAX);
    int n = scandir(folder->path, &entries, staged_is_wanted, staged_compare), rc = COLLRUN_OK;
    if (n < 0)
        return diag_sys(w->d, errno, "cannot read the folder %s", folder->path);
    for (int i = 0; i < n; i++) {
        const char *path = arena_printf(w->arena, "%s/%s", folder->path, entries[i]->d_name);
        if (rc == COLLRUN_OK)
            rc = staged_add_path(w, path, folder);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int staged_add_path(struct staged_walk *w, const char *path,
                           const struct staged_folder *parent)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return diag_sys(w->d, errno, "cannot read %s", path);
    if (S_ISREG(st.st_mode))
        return staged_add_file(w, path, &st);
    if (!S_ISDIR(st.st_mode))
        return diag_set(w->d, COLLRUN_ERR_INVALID, "%s is neither a file nor a folder", path);
    return staged_add_folder(w, &(struct staged_folder){.path = path,
                                                        .dev = st.st_dev,
                                                        .ino = st.st_ino,
                                                        .depth = parent ? parent->depth + 1 : 0,
                                                        .parent = parent});
}

int staged_files_add(struct staged_files *files, const char *path, struct arena *arena,
                     struct diag *d)
{
    struct staged_walk w = {.files = files, .arena = arena, .d = d};
    if (!files->items)
        files->items = arena_calloc(arena, STAGED_FILES_MAX, sizeof *files->items);
    return staged_add_path(&w, staged_files_normalize(path, arena), NULL);
}

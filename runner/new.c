/* SPDX-License-Identifier: Apache-2.0
 *
 * All files are read before the first one is written.
 */
#include "new.h"

#include "base/buf.h"
#include "base/quote.h"
#include "prefix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

enum { NEW_FILES = 8, NEW_FILE_LEN = 65536 };

struct new_file {
    const char *path; /* of the file to write */
    struct buf text;
};

struct new_files {
    struct new_file items[NEW_FILES];
    size_t n;
};

static void new_put_text(struct buf *out, const char *text, const char *prefix)
{
    static const char mark[] = "@PREFIX@";
    for (const char *at; (at = strstr(text, mark)); text = at + sizeof mark - 1) {
        buf_put(out, text, (size_t)(at - text));
        buf_put(out, prefix, strlen(prefix));
    }
    buf_put(out, text, strlen(text));
}

static int new_read_file(struct new_file *f, const char *from, const char *prefix, struct diag *d)
{
    static char text[NEW_FILE_LEN];
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        diag_sys(d, errno, "cannot read %s", from);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return d->code;
    text[n] = '\0';
    new_put_text(&f->text, text, prefix);
    return COLLRUN_OK;
}

static int new_add_file(struct new_files *files, const char *from, const char *path,
                        const char *prefix, struct diag *d)
{
    struct new_file *f = &files->items[files->n++];
    *f = (struct new_file){.path = path};
    buf_init(&f->text);
    if (access(path, F_OK) == 0) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s exists", QUOTED(path));
        return diag_hint(d, "name an empty folder: collrun new DIR");
    }
    return new_read_file(f, from, prefix, d);
}

static int new_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int new_read_all(struct new_files *files, const char *source, const char *folder,
                        struct arena *arena, struct diag *d)
{
    struct dirent **entries;
    const char *prefix = prefix_path(arena, "", d);
    int n = prefix ? scandir(source, &entries, new_visible, alphasort) : 0, rc = COLLRUN_OK;
    if (!prefix)
        return d->code;
    if (n < 0)
        return diag_sys(d, errno, "cannot read %s", source);
    char *root = arena_strndup(arena, prefix, strlen(prefix) - 1); /* without the slash */
    for (int i = 0; i < n; i++) {
        const char *from = arena_printf(arena, "%s/%s", source, entries[i]->d_name);
        const char *path = arena_printf(arena, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (rc != COLLRUN_OK || files->n == NEW_FILES)
            continue;
        rc = new_add_file(files, from, path, root, d);
    }
    free(entries);
    return rc;
}

static int new_write_file(const struct new_file *f, struct diag *d)
{
    int fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write(fd, f->text.data, f->text.len) == (ssize_t)f->text.len;
    if (!good)
        diag_sys(d, errno, "cannot write %s", QUOTED(f->path));
    if (fd >= 0 && close(fd) < 0 && good)
        return diag_sys(d, errno, "cannot write %s", QUOTED(f->path));
    return good ? COLLRUN_OK : d->code;
}

/* The command that comes next, as a shell reads it. */
static void new_print_next(const char *folder, bool python, FILE *out)
{
    const char *safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:=@%";
    const char *mark = folder[strspn(folder, safe)] ? "'" : "";
    fprintf(out, "next: %s%s", python ? "collrun " : "make -C ", mark);
    for (const char *c = folder; *c; c++)
        *c == '\'' ? fputs("'\\''", out) : fputc(*c, out);
    fprintf(out, "%s%s\n", python ? "/job.yaml" : "", python ? mark : *mark ? "' run" : " run");
}

int new_project(const char *folder, const char *kind, struct arena *arena, FILE *out,
                struct diag *d)
{
    struct new_files files = {.n = 0};
    const char *relative = arena_printf(arena, "share/collrun/new/%s", kind);
    const char *source = prefix_path(arena, relative, d);
    if (!source)
        return d->code;
    int rc = new_read_all(&files, source, folder, arena, d);
    if (rc == COLLRUN_OK && mkdir(folder, 0777) < 0 && errno != EEXIST)
        rc = diag_sys(d, errno, "cannot create the folder %s", QUOTED(folder));
    for (size_t i = 0; i < files.n; i++) {
        if (rc == COLLRUN_OK && (rc = new_write_file(&files.items[i], d)) == COLLRUN_OK)
            fprintf(out, "%s\n", files.items[i].path);
        buf_fini(&files.items[i].text);
    }
    bool python = strcmp(kind, "python") == 0;
    if (rc == COLLRUN_OK && python &&
        !(source = prefix_path(arena, "lib/collrun/python/collrun", d)))
        return d->code;
    if (rc == COLLRUN_OK && python && access(source, F_OK) < 0)
        fprintf(out, "`import collrun` fails: %s\n", PREFIX_NO_PYTHON);
    if (rc == COLLRUN_OK)
        new_print_next(folder, python, out);
    return rc;
}

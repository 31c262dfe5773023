/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the files of a trace; see files.h. A folder is a pattern that ends with an asterisk.
 */
#include "files.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int files_compare(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static int files_take(struct files *f, const glob_t *found)
{
    struct stat st;
    f->path = calloc(found->gl_pathc + 1, sizeof *f->path);
    for (size_t i = 0; f->path && i < found->gl_pathc; i++) {
        if (stat(found->gl_pathv[i], &st) == 0 && S_ISDIR(st.st_mode))
            continue;
        f->path[f->n] = strdup(found->gl_pathv[i]);
        if (!f->path[f->n])
            return -1;
        f->n++;
    }
    if (f->path)
        qsort(f->path, (size_t)f->n, sizeof *f->path, files_compare);
    return f->path ? 0 : -1;
}

static int files_match(struct files *f, const char *pattern, char *error, size_t size)
{
    glob_t found = {0};
    int code = glob(pattern, 0, NULL, &found), rc = 0;
    if (code && code != GLOB_NOMATCH) {
        snprintf(error, size, "%s: the files cannot be listed", pattern);
        rc = -1;
    } else if (!code && files_take(f, &found)) {
        snprintf(error, size, "out of memory for the names of files");
        rc = -1;
    } else if (f->n == 0) {
        snprintf(error, size, "%s: no file has such a name", pattern);
        rc = -1;
    }
    globfree(&found);
    return rc;
}

int files_find(struct files *f, const char *trace, char *error, size_t size)
{
    struct stat st;
    char pattern[4096];
    *f = (struct files){0};
    if (stat(trace, &st)) {
        if (errno == ENOENT && strpbrk(trace, "*?["))
            return files_match(f, trace, error, size);
        snprintf(error, size, "%s: %s", trace, strerror(errno));
        return -1;
    }
    if (!S_ISDIR(st.st_mode))
        snprintf(pattern, sizeof pattern, "%s", trace);
    else if (strpbrk(trace, "*?[\\") || strlen(trace) + 3 > sizeof pattern)
        pattern[0] = '\0';
    else
        snprintf(pattern, sizeof pattern, "%s/*", trace);
    if (S_ISDIR(st.st_mode) && pattern[0])
        return files_match(f, pattern, error, size);
    f->path = calloc(1, sizeof *f->path);
    if (f->path && pattern[0])
        f->path[0] = strdup(trace);
    if (f->path && f->path[0]) {
        f->n = 1;
        return 0;
    }
    snprintf(error, size, "%s: a folder with such a name cannot be listed", trace);
    return -1;
}

void files_fini(struct files *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
    *f = (struct files){0};
}

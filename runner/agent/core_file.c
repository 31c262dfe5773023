/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core_file.h"

#include <stdio.h>
#include <string.h>

/* Appends what `specifier` stands for in a pattern. True: the pid. */
static bool core_file_expand(char specifier, pid_t pid, FILE *out)
{
    bool is_pid = strchr("pPiI", specifier) != NULL;
    if (is_pid)
        fprintf(out, "%d", (int)pid);
    else
        fputc(specifier == '%' ? '%' : '*', out);
    return is_pid;
}

void core_file_describe(const char *pattern, bool with_pid, pid_t pid, const char *folder,
                        char *out, size_t size)
{
    bool has_pid = false;
    if (pattern[0] == '|') {
        snprintf(out, size, "its core was given to %.*s", (int)strcspn(pattern + 1, " "),
                 pattern + 1);
        return;
    }
    FILE *f = fmemopen(out, size, "w");
    if (!f)
        return;
    fprintf(f, "core file: %s%s", pattern[0] == '/' ? "" : folder, pattern[0] == '/' ? "" : "/");
    for (const char *c = pattern; *c; c++) {
        if (*c == '%' && c[1])
            has_pid = core_file_expand(*++c, pid, f) || has_pid;
        else
            fputc(*c, f);
    }
    if (with_pid && !has_pid)
        fprintf(f, ".%d", (int)pid);
    fclose(f);
    out[size - 1] = '\0';
}

static void core_file_read(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f || !fgets(line, (int)size, f))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (f)
        fclose(f);
}

void core_file_describe_here(pid_t pid, const char *folder, char *out, size_t size)
{
    char pattern[256], with_pid[8];
    core_file_read("/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    core_file_read("/proc/sys/kernel/core_uses_pid", with_pid, sizeof with_pid);
    core_file_describe(pattern[0] ? pattern : "core", with_pid[0] == '1', pid, folder, out, size);
}

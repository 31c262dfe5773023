/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for collrun report: a run directory of any content gives a page or an error, and
 * no markup of its files reaches the page. The input is a series of files, each after a line
 * "--file X" whose X is a letter of `files`. The oracles are the sanitizers, the time limit, and
 * "<i9", which the page itself does not have.
 */
#include "html/page.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char cut[] = "\n--file ";
static const char *const files[] = {"result.json",
                                    "plan.json",
                                    "events.jsonl",
                                    "resolved.yaml",
                                    "bench-world.json",
                                    "trace.json",
                                    "diag/evidence.json",
                                    "diag/rank-0.record",
                                    "diag/rank-1.record",
                                    "attempt-0/rank-0.stdout",
                                    "attempt-0/rank-0.stderr"};
enum { FILES = sizeof files / sizeof *files, PATH = 256 };

static char folder[] = "/dev/shm/fuzz_report.XXXXXX";

static const char *in_folder(const char *name, char *path)
{
    snprintf(path, PATH, "%s/%s", folder, name);
    return path;
}

static void remove_files(void)
{
    char path[PATH];
    for (int i = 0; i < FILES; i++)
        unlink(in_folder(files[i], path));
    unlink(in_folder("report.html", path));
}

static void remove_folder(void)
{
    char path[PATH];
    remove_files();
    rmdir(in_folder("diag", path));
    rmdir(in_folder("attempt-0", path));
    rmdir(folder);
}

static void make_folder(void)
{
    static bool made;
    char path[PATH];
    if (made)
        return;
    if (!mkdtemp(folder) || mkdir(in_folder("diag", path), 0700) != 0 ||
        mkdir(in_folder("attempt-0", path), 0700) != 0 || atexit(remove_folder) != 0)
        abort();
    made = true;
}

static void write_file(const char *name, const uint8_t *bytes, size_t len)
{
    char path[PATH];
    FILE *f = fopen(in_folder(name, path), "we");
    if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) != 0)
        abort();
}

/* Each part up to the next cut is a file. */
static void write_files(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size, *next;
    while ((at = memmem(at, (size_t)(end - at), cut, sizeof cut - 1)) != NULL) {
        at += sizeof cut - 1;
        next = memmem(at, (size_t)(end - at), cut, sizeof cut - 1);
        next = next ? next : end;
        if (next - at >= 2 && *at >= 'a' && *at < 'a' + FILES && at[1] == '\n')
            write_file(files[*at - 'a'], at + 2, (size_t)(next - at - 2));
    }
}

static void check_page(const char *path)
{
    static char page[8 << 20];
    FILE *f = fopen(path, "re");
    if (!f)
        abort();
    size_t len = fread(page, 1, sizeof page, f);
    fclose(f);
    if (len > 4u << 20 || memmem(page, len, "<i9", 3))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[4096];
    struct diag d;
    make_folder();
    write_files(data, size);
    diag_init(&d);
    if (html_command(&(struct html_request){.folder = folder}, path, &d) == COLLRUN_OK)
        check_page(path);
    remove_files();
    return 0;
}

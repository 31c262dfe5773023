/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for jobs in layers: the input is up to four files, job.yaml, a.yaml, b.yaml and
 * c.yaml, separated by lines "%%", which may include each other. Lines "#var NAME=VALUE", "#profile
 * NAME" and "#set PATH=VALUE" at the beginning of the first one are options. The sanitizers and
 * libFuzzer's own time limit are the oracle, and two rules: a job is refused if and only if there
 * is an error; and the merged job, written as a file, reads as the same job.
 */
#include "report/report.h"
#include "spec/emit.h"
#include "spec/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 4, OPTIONS = 4 };
static const char *const names[FILES] = {"job.yaml", "a.yaml", "b.yaml", "c.yaml"};

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static char folder[] = "/tmp/fuzz_layers.XXXXXX";

/* In the folder. The working directory stays: libFuzzer reads its corpus there. */
static const char *path_of(const char *name)
{
    static char path[sizeof folder + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text, size_t len)
{
    FILE *file = fopen(path_of(name), "we");
    must(file && fwrite(text, 1, len, file) == len && fclose(file) == 0, "a file can be written");
}

static char *tree_text(const struct node *root)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    emit_tree(root, out);
    fclose(out);
    return text;
}

/* The merged job as a file is the same job. */
static void read_again(const struct job *job)
{
    struct arena arena;
    struct diag_list diags;
    struct job again;
    char *text = tree_text(job->written);
    write_file("again.yaml", text, strlen(text));
    arena_init(&arena);
    diag_list_init(&diags);
    char *file = strdup(path_of("again.yaml"));
    const struct job_request request = {.file = file};
    must(job_read(&again, &request, &arena, &diags) == 0, "the merged job can be read");
    char *other = tree_text(again.written);
    must(strcmp(text, other) == 0, "the merged job reads as the same job");
    free(file);
    free(text);
    free(other);
    diag_list_fini(&diags);
    arena_fini(&arena);
}

/* Takes the options off the beginning of the first file. */
static const char *find_options(const char *text, struct job_request *request,
                                const char *lists[3][OPTIONS], struct arena *arena)
{
    static const char *const words[] = {"#var ", "#profile ", "#set "};
    uint32_t *counts[] = {&request->nvars, &request->nprofiles, &request->nsets};
    for (size_t i = 0; i < 3;) {
        const size_t len = strlen(words[i]), line = strcspn(text, "\n");
        if (strncmp(text, words[i], len) != 0 || *counts[i] == OPTIONS) {
            i++;
            continue;
        }
        lists[i][(*counts[i])++] = arena_strndup(arena, text + len, line - len);
        text += line + (text[line] == '\n');
        i = 0;
    }
    request->vars = lists[0];
    request->profiles = lists[1];
    request->sets = lists[2];
    return text;
}

static void remove_files(void)
{
    for (int i = 0; i < FILES; i++)
        unlink(path_of(names[i]));
    unlink(path_of("again.yaml"));
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    if (!nowhere) {
        nowhere = fopen("/dev/null", "we");
        must(nowhere && mkdtemp(folder), "there is a folder for the files");
        atexit(remove_files);
    }
    struct arena arena;
    struct diag_list diags;
    struct report report;
    struct job job;
    char *file = strdup(path_of(names[0]));
    struct job_request request = {.file = file};
    const char *lists[3][OPTIONS];
    arena_init(&arena);
    diag_list_init(&diags);
    const char *text = arena_strndup(&arena, (const char *)data, size), *end = text + size;
    text = find_options(text, &request, lists, &arena);
    for (int i = 0; i < FILES; i++) {
        const char *next = memmem(text, (size_t)(end - text), "\n%%\n", 4);
        write_file(names[i], text, (size_t)((next ? next : end) - text));
        text = next ? next + 4 : end;
    }
    const int code = job_read(&job, &request, &arena, &diags);
    must((code == 0) == (diag_list_count(&diags) == 0), "a refusal comes with an error");
    if (code == 0) {
        emit_with_origins(job.written, file, nowhere);
        read_again(&job);
    }
    report_init(&report, nowhere, true, job.sources);
    report_diags(&report, &diags);
    diag_list_fini(&diags);
    arena_fini(&arena);
    free(file);
    return 0;
}

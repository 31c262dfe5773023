/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of workloads: the program that each rank runs.
 *  - A program with a slash is a file: relative to workdir, else to the folder of the job file.
 *  - A program without a slash is looked up on its host, in PATH as the rank has it.
 *  - If a rank of the workload runs on this machine, the program must exist here.
 *  - What `stage_files` names must exist here, unless `stage` is `never`.
 *  - The same holds for the programs of transports, which this machine runs.
 * Failure modes: no such program, a folder, a file without execute permission, no such working
 * directory. Each is an error at its place in job.yaml. A program of a transport that is not in
 * PATH is a warning: a job can be planned where it cannot run.
 */
#include "base/elf_machine.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "plan/planner.h"
#include "spec/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* Names of one PATH that `did you mean` compares. */
enum { COMMAND_NAMES_MAX = 16384 };

static bool command_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool command_runs_here(const struct planner *pl, const struct desc_workload *out)
{
    const struct job_hosts *hosts = &pl->job->hosts;
    for (uint32_t i = 0; i < out->ranks.n; i++) {
        uint32_t host = pl->desc->ranks[out->ranks.items[i]].host;
        if (hosts->nodes[host].transport.kind.v == JOB_TRANSPORT_LOCAL)
            return true;
    }
    return false;
}

static bool command_host_has_workdir(const struct planner *pl, const struct desc_workload *out)
{
    const struct job_hosts *hosts = &pl->job->hosts;
    for (uint32_t i = 0; i < out->ranks.n; i++)
        if (hosts->nodes[pl->desc->ranks[out->ranks.items[i]].host].workdir.v)
            return true;
    return false;
}

/* ---- PATH ---- */

static const char *command_find_pair(const struct job_pairs *pairs, const char *key)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->items[i].key, key) == 0)
            return pairs->items[i].value;
    return NULL;
}

/* PATH as a rank of this machine has it; `workload` NULL: as collrun has it. */
static const char *command_path(const struct planner *pl, const struct job_workload *workload)
{
    const char *path = workload ? command_find_pair(&workload->env, "PATH") : NULL;
    if (!path && workload)
        path = command_find_pair(&pl->job->env.set, "PATH");
    for (uint32_t i = 0; !path && pl->in->environ[i]; i++)
        if (strncmp(pl->in->environ[i], "PATH=", 5) == 0)
            path = pl->in->environ[i] + 5;
    return path ? path : "/usr/local/bin:/usr/bin:/bin";
}

/* The next folder of PATH; NULL: there are no more. */
static const char *command_next_folder(const char **path, struct arena *arena)
{
    if (!**path)
        return NULL;
    size_t len = strcspn(*path, ":");
    const char *folder = len ? arena_strndup(arena, *path, len) : ".";
    *path += len + ((*path)[len] == ':');
    return folder;
}

static bool command_is_in_path(const char *path, const char *name, struct arena *arena)
{
    const char *folder;
    while ((folder = command_next_folder(&path, arena))) {
        const char *file = arena_printf(arena, "%s/%s", folder, name);
        if (command_is_program(file))
            return true;
    }
    return false;
}

static uint32_t command_list(const char *folder, const char **names, uint32_t n,
                             struct arena *arena)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && n < COMMAND_NAMES_MAX && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.')
            names[n++] = arena_strdup(arena, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* ---- what is wrong with a program ---- */

/* One text in place of a list of arguments. Returns false if it is none. */
static bool command_explain_words(const char *name, struct diag *d)
{
    if (!strpbrk(name, " \t\n"))
        return false;
    if (strpbrk(name, "&|;<>*?$`()\"'\n") || strncmp(name, "cd ", 3) == 0)
        diag_hint(d, "a command is not run by a shell; for one, write command: [sh, -c, %s]",
                  QUOTED(name));
    else
        diag_hint(d, "a command is a list of the program and its arguments, as in [python3, "
                     "train.py, --epochs, 3]");
    return true;
}

static void command_explain_name(struct planner *pl, const char *name, const char *path,
                                 struct diag *d)
{
    const char **names = arena_calloc(pl->arena, COMMAND_NAMES_MAX, sizeof *names);
    const char *beside = arena_printf(pl->arena, "%s/%s", pl->job->dir, name), *folder;
    uint32_t n = 0;
    diag_set(d, COLLRUN_ERR_NOT_FOUND, "PATH has no program named %s", QUOTED(name));
    if (access(beside, F_OK) == 0) {
        diag_hint(d, "for the file next to the job file, write ./%.200s", name);
        return;
    }
    if (command_explain_words(name, d))
        return;
    while ((folder = command_next_folder(&path, pl->arena)))
        n = command_list(folder, names, n, pl->arena);
    const char *meant = names ? suggest(name, names, n) : NULL;
    if (meant)
        diag_hint(d, "did you mean \"%s\"?", meant);
}

/* `written`: as in the job file. */
static void command_explain_file(struct planner *pl, const char *file, const char *written,
                                 struct diag *d)
{
    struct stat st;
    const char *slash = strrchr(file, '/');
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is a folder", file);
    } else if (stat(file, &st) == 0) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not executable", file);
        diag_hint(d, "chmod +x, or write its interpreter first, as in [python3, train.py]");
    } else {
        const char **names = arena_calloc(pl->arena, COMMAND_NAMES_MAX, sizeof *names);
        const char *folder = arena_strndup(pl->arena, file, (size_t)(slash - file) + 1);
        diag_set(d, COLLRUN_ERR_NOT_FOUND, "there is no file %s", file);
        if (command_explain_words(written, d))
            return;
        const char *meant = suggest(slash + 1, names, command_list(folder, names, 0, pl->arena));
        if (meant)
            diag_hint(d, "did you mean \"%s\", in the same folder?", meant);
    }
}

/* Text without "#!" is run by sh, whatever it is written in. */
static bool command_is_text(const char *file)
{
    char head[256];
    FILE *f = fopen(file, "re");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f)
        fclose(f);
    return n && !memchr(head, '\0', n) && (n < 2 || memcmp(head, "#!", 2) != 0) &&
           (n < 4 || memcmp(head, "\177ELF", 4) != 0);
}

/* A file that sh runs although it may not be meant for it, or that only an emulator can run. */
static void command_warn_file(struct planner *pl, uint32_t index, const char *file)
{
    const struct job_str *program = &pl->job->workloads[index].command.items[0];
    const char *dot = strrchr(file, '.');
    struct diag d;
    if (elf_machine_check("", file, &d) < 0) {
        d.loc = program->loc;
        diag_wrap(&d, "workloads[%u].command", index);
        diag_list_warn(pl->diags, &d);
        return;
    }
    if ((dot && strcmp(dot, ".sh") == 0) || !command_is_text(file))
        return;
    diag_at(&d, program->loc, "workloads[%u].command: %s has no #! line, so that sh runs it", index,
            file);
    diag_hint(&d, "write its interpreter first, as in [%s, %.200s]",
              dot && strcmp(dot, ".py") == 0 ? "python3" : "sh", program->v);
    diag_list_warn(pl->diags, &d);
}

/* ---- the plan of a command ---- */

/* The file of a program with a slash. */
static const char *command_file(const struct planner *pl, const struct job_workload *workload)
{
    const char *program = workload->command.items[0].v, *workdir = workload->workdir.v;
    if (*program == '/')
        return program;
    if (workdir && *workdir) {
        const char *folder = path_join(pl->job->dir, workdir, pl->arena);
        const char *file = folder ? path_join(folder, program, pl->arena) : NULL;
        if (file && access(file, F_OK) == 0)
            return file;
    }
    return path_join(pl->job->dir, program, pl->arena);
}

/* The files that hosts get; with `stage: never` the hosts have them, and this machine may not. */
static void command_stage_files(struct planner *pl, uint32_t index, struct desc_workload *out)
{
    const struct job_strs *files = &pl->job->workloads[index].stage_files;
    out->stage_files = arena_calloc(pl->arena, files->n, sizeof *out->stage_files);
    for (uint32_t i = 0; i < files->n; i++) {
        const char *written = files->items[i].v;
        if (!written) /* it was refused */
            return;
        const char *file = path_join(pl->job->dir, written, pl->arena);
        if (pl->job->stage.v == JOB_STAGE_AUTO && access(file, R_OK) < 0) {
            struct diag d;
            diag_sys(&d, errno, "workloads[%u].stage_files: %s", index, file);
            d.loc = files->items[i].loc;
            planner_add_error(pl, &d);
        }
        out->stage_files[out->nstage_files++] =
            (struct desc_item){.value = file, .loc = files->items[i].loc};
    }
}

static void command_check(struct planner *pl, uint32_t index, const char *program)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    const char *path = command_path(pl, workload);
    struct diag d;
    if (*program == '/' && command_is_program(program)) {
        command_warn_file(pl, index, program);
        return;
    }
    if (*program == '/')
        command_explain_file(pl, program, workload->command.items[0].v, &d);
    else if (strchr(path, '{') || command_is_in_path(path, program, pl->arena))
        return; /* a template in PATH has no value here; the agent reports what is missing */
    else
        command_explain_name(pl, program, path, &d);
    d.loc = workload->command.items[0].loc;
    diag_wrap(&d, "workloads[%u].command", index);
    planner_add_error(pl, &d);
}

/* Sets the error for a folder that does not exist; 0 if it does. */
static int command_find_folder(const char *folder, struct diag *d)
{
    struct stat st;
    int err = stat(folder, &st) == 0 ? (S_ISDIR(st.st_mode) ? 0 : ENOTDIR) : errno;
    if (!err)
        return 0;
    if (err == ENOENT)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "there is no folder %s", folder);
    return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s: %s", folder, strerror(err));
}

/* The working directory on this machine; false: it does not exist. */
static bool command_check_workdir(struct planner *pl, uint32_t index)
{
    const struct job_str *workdir = &pl->job->workloads[index].workdir;
    const char *folder = workdir->v ? path_join(pl->job->dir, workdir->v, pl->arena) : NULL;
    struct diag d;
    if (!folder || pl->in->examined || command_find_folder(folder, &d) == 0)
        return true;
    d.loc = workdir->loc;
    diag_wrap(&d, "workloads[%u].workdir", index);
    planner_add_error(pl, &d);
    return false;
}

void plan_command(struct planner *pl, uint32_t index, struct desc_workload *out)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    const struct job_strs *command = &workload->command;
    out->command.items = arena_calloc(pl->arena, command->n, sizeof *out->command.items);
    for (uint32_t i = 0; i < command->n; i++) {
        if (!command->items[i].v) /* it was refused */
            return;
        out->command.items[i] = command->items[i].v;
    }
    out->command.n = command->n;
    out->loc = command->items[0].loc;
    out->folder = pl->job->dir;
    out->workdir = workload->workdir.v ? workload->workdir.v : "";
    out->workdir_loc = workload->workdir.loc;
    planner_pairs(pl, &workload->env, &out->env);
    command_stage_files(pl, index, out);
    if (strchr(command->items[0].v, '/'))
        out->command.items[0] = command_file(pl, workload);
    /* A program may be in a working directory that is missing: one mistake, one error. */
    if (out->command.items[0] && command_runs_here(pl, out) &&
        (command_host_has_workdir(pl, out) || command_check_workdir(pl, index)))
        command_check(pl, index, out->command.items[0]);
}

/* ---- hosts ---- */

static void command_check_transport(struct planner *pl, const struct job_str *program)
{
    const char *path = command_path(pl, NULL);
    bool file = *program->v == '/';
    struct diag d;
    if (strchr(program->v, '{') ||
        (file ? command_is_program(program->v) : command_is_in_path(path, program->v, pl->arena)))
        return;
    if (file)
        command_explain_file(pl, program->v, program->v, &d);
    else
        command_explain_name(pl, program->v, path, &d);
    d.loc = program->loc;
    diag_wrap(&d, "transport.command");
    if (file)
        planner_add_error(pl, &d);
    else
        diag_list_warn(pl->diags, &d);
}

void plan_check_hosts(struct planner *pl)
{
    const struct job_hosts *hosts = &pl->job->hosts;
    const struct job_str *last = NULL;
    struct diag d;
    for (uint32_t i = 0; i < hosts->n && !pl->in->examined; i++) {
        const struct job_host *host = &hosts->nodes[i];
        /* `hosts: lsf` and the like have a command that is not in the file. */
        const bool written = host->transport.kind.v == JOB_TRANSPORT_COMMAND &&
                             host->transport.command.n && !hosts->all.v;
        const struct job_str *program = written ? host->transport.command.items : NULL;
        if (program && program != last && program->v)
            command_check_transport(pl, last = program);
        if (host->transport.kind.v != JOB_TRANSPORT_LOCAL || !host->workdir.v ||
            command_find_folder(host->workdir.v, &d) == 0)
            continue;
        d.loc = host->workdir.loc;
        diag_wrap(&d, "workdir of host \"%s\"", host->name.v);
        diag_list_warn(pl->diags, &d);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of workloads: the program that each rank runs.
 *  - A program with a slash is a file: relative to workdir, else to the folder of the job file.
 *  - A program without a slash is looked up on its host, in PATH as the rank has it.
 *  - If a rank of the workload runs on this machine, the program must exist here.
 *  - What `stage_files` names must exist here, unless `stage` is `never`.
 * Failure modes: no such program, a folder, a file without execute permission. Each is an error at
 * the program's place in job.yaml.
 */
#include "base/quote.h"
#include "base/suggest.h"
#include "plan/planner.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* Names of one PATH that `did you mean` compares. */
enum { COMMAND_NAMES_MAX = 16384 };

static void command_error(struct planner *pl, uint32_t index, struct diag *d)
{
    d->loc = pl->job->workloads[index].command.items[0].loc;
    diag_wrap(d, "workloads[%u].command", index);
    planner_add_error(pl, d);
}

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

/* ---- PATH ---- */

static const char *command_find_pair(const struct job_pairs *pairs, const char *key)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->items[i].key, key) == 0)
            return pairs->items[i].value;
    return NULL;
}

/* PATH as a rank of this machine has it. */
static const char *command_path(const struct planner *pl, const struct job_workload *workload)
{
    const char *path = command_find_pair(&workload->env, "PATH");
    if (!path)
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
        if (file && command_is_program(file))
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
        if (entry->d_name[0] != '.' && (names[n] = arena_strdup(arena, entry->d_name)))
            n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* ---- what is wrong with a program ---- */

static void command_unknown_name(struct planner *pl, uint32_t index, const char *path)
{
    const char *name = pl->job->workloads[index].command.items[0].v;
    const char **names = arena_calloc(pl->arena, COMMAND_NAMES_MAX, sizeof *names);
    const char *beside = arena_printf(pl->arena, "%s/%s", pl->job->dir, name), *folder;
    uint32_t n = 0;
    struct diag d;
    while (names && (folder = command_next_folder(&path, pl->arena)))
        n = command_list(folder, names, n, pl->arena);
    const char *meant = names ? suggest(name, names, n) : NULL;
    diag_set(&d, COLLRUN_ERR_NOT_FOUND, "PATH has no program named %s", QUOTED(name));
    if (beside && access(beside, F_OK) == 0)
        diag_hint(&d, "for the file next to the job file, write ./%.200s", name);
    else if (meant)
        diag_hint(&d, "did you mean \"%s\"?", meant);
    command_error(pl, index, &d);
}

static void command_bad_file(struct planner *pl, uint32_t index, const char *file)
{
    struct stat st;
    struct diag d;
    const char *slash = strrchr(file, '/');
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) {
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is a folder", file);
    } else if (stat(file, &st) == 0) {
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is not executable", file);
        diag_hint(&d, "chmod +x, or write its interpreter first, as in [python3, train.py]");
    } else {
        const char **names = arena_calloc(pl->arena, COMMAND_NAMES_MAX, sizeof *names);
        const char *folder = arena_strndup(pl->arena, file, (size_t)(slash - file) + 1);
        uint32_t n = names && folder ? command_list(folder, names, 0, pl->arena) : 0;
        const char *meant = names ? suggest(slash + 1, names, n) : NULL;
        diag_set(&d, COLLRUN_ERR_NOT_FOUND, "there is no file %s", file);
        if (meant)
            diag_hint(&d, "did you mean \"%s\", in the same folder?", meant);
    }
    command_error(pl, index, &d);
}

/* ---- the plan of a command ---- */

/* "/a/./b" -> "/a/b"; symbolic links and ".." remain: a program may look at its own path. */
static const char *command_join(struct arena *arena, const char *folder, const char *path)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2 + strspn(path + 2, "/");
    return arena_printf(arena, "%s/%s", strcmp(folder, "/") ? folder : "", path);
}

/* The file of a program with a slash. */
static const char *command_file(const struct planner *pl, const struct job_workload *workload)
{
    const char *program = workload->command.items[0].v, *workdir = workload->workdir.v;
    if (*program == '/')
        return program;
    if (workdir && *workdir) {
        const char *folder =
            *workdir == '/' ? workdir : command_join(pl->arena, pl->job->dir, workdir);
        const char *file = folder ? command_join(pl->arena, folder, program) : NULL;
        if (file && access(file, F_OK) == 0)
            return file;
    }
    return command_join(pl->arena, pl->job->dir, program);
}

/* The files that hosts get; with `stage: never` the hosts have them, and this machine may not. */
static void command_stage_files(struct planner *pl, uint32_t index, struct desc_workload *out)
{
    const struct job_strs *files = &pl->job->workloads[index].stage_files;
    out->stage_files = arena_calloc(pl->arena, files->n, sizeof *out->stage_files);
    for (uint32_t i = 0; out->stage_files && i < files->n; i++) {
        const char *written = files->items[i].v;
        if (!written) /* it was refused */
            return;
        const char *file =
            *written == '/' ? written : command_join(pl->arena, pl->job->dir, written);
        if (file && pl->job->stage.v == JOB_STAGE_AUTO && access(file, R_OK) < 0) {
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
    const char *path = command_path(pl, &pl->job->workloads[index]);
    if (*program == '/' && !command_is_program(program))
        command_bad_file(pl, index, program);
    /* A template in PATH has no value here; the agent reports what is missing. */
    if (*program != '/' && !strchr(path, '{') && !command_is_in_path(path, program, pl->arena))
        command_unknown_name(pl, index, path);
}

void plan_command(struct planner *pl, uint32_t index, struct desc_workload *out)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    const struct job_strs *command = &workload->command;
    out->command.items = arena_calloc(pl->arena, command->n, sizeof *out->command.items);
    for (uint32_t i = 0; out->command.items && i < command->n; i++) {
        if (!command->items[i].v) /* it was refused */
            return;
        out->command.items[i] = command->items[i].v;
    }
    if (!out->command.items)
        return;
    out->command.n = command->n;
    out->loc = command->items[0].loc;
    out->folder = pl->job->dir;
    out->workdir = workload->workdir.v ? workload->workdir.v : "";
    out->workdir_loc = workload->workdir.loc;
    planner_pairs(pl, &workload->env, &out->env);
    command_stage_files(pl, index, out);
    if (strchr(command->items[0].v, '/'))
        out->command.items[0] = command_file(pl, workload);
    if (out->command.items[0] && command_runs_here(pl, out))
        command_check(pl, index, out->command.items[0]);
}

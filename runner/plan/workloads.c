/* SPDX-License-Identifier: Apache-2.0
 *
 * Workloads: which plugin or command, which ranks, which groups, which parameters.
 */
#include "base/elf_machine.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "plan/params.h"
#include "plan/planner.h"
#include "spec/names.h"
#include "spec/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* True if a group of the description is a group of job.yaml or a part of it. */
static bool workload_group_matches(const char *group, const char *name)
{
    size_t len = strlen(name);
    return strncmp(group, name, len) == 0 && (!group[len] || group[len] == '/');
}

static bool workload_lists_group(const struct job_workload *workload, const char *group)
{
    if (!workload->groups.loc.line)
        return true;
    for (uint32_t i = 0; i < workload->groups.n; i++)
        if (workload->groups.items[i].v &&
            workload_group_matches(group, workload->groups.items[i].v))
            return true;
    return false;
}

/* The groups that the workload lists, or all, if one of its ranks is a member. */
static void workload_find_groups(struct planner *pl, const struct job_workload *workload,
                                 struct desc_workload *out)
{
    const struct desc *desc = pl->desc;
    bool *mine = arena_calloc(pl->arena, desc->nranks, sizeof *mine);
    out->groups = arena_calloc(pl->arena, desc->ngroups, sizeof *out->groups);
    for (uint32_t i = 0; i < out->ranks.n; i++)
        mine[out->ranks.items[i]] = true;
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *ranks = &desc->groups[g].ranks;
        uint32_t i = 0;
        while (i < ranks->n && !mine[ranks->items[i]])
            i++;
        if (i < ranks->n && workload_lists_group(workload, desc->groups[g].name))
            out->groups[out->ngroups++] = g;
    }
}

static void workload_plugin_error(struct planner *pl, uint32_t index, struct diag *d)
{
    d->loc = pl->job->workloads[index].plugin.loc;
    diag_wrap(d, "workloads[%u].plugin", index);
    planner_add_error(pl, d);
}

/* Finds the plugin and puts its path into the description. NULL: unknown, or an error was reported.
 */
static const struct described *workload_plugin(struct planner *pl, uint32_t index,
                                               struct desc_workload *out)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    struct diag d;
    if (!workload->plugin.v)
        return NULL;
    out->plugin = lookup_workload(pl->job, pl->in->workloads, workload->plugin.v, pl->arena, &d);
    if (!out->plugin) {
        workload_plugin_error(pl, index, &d);
        return NULL;
    }
    const struct described *what = lookup_described(pl->in, DESCRIBE_WORKLOAD, out->plugin);
    if (!what || !what->error)
        return what;
    if (pl->in->examined)
        return NULL;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "%s", what->error);
    diag_hint(&d, "%s", what->hint);
    workload_plugin_error(pl, index, &d);
    return NULL;
}

static void workload_copy_overrides(struct planner *pl, const struct job_workload *workload,
                                    struct desc_workload *out)
{
    out->overrides = arena_calloc(pl->arena, workload->noverrides, sizeof *out->overrides);
    out->noverrides = workload->noverrides;
    for (uint32_t i = 0; i < out->noverrides; i++) {
        planner_ranks(pl, &workload->overrides[i].ranks, &out->overrides[i].ranks);
        planner_pairs(pl, &workload->overrides[i].params, &out->overrides[i].params);
    }
}

void plan_workloads(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    desc->workloads = arena_calloc(pl->arena, job->nworkloads, sizeof *desc->workloads);
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const struct job_workload *workload = &job->workloads[i];
        struct desc_workload *out = &desc->workloads[desc->nworkloads++];
        *out = (struct desc_workload){.name = workload->name.v,
                                      .background = workload->background.v,
                                      .timeout_ns = (uint64_t)workload->timeout.v,
                                      .plugin = "",
                                      .loc = workload->plugin.loc};
        const struct described *what = workload->command.n ? NULL : workload_plugin(pl, i, out);
        planner_ranks(pl, &workload->ranks, &out->ranks);
        if (workload->command.n)
            plan_command(pl, i, out);
        workload_find_groups(pl, workload, out);
        planner_pairs(pl, &workload->params, &out->params);
        workload_copy_overrides(pl, workload, out);
        if (what)
            params_check(pl, i, what);
    }
}

/* ---- programs ----
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

/* Bits of DESC_OBSERVE_MPI and its like. Options are beside `auto` alone. */
static uint8_t command_observe(const struct job_observe *observe)
{
    const bool all = !observe->taps.n && observe->mode.v != JOB_OBSERVE_OFF;
    uint8_t taps = all ? DESC_OBSERVE_MPI | DESC_OBSERVE_TORCH : 0;
    for (uint32_t i = 0; i < observe->taps.n; i++)
        taps |= (uint8_t)observe->taps.items[i].v;
    if (observe->mpi.leaks.v == JOB_OBSERVE_LEAKS_ERROR)
        taps |= DESC_OBSERVE_LEAKS;
    return taps;
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
    out->observe = command_observe(&workload->observe);
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

/* ---- the environment ----
 *
 * The environment of the ranks: variables of collrun's environment that env.pass and env.secrets
 * name, values of env.set, names of env.unset. A secret that is not set is an error.
 */

static const char *env_value(const char *variable, const char *name)
{
    size_t len = strlen(name);
    return strncmp(variable, name, len) == 0 && variable[len] == '=' ? variable + len + 1 : NULL;
}

static void env_pass(struct planner *pl, const char *variable, struct diag_loc loc)
{
    struct desc_kvs *out = &pl->desc->env_pass;
    size_t len = strcspn(variable, "=");
    const char *name = arena_strndup(pl->arena, variable, len);
    if (!variable[len])
        return;
    for (uint32_t i = 0; i < out->n; i++)
        if (strcmp(out->items[i].key, name) == 0)
            return;
    out->items[out->n++] = (struct desc_kv){.key = name, .value = variable + len + 1, .loc = loc};
}

static void env_pass_matching(struct planner *pl, const struct job_str *pattern)
{
    char name[256];
    for (const char *const *variable = pl->in->environ; pattern->v && *variable; variable++) {
        size_t len = strcspn(*variable, "=");
        if (!len || len >= sizeof name)
            continue;
        memcpy(name, *variable, len);
        name[len] = '\0';
        if (name_matches(pattern->v, name))
            env_pass(pl, *variable, pattern->loc);
    }
}

static void env_pass_secret(struct planner *pl, const struct job_str *name)
{
    if (!name->v)
        return;
    for (const char *const *variable = pl->in->environ; *variable; variable++) {
        if (env_value(*variable, name->v)) {
            env_pass(pl, *variable, name->loc);
            return;
        }
    }
    struct diag d;
    diag_at(&d, name->loc, "env.secrets: the environment variable %s is not set", name->v);
    planner_add_error(pl, &d);
}

/* First what files have, then what the job file sets. */
static void plan_env_set(struct planner *pl)
{
    struct desc_kvs files, set, *all = &pl->desc->env_set;
    planner_pairs(pl, &pl->job->env.from_files, &files);
    planner_pairs(pl, &pl->job->env.set, &set);
    *all = (struct desc_kvs){arena_calloc(pl->arena, (size_t)files.n + set.n, sizeof *all->items),
                             files.n + set.n};
    if (files.n)
        memcpy(all->items, files.items, files.n * sizeof *files.items);
    if (set.n)
        memcpy(all->items + files.n, set.items, set.n * sizeof *set.items);
}

void plan_env(struct planner *pl)
{
    const struct job_env *env = &pl->job->env;
    struct desc *desc = pl->desc;
    size_t nvariables = 0;
    while (pl->in->environ[nvariables])
        nvariables++;
    desc->env_pass.items = arena_calloc(pl->arena, nvariables, sizeof *desc->env_pass.items);
    desc->env_unset.items = arena_calloc(pl->arena, env->unset.n, sizeof *desc->env_unset.items);
    for (uint32_t i = 0; i < env->pass.n; i++)
        env_pass_matching(pl, &env->pass.items[i]);
    for (uint32_t i = 0; i < env->secrets.n; i++)
        env_pass_secret(pl, &env->secrets.items[i]);
    plan_env_set(pl);
    desc->job_dir = pl->job->dir;
    desc->activate = arena_calloc(pl->arena, env->activate.n, sizeof *desc->activate);
    for (uint32_t i = 0; i < env->activate.n; i++)
        if (env->activate.items[i].v)
            desc->activate[desc->nactivate++] =
                (struct desc_item){env->activate.items[i].v, env->activate.items[i].loc};
    for (uint32_t i = 0; i < env->unset.n; i++)
        if (env->unset.items[i].v)
            desc->env_unset.items[desc->env_unset.n++] = (struct desc_kv){
                .key = env->unset.items[i].v, .value = "", .loc = env->unset.items[i].loc};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job file may mean, but probably does not. These are warnings: the job can run as written.
 *  - A command has what only a shell, or only other keys replace: `{rank}`, `~/`, `>`, `&&`.
 *  - A command of a transport has a template that is not {host}.
 *  - Two workloads run at the same time on a rank and call collectives of the same group. Plugins
 *    that call none, and groups that the parameter `group` leaves out, are not meant.
 */
#include "base/quote.h"
#include "plan/planner.h"
#include "plan/plugin_query.h"

#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static const char *warnings_base(const char *program)
{
    const char *slash = strrchr(program, '/');
    return slash ? slash + 1 : program;
}

static bool warnings_is_one_of(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(word, list) warnings_is_one_of((word), (list), sizeof(list) / sizeof *(list))

/* ---- commands ---- */

/* The first of `names` that stands in braces in the text, but is neither ${NAME}, which a shell
 * replaces, nor {{NAME}}. NULL: none. */
static const char *warnings_find_template(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = strstr(text, names[i]);
        if (at && (at == text || !strchr("${", at[-1])))
            return names[i];
    }
    return NULL;
}

/* The argument is a program in another language, which has its own braces and "~". */
static bool warnings_is_code(const struct job_strs *command, uint32_t i)
{
    return i > 1 && command->items[i - 1].v && strcmp(command->items[i - 1].v, "-c") == 0;
}

static bool warnings_is_python(const struct job_strs *command)
{
    return strncmp(warnings_base(command->items[0].v), "python", 6) == 0;
}

static void warnings_template(struct planner *pl, uint32_t index, uint32_t i)
{
    static const char *const names[] = {"{rank}", "{local_rank}", "{host}", "{run_id}",
                                        "{attempt}"};
    static const char *const variables[] = {"RANK", "LOCAL_RANK", "HOST", "RUN_ID", "ATTEMPT"};
    const struct job_strs *command = &pl->job->workloads[index].command;
    const char *text = command->items[i].v;
    const char *found = warnings_find_template(text, names, sizeof names / sizeof *names);
    struct diag d;
    if (!found || (warnings_is_python(command) && warnings_is_code(command, i)))
        return;
    size_t which = 0;
    while (names[which] != found)
        which++;
    diag_at(&d, command->items[i].loc, "workloads[%u].command[%u]: %s is not replaced in a command",
            index, i, found);
    diag_hint(&d,
              "the program has it in its environment as COLLRUN_%s; `env` of the workload "
              "replaces it, as in env: {NAME: \"%s\"}",
              variables[which], found);
    diag_list_warn(pl->diags, &d);
}

/* Words that a shell takes for itself. They are arguments of programs that look for such
 * characters, and values of options. */
static void warnings_shell_word(struct planner *pl, uint32_t index, uint32_t i)
{
    static const char *const words[] = {">", ">>", "<",  "|",    "||", "&&",
                                        "&", ";",  "2>", "2>&1", "&>"};
    static const char *const takers[] = {"test", "[",   "expr", "find", "grep",  "egrep", "fgrep",
                                         "awk",  "sed", "cut",  "sort", "xargs", "echo",  "printf"};
    const struct job_strs *command = &pl->job->workloads[index].command;
    const char *before = command->items[i - 1].v;
    struct diag d;
    if (!IS_ONE_OF(command->items[i].v, words) || !before ||
        IS_ONE_OF(warnings_base(command->items[0].v), takers) ||
        (before[0] == '-' && !warnings_is_code(command, i - 1)))
        return;
    diag_at(&d, command->items[i].loc,
            "workloads[%u].command[%u]: %s is an argument: a command is not run by a shell", index,
            i, QUOTED(command->items[i].v));
    diag_hint(&d, "for a shell, write command: [sh, -c, \"...\"]; logging.dir keeps the output of "
                  "each rank in a file");
    diag_list_warn(pl->diags, &d);
}

static void warnings_home(struct planner *pl, uint32_t index, uint32_t i)
{
    const struct job_strs *command = &pl->job->workloads[index].command;
    const char *text = command->items[i].v;
    struct diag d;
    if (strncmp(text, "~/", 2) != 0 || warnings_is_code(command, i))
        return;
    diag_at(&d, command->items[i].loc,
            "workloads[%u].command[%u]: \"~/\" is not expanded in an argument", index, i);
    diag_hint(&d, "write \"${env:HOME}%.200s\"", text + 1);
    diag_list_warn(pl->diags, &d);
}

static void warnings_command(struct planner *pl, uint32_t index)
{
    const struct job_strs *command = &pl->job->workloads[index].command;
    for (uint32_t i = 0; i < command->n; i++)
        if (!command->items[i].v) /* it was refused */
            return;
    for (uint32_t i = 0; i < command->n; i++) {
        warnings_template(pl, index, i);
        if (i > 0) {
            warnings_shell_word(pl, index, i);
            warnings_home(pl, index, i);
        }
    }
}

static void warnings_transport(struct planner *pl, const struct job_strs *command)
{
    static const char *const names[] = {"{rank}",    "{local_rank}", "{run_id}", "{attempt}",
                                        "{address}", "{user}",       "{port}",   "{name}"};
    struct diag d;
    for (uint32_t i = 0; i < command->n; i++) {
        const char *text = command->items[i].v;
        const char *found =
            text ? warnings_find_template(text, names, sizeof names / sizeof *names) : NULL;
        if (!found)
            continue;
        diag_at(&d, command->items[i].loc, "transport.command[%u]: %s is not replaced", i, found);
        diag_hint(&d, "{host} is, by the name of the host; a host may have its own command");
        diag_list_warn(pl->diags, &d);
    }
}

/* ---- workloads that share a group ---- */

/* The only group that the plugin uses, if its parameter `group` says so; `all` if any. */
static uint32_t warnings_only_group(const struct planner *pl, uint32_t index, uint32_t all)
{
    const struct desc_workload *w = &pl->desc->workloads[index];
    const struct described *what = lookup_described(pl->in, DESCRIBE_WORKLOAD, w->plugin);
    const char *name = NULL;
    for (uint32_t i = 0; i < what->nparams; i++)
        if (strcmp(what->params[i].name, "group") == 0)
            name = what->params[i].def ? what->params[i].def : "";
    for (uint32_t i = 0; i < w->params.n; i++)
        if (name && strcmp(w->params.items[i].key, "group") == 0)
            name = w->params.items[i].value;
    for (uint32_t i = 0; i < w->noverrides; i++)
        for (uint32_t k = 0; k < w->overrides[i].params.n; k++)
            if (strcmp(w->overrides[i].params.items[k].key, "group") == 0)
                return all;
    if (!name || !w->ngroups)
        return all;
    if (!*name)
        return w->groups[0];
    for (uint32_t i = 0; i < w->ngroups; i++)
        if (strcmp(pl->desc->groups[w->groups[i]].name, name) == 0)
            return w->groups[i];
    return all;
}

static bool warnings_may_use(const struct planner *pl, uint32_t index, uint32_t group)
{
    const struct desc_workload *w = &pl->desc->workloads[index];
    const uint32_t all = pl->desc->ngroups, only = warnings_only_group(pl, index, all);
    bool listed = false;
    for (uint32_t i = 0; i < w->ngroups; i++)
        listed = listed || w->groups[i] == group;
    return listed && (only == all || only == group);
}

/* The first rank of the group that runs both workloads; `nranks`: none. */
static uint32_t warnings_find_rank(struct planner *pl, uint32_t a, uint32_t b, uint32_t group)
{
    const struct desc *desc = pl->desc;
    const struct desc_ranks *members = &desc->groups[group].ranks,
                            *first = &desc->workloads[a].ranks, *second = &desc->workloads[b].ranks;
    uint8_t *runs = arena_calloc(pl->arena, desc->nranks, 1); /* the workloads of each rank */
    for (uint32_t i = 0; i < first->n; i++)
        runs[first->items[i]] = 1;
    for (uint32_t i = 0; i < second->n; i++)
        runs[second->items[i]] |= 2;
    for (uint32_t i = 0; i < members->n; i++)
        if (runs[members->items[i]] == 3)
            return members->items[i];
    return desc->nranks;
}

static bool warnings_share(struct planner *pl, uint32_t a, uint32_t b)
{
    struct diag d;
    for (uint32_t g = 0; g < pl->desc->ngroups; g++) {
        const bool both = warnings_may_use(pl, a, g) && warnings_may_use(pl, b, g);
        const uint32_t rank = both ? warnings_find_rank(pl, a, b, g) : pl->desc->nranks;
        if (rank == pl->desc->nranks)
            continue;
        diag_at(&d, pl->desc->workloads[b].loc,
                "workloads[%u]: %s and %s run at the same time on rank %u, and both may call "
                "collectives of the group %s",
                b, QUOTED(pl->desc->workloads[a].name), QUOTED(pl->desc->workloads[b].name), rank,
                QUOTED(pl->desc->groups[g].name));
        diag_second(&d, pl->desc->workloads[a].loc, "the other workload");
        diag_hint(&d, "a group serves one workload at a time: give each its own by "
                      "groups: [NAME]; workloads do not run one after the other");
        diag_list_warn(pl->diags, &d);
        return true;
    }
    return false;
}

/* True if the plugin of a workload calls collectives. */
static bool *warnings_find_callers(struct planner *pl)
{
    const struct desc *desc = pl->desc;
    bool *calls = arena_calloc(pl->arena, desc->nworkloads, sizeof *calls);
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        const char *plugin = desc->workloads[i].plugin;
        const struct described *what =
            *plugin ? lookup_described(pl->in, DESCRIBE_WORKLOAD, plugin) : NULL;
        calls[i] = what && !what->error && elf_calls_collectives(plugin);
    }
    return calls;
}

void plan_warn(struct planner *pl)
{
    const struct job_hosts *hosts = &pl->job->hosts;
    const struct job_strs *last = NULL;
    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct job_strs *command = &hosts->nodes[i].transport.command;
        if (command->n && command->loc.line && (!last || last->items != command->items))
            warnings_transport(pl, command);
        last = command;
    }
    for (uint32_t i = 0; i < pl->job->nworkloads; i++)
        warnings_command(pl, i);
    if (diag_list_count(pl->diags)) /* the plan may lack ranks and groups */
        return;
    const bool *calls = pl->desc->nworkloads > 1 ? warnings_find_callers(pl) : NULL;
    for (uint32_t b = 1; calls && b < pl->desc->nworkloads; b++)
        for (uint32_t a = 0; calls[b] && a < b; a++)
            if (calls[a] && warnings_share(pl, a, b))
                break;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/wrap.h"

#include "base/parse.h"

#include <string.h>

static int wrap_take_ranks(const struct parse_ranks *set, struct arena *arena, struct desc *desc,
                           struct diag *d)
{
    bool *taken = arena_calloc(arena, desc->nranks, sizeof *taken);
    uint32_t *items = arena_calloc(arena, desc->nranks, sizeof *items);
    for (uint32_t i = 0; i < set->n; i++) {
        const struct parse_range *range = &set->ranges[i];
        for (uint64_t rank = range->first; rank <= range->last; rank += range->step) {
            if (rank >= desc->nranks)
                return diag_set(d, COLLRUN_ERR_INVALID, "--wrap: there is no rank %u",
                                (unsigned)rank);
            taken[rank] = true;
        }
    }
    desc->wrapped = (struct desc_ranks){.items = items};
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (set->all || taken[i])
            items[desc->wrapped.n++] = i;
    }
    return 0;
}

int wrap_plan(const char *ranks, const struct parse_rank_names *names, char *const *command,
              struct arena *arena, struct desc *desc, struct diag *d)
{
    struct parse_ranks set;
    uint32_t n = 0;
    if (parse_ranks(ranks, names, arena, &set, d) < 0)
        return diag_wrap(d, "--wrap");
    while (command[n])
        n++;
    const char **items = arena_calloc(arena, n, sizeof *items);
    for (uint32_t i = 0; i < n; i++)
        items[i] = command[i];
    desc->wrap = (struct desc_strs){items, n};
    return wrap_take_ranks(&set, arena, desc, d);
}

/* A shell without a script. */
static bool wrap_is_shell(const struct desc_strs *command)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ksh", "fish", "tcsh"};
    const char *slash = strrchr(command->items[0], '/');
    const char *name = slash ? slash + 1 : command->items[0];
    bool found = false;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        found = found || strcmp(name, shells[i]) == 0;
    for (uint32_t i = 1; i < command->n; i++) {
        const char *word = command->items[i];
        found =
            found && (strncmp(word, "--", 2) == 0 || !strcmp(word, "-i") || !strcmp(word, "-l"));
    }
    return found;
}

int wrap_use_terminal(struct desc *desc, struct job *job, const struct desc_terminal *terminal,
                      struct diag *d)
{
    const int64_t day = INT64_C(86400000000000);
    const uint32_t rank = desc->wrapped.items[0];
    const bool shell = wrap_is_shell(&desc->wrap);
    const bool alone = desc->wrapped.n == 1 && job->processes.stdin_rank.v == JOB_STDIN_NONE;
    if (!terminal || !alone) {
        if (!shell || desc_find_command(desc, rank) != desc->nworkloads)
            return 0;
        diag_set(d, COLLRUN_ERR_INVALID, "--wrap: %s needs a terminal, and there is none for it",
                 desc->wrap.items[0]);
        return diag_hint(d, "one rank has it: one that is wrapped alone, in a job without "
                            "processes.stdin, while collrun's input and output are a terminal");
    }
    if (!job->timeouts.start.loc.line)
        job->timeouts.start.v = day;
    if (!job->timeouts.rendezvous.loc.line)
        job->timeouts.rendezvous.v = day;
    if (!job->timeouts.stall.loc.line)
        job->timeouts.stall.v = 0;
    desc->start_timeout_ns = (uint64_t)job->timeouts.start.v;
    desc->rendezvous_timeout_ns = (uint64_t)job->timeouts.rendezvous.v;
    desc->terminal = *terminal;
    desc->terminal.rank = rank;
    desc->terminal.shell = shell;
    desc->with_stdin = desc->wrapped;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_state.h"

#include <errno.h>
#include <stdio.h>

int run_state_init(struct run_state *run, const struct attempt *a, struct diag *d)
{
    const struct desc *desc = a->desc;
    *run = (struct run_state){.job = a->job,
                              .desc = desc,
                              .options = a->options,
                              .rundir = a->rundir,
                              .trace = a->trace,
                              .begin_ns = now_ns()};
    arena_init(&run->arena);
    run->hosts = arena_calloc(&run->arena, desc->nhosts, sizeof *run->hosts);
    run->ranks = arena_calloc(&run->arena, desc->nranks, sizeof *run->ranks);
    run->loop = loop_new();
    for (uint32_t w = 0; w < desc->nworkloads; w++)
        for (uint32_t i = 0; desc->workloads[w].command.n && i < desc->workloads[w].ranks.n; i++)
            run->ranks[desc->workloads[w].ranks.items[i]].command = true;
    return run->loop ? COLLRUN_OK : diag_sys(d, errno, "cannot make an epoll instance");
}

void run_state_fini(struct run_state *run)
{
    for (uint32_t i = 0; run->ranks && i < run->desc->nranks; i++)
        rank_state_fini(&run->ranks[i]);
    loop_free(run->loop);
    arena_fini(&run->arena);
}

void run_state_log(const struct run_state *run, const char *text)
{
    if (run->options->verbose)
        fprintf(run->options->report->out, "collrun: %.3f s: %s\n",
                (double)(now_ns() - run->begin_ns) / 1e9, text);
}

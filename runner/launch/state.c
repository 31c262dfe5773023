/* SPDX-License-Identifier: Apache-2.0
 *
 * What every rank is doing, on stderr: for SIGUSR1, and with a verdict that says that time ran out.
 * Agents read it from the ranks' records, so a rank that hangs, or is stopped, is told of like any
 * other. Ranks that do the same share a line.
 */
#include "launch/supervise.h"

#include "launch/muster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS 200000000ull /* how long the agents have for their answers */

/* Once the job has been stopped: what it was doing then. */
static void describe_rank(const struct supervisor *s, uint32_t rank, char *out, size_t size)
{
    const struct rank_state *r = &s->ranks[rank];
    if (r->exited && s->ladder == LADDER_NONE)
        snprintf(out, size, "ended");
    else if (r->stage == STAGE_RUNNING && r->seen.looked)
        seen_describe(&r->seen, out, size);
    else
        snprintf(out, size, "%s%s", rank_stage_text(r->stage),
                 r->seen.state == 'T' ? ", stopped by a signal" : "");
}

void supervisor_print_state(const struct supervisor *s, FILE *out)
{
    uint32_t *list = calloc(s->desc->nranks, sizeof *list);
    bool *told = calloc(s->desc->nranks, sizeof *told);
    for (uint32_t i = 0; list && told && i < s->desc->nranks; i++) {
        char doing[320], other[320], ranks[256];
        uint32_t n = 0;
        describe_rank(s, i, doing, sizeof doing);
        for (uint32_t j = i; !told[i] && j < s->desc->nranks; j++) {
            describe_rank(s, j, other, sizeof other);
            if (strcmp(doing, other) == 0)
                list[n++] = j;
        }
        for (uint32_t k = 0; k < n; k++)
            told[list[k]] = true;
        ranks_format(ranks, sizeof ranks, list, n);
        if (n)
            fprintf(out, "collrun: rank%s %s: %s\n", n == 1 ? "" : "s", ranks, doing);
    }
    free(list);
    free(told);
    char late[256];
    muster_late(s, late, sizeof late);
    if (late[0])
        fprintf(out, "collrun: no answer yet from host %s\n", late);
}

void supervisor_on_state(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    if (!console_full(s->console))
        supervisor_print_state(s, s->options->report->out);
}

void supervisor_tell_state(struct supervisor *s)
{
    if (s->state.at_ns)
        return; /* about to be told */
    hosts_send_all(s, WIRE_LOOK, NULL, 0);
    loop_timer_set(s->loop, &s->state, ANSWER_NS);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "run/status_request.h"

#include "base/rank_list.h"
#include "run/hosts.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_NS 200000000ull /* how long the agents have to answer */

static void status_request_rank_text(const struct status_request *s, uint32_t rank, char *out,
                                     size_t size)
{
    const struct rank_state *r = &s->run->ranks[rank];
    if (r->exited && s->stop->step == STOP_NONE)
        snprintf(out, size, "exited");
    else if (r->phase == PHASE_RUNNING && r->command && !r->member)
        snprintf(out, size, "running a program that has not called collrun_init%s",
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
    else if (r->phase == PHASE_RUNNING && r->snapshot.known)
        snapshot_describe(&r->snapshot, out, size);
    else
        snprintf(out, size, "%s%s", rank_phase_text(r, r->phase),
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
}

/* ", for 3.2 s", or how long ago the last call was; of the rank for which it is longest. */
static void status_request_print_age(const struct status_request *s, const uint32_t *list,
                                     uint32_t n, FILE *out)
{
    uint64_t most = 0, age;
    bool inside = false;
    char text[192];
    for (uint32_t i = 0; i < n; i++) {
        const struct rank_state *r = &s->run->ranks[list[i]];
        if (r->exited || r->phase != PHASE_RUNNING || !snapshot_age(&r->snapshot, &age))
            continue;
        inside = snapshot_inside(&r->snapshot, text, sizeof text);
        most = age > most ? age : most;
    }
    if (most)
        fprintf(out, inside ? ", for %.1f s" : ", last called %.1f s ago", (double)most / 1e9);
}

/* "; node1: pids 4711, 4712; node2: pid 4713" */
static void status_request_print_pids(const struct status_request *s, const uint32_t *list,
                                      uint32_t n, FILE *out)
{
    enum { PIDS_MAX = 16 };
    const struct desc *desc = s->run->desc;
    uint32_t host = UINT32_MAX;
    for (uint32_t i = 0; i < n && i < PIDS_MAX; i++) {
        uint32_t on = desc->ranks[list[i]].host;
        bool more = i + 1 < n && desc->ranks[list[i + 1]].host == on;
        if (on != host)
            fprintf(out, "; %s: pid%s ", desc->hosts[on].name, more ? "s" : "");
        fprintf(out, "%s%d", on == host ? ", " : "", (int)s->run->ranks[list[i]].pid);
        host = on;
    }
    if (n > PIDS_MAX)
        fprintf(out, ", ...");
}

static void status_request_print_lines(const struct status_request *s, bool details, FILE *out)
{
    uint32_t nranks = s->run->desc->nranks;
    uint32_t *list = calloc(nranks, sizeof *list);
    bool *printed = calloc(nranks, sizeof *printed);
    for (uint32_t i = 0; list && printed && i < nranks; i++) {
        char doing[320], other[320], ranks[256];
        uint32_t n = 0;
        status_request_rank_text(s, i, doing, sizeof doing);
        for (uint32_t j = i; !printed[i] && j < nranks; j++) {
            status_request_rank_text(s, j, other, sizeof other);
            if (strcmp(doing, other) == 0)
                list[n++] = j;
        }
        for (uint32_t k = 0; k < n; k++)
            printed[list[k]] = true;
        rank_list_format(ranks, sizeof ranks, list, n);
        if (!n)
            continue;
        fprintf(out, "collrun: rank%s %s: %s", n == 1 ? "" : "s", ranks, doing);
        if (details) {
            status_request_print_age(s, list, n, out);
            status_request_print_pids(s, list, n, out);
        }
        fputc('\n', out);
    }
    free(list);
    free(printed);
    char missing[256];
    bring_up_missing_text(s->bring_up, missing, sizeof missing);
    if (missing[0])
        fprintf(out, "collrun: no answer yet from host %s\n", missing);
}

void status_request_print(const struct status_request *s, FILE *out)
{
    status_request_print_lines(s, false, out);
}

static void status_request_on_timer(struct loop_timer *t)
{
    struct status_request *s = t->owner;
    if (console_full(s->console))
        return;
    status_request_print_lines(s, true, s->run->options->report->out);
    stall_monitor_request(s->stalls);
}

void status_request_send(struct status_request *s)
{
    if (s->timer.at_ns) /* an answer is on its way */
        return;
    s->timer = (struct loop_timer){.fired = status_request_on_timer, .owner = s};
    hosts_send_all(s->run, WIRE_QUERY, NULL);
    loop_timer_set(s->run->loop, &s->timer, ANSWER_NS);
}

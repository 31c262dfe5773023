/* SPDX-License-Identifier: Apache-2.0 */
#include "run/status_request.h"

#include "base/parse.h"
#include "run/run_state.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_NS 200000000ull /* how long the agents have to answer */

static void status_request_rank_text(const struct status_request *s, uint32_t rank, char *out,
                                     size_t size)
{
    const struct rank_state *r = &s->run->ranks[rank];
    if (r->end == RANK_EXITED && s->stop->step == STOP_NONE)
        snprintf(out, size, "exited");
    else if (r->phase == PHASE_RUNNING && r->command && r->part == PART_OUTSIDE &&
             !r->snapshot.n) /* nor does its record have a group, of a library that writes it */
        snprintf(out, size, "running a program that has not called collrun_init%s",
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
    else if (r->phase == PHASE_RUNNING && r->snapshot.known)
        rank_describe(r, out, size);
    else
        snprintf(out, size, "%s%s", rank_phase_text(r, r->phase),
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
}

/* ", for 3.2 s", or how long ago the last call was; of the rank for which it is longest. */
static void status_request_print_age(const struct status_request *s, const uint32_t *list,
                                     uint32_t n, FILE *out)
{
    const uint64_t now = now_ns();
    uint64_t most = 0, age;
    bool inside = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct rank_state *r = &s->run->ranks[list[i]];
        if (r->end == RANK_EXITED || r->phase != PHASE_RUNNING || !rank_age(r, now, &age, &inside))
            continue;
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

struct status_line { /* what a rank is doing */
    uint32_t rank;
    const char *text;
    uint32_t first; /* the first rank that does the same */
};

static int status_request_by_text(const void *a, const void *b)
{
    const struct status_line *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int status_request_by_first(const void *a, const void *b)
{
    const struct status_line *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Ranks that do the same follow each other, the first ones in front. The text of each rank is made
 * once: the loop of the runner waits for this. */
static struct status_line *status_request_sort(const struct status_request *s, struct arena *arena)
{
    const uint32_t nranks = s->run->desc->nranks;
    struct status_line *lines = arena_calloc(arena, nranks, sizeof *lines);
    char doing[320];
    for (uint32_t i = 0; i < nranks; i++) {
        status_request_rank_text(s, i, doing, sizeof doing);
        lines[i] = (struct status_line){.rank = i, .text = arena_strdup(arena, doing)};
    }
    qsort(lines, nranks, sizeof *lines, status_request_by_text);
    for (uint32_t i = 0; i < nranks; i++) {
        const bool same = i > 0 && strcmp(lines[i].text, lines[i - 1].text) == 0;
        lines[i].first = same ? lines[i - 1].first : lines[i].rank;
    }
    qsort(lines, nranks, sizeof *lines, status_request_by_first);
    return lines;
}

static void status_request_print_lines(const struct status_request *s, bool details, FILE *out)
{
    const uint32_t nranks = s->run->desc->nranks;
    char missing[256];
    struct arena arena;
    arena_init(&arena);
    const struct status_line *lines = status_request_sort(s, &arena);
    uint32_t *list = arena_calloc(&arena, nranks, sizeof *list);
    for (uint32_t i = 0, n; i < nranks; i += n) {
        char ranks[256];
        for (n = 0; i + n < nranks && lines[i + n].first == lines[i].first; n++)
            list[n] = lines[i + n].rank;
        rank_list_format(ranks, sizeof ranks, list, n);
        fprintf(out, "collrun: rank%s %s: %s", n == 1 ? "" : "s", ranks, lines[i].text);
        if (details) {
            status_request_print_age(s, list, n, out);
            status_request_print_pids(s, list, n, out);
        }
        fputc('\n', out);
    }
    arena_fini(&arena);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/check_map.h"

#include "base/quote.h"

#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

uint32_t check_map_host(const struct job_hosts *hosts, const struct job_map_row *row)
{
    uint32_t h = 0;
    while (h < hosts->n && row->host.v && strcmp(hosts->nodes[h].name.v, row->host.v) != 0)
        h++;
    return row->host.v ? h : hosts->n;
}

static void check_map_unknown_host(const struct job *job, const struct job_map_row *row,
                                   struct diag_list *diags)
{
    struct diag d;
    diag_at(&d, row->host.loc, "processes.map: there is no host %s", QUOTED(row->host.v));
    diag_hint(&d, "the first host is %s", job->hosts.nodes[0].name.v);
    for (uint32_t i = 0; i < job->hosts.nspares; i++) {
        if (strcmp(job->hosts.spares[i].name.v, row->host.v) == 0)
            diag_hint(&d, "it is a spare host, which has no ranks (hosts.spare)");
    }
    diag_list_add(diags, &d);
}

static void check_map_twice(const struct job *job, uint32_t rank, const struct job_map_row *row,
                            const struct job_map_row *first, struct diag_list *diags)
{
    struct diag d;
    (void)job;
    diag_at(&d, row->ranks.loc, "processes.map: rank %u is listed twice", rank);
    diag_second(&d, first->ranks.loc, "first here");
    diag_list_add(diags, &d);
}

/* Reports the first rank that is listed twice. False after an error. */
static bool check_map_row(const struct job *job, uint32_t index, uint32_t *row_of,
                          struct diag_list *diags)
{
    const struct job_map_row *rows = job->processes.map.rows, *row = &rows[index];
    bool known =
        !row->host.v || job->hosts.refused || check_map_host(&job->hosts, row) < job->hosts.n;
    bool once = true;
    if (!known)
        check_map_unknown_host(job, row, diags);
    for (uint32_t rank = 0; rank < job->nranks; rank++) {
        if (!job_ranks_has(&row->ranks, rank))
            continue;
        if (!row_of[rank])
            row_of[rank] = index + 1;
        else if (once)
            check_map_twice(job, rank, row, &rows[row_of[rank] - 1], diags);
        once = once && row_of[rank] == index + 1;
    }
    return known && once;
}

static void check_map_slots(const struct job *job, const uint32_t *row_of, struct arena *arena,
                            struct diag_list *diags)
{
    const struct job_hosts *hosts = &job->hosts;
    uint32_t *used = arena_calloc(arena, (size_t)hosts->n + 1, sizeof *used);
    for (uint32_t rank = 0; rank < job->nranks; rank++)
        used[check_map_host(hosts, &job->processes.map.rows[row_of[rank] - 1])]++;
    for (uint32_t h = 0; h < hosts->n; h++) {
        const struct job_num *slots = &hosts->nodes[h].slots;
        struct diag d;
        if (!slots->v || used[h] <= slots->v)
            continue;
        diag_at(&d, slots->loc, "processes.map: host %s has %u slot%s, but %u ranks",
                hosts->nodes[h].name.v, (uint32_t)slots->v, slots->v == 1 ? "" : "s", used[h]);
        diag_list_add(diags, &d);
    }
}

void check_map(const struct job *job, struct arena *arena, struct diag_list *diags)
{
    const struct job_map *map = &job->processes.map;
    uint32_t *row_of = arena_calloc(arena, job->nranks, sizeof *row_of); /* plus one */
    bool good = map->n > 0;
    for (uint32_t i = 0; i < map->n; i++)
        good = check_map_row(job, i, row_of, diags) && good;
    if (!good || !job->processes.count.v)
        return;
    for (uint32_t rank = 0; rank < job->nranks; rank++) {
        struct diag d;
        if (row_of[rank])
            continue;
        diag_at(&d, map->rows[0].loc, "processes.map: rank %u has no host", rank);
        diag_second(&d, job->processes.count.loc, "%u ranks", job->nranks);
        diag_list_add(diags, &d);
        return;
    }
    check_map_slots(job, row_of, arena, diags);
}

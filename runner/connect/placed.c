/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/placed.h"

#include "base/exit_codes.h"
#include "base/wire_fields.h"
#include "connect/survey.h"

#include <collrun/types.h>
#include <stdio.h>
#include <string.h>

struct placed {
    struct survey survey;
    struct desc *desc;
    struct arena *arena;            /* of what is put into desc */
    struct wire_list_text *changes; /* of each host: by env.activate */
    const char **notes; /* of each host: why its ranks are not bound; NULL: no answer yet */
    bool asked;
};

static void placed_send(struct placed *p, struct survey_host *host, bool one_machine)
{
    const struct buf *desc = connector_host_desc(p->survey.connector, host->index);
    struct buf b;
    buf_init(&b);
    wire_put_place(&b, &(struct wire_place){.host = host->index,
                                            .engine = "",
                                            .one_machine = one_machine,
                                            .desc = {desc->data, desc->len}});
    conn_send_buf(&host->conn, WIRE_PLACE, WIRE_HOST, 0, &b);
    buf_fini(&b);
}

/* All hosts are asked once all have been reached: what they share with others depends on it. */
static void placed_advance(struct placed *p)
{
    struct survey *s = &p->survey;
    bool done = true;
    if (!survey_all_answered(s))
        return;
    if (!p->asked) {
        p->asked = true;
        const bool one_machine = survey_choose_network(s);
        for (uint32_t i = 0; i < s->n; i++)
            if (!s->hosts[i].lost)
                placed_send(p, &s->hosts[i], one_machine);
    }
    for (uint32_t i = 0; i < s->n; i++)
        done = done && (s->hosts[i].lost || p->notes[i]);
    if (done)
        survey_stop(s);
}

static void placed_on_hello(void *ctx, struct survey_host *host)
{
    (void)host;
    placed_advance(ctx);
}

static void placed_on_lost(void *ctx, struct survey_host *host, bool other_build)
{
    (void)host, (void)other_build;
    placed_advance(ctx);
}

/* The ids of the devices, "a,b", in the order of the rank. */
static void placed_set_devices(struct placed *p, struct desc_rank *rank, const char *ids)
{
    for (uint32_t i = 0; i < rank->ndevices && *ids; i++) {
        const size_t len = strcspn(ids, ",");
        const char *id = arena_strndup(p->arena, ids, len);
        if (id)
            rank->devices[i].id = id;
        ids += len + (ids[len] == ',');
    }
}

static void placed_read(struct placed *p, uint32_t host, const struct wire_placed *placed)
{
    struct desc *desc = p->desc;
    p->notes[host] = placed->unbound;
    p->changes[host] = placed->changes;
    for (uint32_t i = 0; i < placed->places.n; i++) {
        const struct wire_item_place *place = &placed->places.items[i];
        if (place->rank >= desc->nranks || desc->ranks[place->rank].host != host)
            return;
        struct desc_rank *rank = &desc->ranks[place->rank];
        rank->cpus = place->cpus;
        rank->memory = "any";
        if (place->memory_node != UINT32_MAX)
            rank->memory = arena_printf(p->arena, "node %u", place->memory_node);
        placed_set_devices(p, rank, place->devices);
    }
}

static void placed_on_frame(void *ctx, struct survey_host *host, const struct wire_frame *f)
{
    struct placed *p = ctx;
    struct wire_placed placed;
    struct diag *d = &placed.error;
    if (f->type != WIRE_PLACED || p->notes[host->index])
        return;
    p->notes[host->index] = "";
    if (!wire_read_placed(f, p->arena, &placed))
        wire_malformed(d, "PLACED frame");
    else if (d->code == COLLRUN_OK)
        placed_read(p, host->index, &placed);
    if (d->code != COLLRUN_OK) {
        if (!strstr(d->text, p->desc->hosts[host->index].name))
            diag_wrap(d, "host %s", p->desc->hosts[host->index].name);
        survey_report(&p->survey, d, p->survey.job->hosts.nodes[host->index].name.loc, EXIT_JOB);
    }
    placed_advance(p);
}

static bool placed_owes(void *ctx, const struct survey_host *host)
{
    const struct placed *p = ctx;
    return !p->notes[host->index];
}

static void placed_print_changes(const struct placed *p, const struct report *report)
{
    for (uint32_t host = 0; host < p->survey.n; host++)
        for (uint32_t i = 0; i < p->changes[host].n; i++) {
            const char *text = p->changes[host].items[i].text;
            report_line(report, arena_printf(p->arena, "host %s: env.activate %s %s",
                                             p->desc->hosts[host].name,
                                             strchr(text, '=') ? "sets" : "removes", text));
        }
}

static void placed_print_notes(const struct placed *p, FILE *out)
{
    for (uint32_t i = 0; i < p->survey.n; i++)
        if (p->notes[i] && *p->notes[i])
            fprintf(out, "collrun: host %s: its ranks are not bound: %s\n", p->desc->hosts[i].name,
                    p->notes[i]);
}

int placed_ask(const struct job *job, struct desc *desc, struct arena *arena,
               const struct report *report, bool verbose)
{
    struct placed p = {.survey = {.job = job,
                                  .desc = desc,
                                  .report = report,
                                  .hooks = {.on_hello = placed_on_hello,
                                            .on_frame = placed_on_frame,
                                            .on_lost = placed_on_lost,
                                            .owes = placed_owes,
                                            .ctx = &p}},
                       .desc = desc,
                       .arena = arena,
                       .changes = arena_calloc(arena, desc->nhosts, sizeof *p.changes),
                       .notes = arena_calloc(arena, desc->nhosts, sizeof *p.notes)};
    struct diag d;
    diag_init(&d);
    if (survey_init(&p.survey, verbose, &d) == COLLRUN_OK) {
        survey_run(&p.survey);
        placed_print_notes(&p, report->out);
        placed_print_changes(&p, report);
    } else {
        survey_report(&p.survey, &d, (struct diag_loc){0}, EXIT_INTERNAL);
    }
    survey_fini(&p.survey);
    return p.survey.exit_code;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "run/command_watch.h"

#include "diagnose/cause.h"
#include "run/hosts.h"

#include <stdio.h>

#define LEFT_NS 300000000ull /* after the exit of a member */

void command_watch_on_phase(struct command_watch *c, uint32_t rank, uint16_t type)
{
    struct rank_state *state = &c->run->ranks[rank];
    const struct desc *desc = c->run->desc;
    if (type == WIRE_STARTED) {
        bool background = desc->workloads[desc_find_command(desc, rank)].background;
        phases_advance(c->phases, rank, background ? PHASE_DONE : PHASE_READY);
    }
    state->member = state->member || type == WIRE_ATTACHED;
    state->attached_ns = type == WIRE_ATTACHED ? now_ns() : state->attached_ns;
    state->formed = state->formed || type == WIRE_READY;
    state->finalizing = state->finalizing || type == WIRE_DONE;
    if (type == WIRE_DONE)
        phases_on_finalize(c->phases, rank);
    state->finalized = state->finalized || type == WIRE_IDLE;
}

/* ---- ranks that exit without collrun_finalize ---- */

static void command_watch_send_lost(struct command_watch *c, uint32_t rank)
{
    struct rank_state *state = &c->run->ranks[rank];
    char text[200];
    if (state->lost_sent || c->stop->step != STOP_NONE)
        return;
    state->lost_sent = true;
    snprintf(text, sizeof text, "rank %u (%.100s, pid %d) exited with code 0 without %s", rank,
             c->run->desc->hosts[c->run->desc->ranks[rank].host].name, (int)state->pid,
             state->member ? "collrun_finalize" : "collrun_init");
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, rank);
    buf_put_str(&b, text);
    hosts_send_all(c->run, WIRE_RANK_LOST, &b);
    buf_fini(&b);
}

static bool command_watch_has_left(const struct rank_state *r)
{
    return r->command && r->exited && r->status == 0 && !r->finalized;
}

static void command_watch_on_left(struct loop_timer *t)
{
    struct command_watch *c = t->owner;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++)
        if (command_watch_has_left(&c->run->ranks[i]))
            command_watch_send_lost(c, i);
}

void command_watch_on_exit(struct command_watch *c, uint32_t rank)
{
    struct rank_state *state = &c->run->ranks[rank];
    if (!state->command || (state->status != 0 && cause_of(state) != CAUSE_NONE))
        return;
    if (command_watch_has_left(state) && !state->member)
        command_watch_send_lost(c, rank);
    else if (command_watch_has_left(state) && !c->left.at_ns)
        loop_timer_set(c->run->loop, &c->left, LEFT_NS);
    phases_advance(c->phases, rank, PHASE_FINISHING);
}

static bool command_watch_share_group(const struct desc *desc, uint32_t a, uint32_t b)
{
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *ranks = &desc->groups[g].ranks;
        unsigned found = 0;
        for (uint32_t i = 0; i < ranks->n; i++)
            found += ranks->items[i] == a || ranks->items[i] == b;
        if (found == 2)
            return true;
    }
    return false;
}

void command_watch_on_failure(struct command_watch *c, uint32_t rank)
{
    enum cause_class class = cause_of(&c->run->ranks[rank]);
    if (class != CAUSE_PEER && class != CAUSE_STOPPED)
        return;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        struct rank_state *r = &c->run->ranks[i];
        if (!r->lost_sent || r->left_early || !command_watch_share_group(c->run->desc, i, rank))
            continue;
        r->left_early = true;
        r->first_failure_ns = r->ended_ns;
        r->first_failure_phase = PHASE_RUNNING;
    }
}

void command_watch_start(struct command_watch *c)
{
    c->left = (struct loop_timer){.fired = command_watch_on_left, .owner = c};
}

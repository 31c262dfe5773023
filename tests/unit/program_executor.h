/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes small programs of several ranks, collectives, splits, creations and messages over two
 * groups, and so knows whether they end. For test_deadlock.c.
 */
#ifndef TESTS_UNIT_PROGRAM_EXECUTOR_H
#define TESTS_UNIT_PROGRAM_EXECUTOR_H

#include "base/names.h"

#include <stdbool.h>
#include <stdint.h>

enum { RANKS = 4, STEPS = 4, SCOPES = 2, TAGS = 2 };

struct step {
    uint8_t kind; /* BARRIER, SEND, RECV, RECV_ANY, KIND_SPLIT or KIND_CREATE */
    uint8_t scope, peer, tag;
    bool eager; /* a send that is over at once */
    bool later; /* a message that is waited for at the end of the program only */
};

struct message { /* posted or unexpected */
    struct step step;
    uint64_t number;
    uint32_t from; /* of a receive that is done */
    bool done;
};

struct executor_rank {
    struct step program[STEPS];
    uint32_t at;      /* the current step; STEPS + 1: ended */
    bool posted_step; /* the current step has been called */
    struct message messages[STEPS];
    uint32_t nmessages;
    uint64_t collectives[SCOPES], splits[SCOPES], created[SCOPES];
    uint64_t calls[SCOPES]; /* messages */
};

struct world {
    struct executor_rank ranks[RANKS];
    uint32_t unexpected[SCOPES][RANKS][RANKS][TAGS]; /* eager messages: from, to */
};

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static struct message *matching(struct world *w, uint32_t rank, const struct step *mine)
{
    for (uint32_t o = 0; o < RANKS; o++) {
        if (o == rank || (mine->kind != COLLRUN_RECV_ANY && o != mine->peer))
            continue;
        struct executor_rank *a = &w->ranks[o];
        for (uint32_t i = 0; i < a->nmessages; i++) {
            struct step *s = &a->messages[i].step;
            bool fits =
                mine->kind == COLLRUN_SEND
                    ? s->kind == COLLRUN_RECV_ANY || (s->kind == COLLRUN_RECV && s->peer == rank)
                    : s->kind == COLLRUN_SEND && s->peer == rank;
            if (!a->messages[i].done && fits && s->scope == mine->scope && s->tag == mine->tag)
                return &a->messages[i];
        }
    }
    return NULL;
}

static uint32_t owner(const struct world *w, const struct message *m)
{
    uint32_t o = 0;
    while (m < w->ranks[o].messages || m >= w->ranks[o].messages + STEPS)
        o++;
    return o;
}

static void deliver(struct world *w, struct message *send, struct message *recv)
{
    send->done = recv->done = true;
    recv->from = owner(w, send);
}

/* An earlier send on its channel is not matched yet. */
static bool overtakes(const struct executor_rank *a, const struct message *m)
{
    bool found = false;
    for (const struct message *other = a->messages; other < m; other++)
        found = found || (!other->done && other->step.kind == COLLRUN_SEND &&
                          other->step.scope == m->step.scope && other->step.peer == m->step.peer &&
                          other->step.tag == m->step.tag);
    return found;
}

/* Posts a message. It is matched at once, becomes unexpected at its receiver (eager), or waits. */
static struct message *post(struct world *w, uint32_t rank, const struct step *s)
{
    struct executor_rank *a = &w->ranks[rank];
    struct message *m = &a->messages[a->nmessages++];
    *m = (struct message){.step = *s, .number = ++a->calls[s->scope]};
    for (uint32_t from = 0; s->kind != COLLRUN_SEND && from < RANKS; from++) {
        uint32_t *waiting = &w->unexpected[s->scope][from][rank][s->tag];
        if (!*waiting || (s->kind == COLLRUN_RECV && from != s->peer))
            continue;
        --*waiting;
        m->from = from;
        m->done = true;
        return m;
    }
    struct message *other = matching(w, rank, s);
    if (other && s->kind == COLLRUN_SEND)
        deliver(w, m, other);
    else if (other)
        deliver(w, other, m);
    else if (s->kind == COLLRUN_SEND && s->eager && !overtakes(a, m)) {
        w->unexpected[s->scope][rank][s->peer][s->tag]++;
        m->done = true;
    }
    return m;
}

/* How many of those calls that all members make together; NULL: it is a message. */
static uint64_t *joint_calls(struct executor_rank *a, const struct step *s)
{
    return s->kind == COLLRUN_BARRIER ? &a->collectives[s->scope]
           : s->kind == KIND_SPLIT    ? &a->splits[s->scope]
           : s->kind == KIND_CREATE   ? &a->created[s->scope]
                                      : NULL;
}

static bool all_came(struct world *w, const struct step *s, uint64_t number)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        if (*joint_calls(&w->ranks[i], s) < number)
            return false;
    }
    return true;
}

static bool step_done(struct world *w, struct executor_rank *a)
{
    if (a->at == STEPS) { /* waits for all that is left */
        for (uint32_t i = 0; i < a->nmessages; i++) {
            if (!a->messages[i].done)
                return false;
        }
        return true;
    }
    const struct step *s = &a->program[a->at];
    if (joint_calls(a, s))
        return all_came(w, s, *joint_calls(a, s));
    return s->later || a->messages[a->nmessages - 1].done;
}

/* One move of one rank. False: it is blocked, or has ended. */
static bool move(struct world *w, uint32_t rank)
{
    struct executor_rank *a = &w->ranks[rank];
    if (a->at > STEPS)
        return false;
    if (!a->posted_step && a->at < STEPS) {
        const struct step *s = &a->program[a->at];
        if (joint_calls(a, s))
            ++*joint_calls(a, s);
        else
            post(w, rank, s);
        a->posted_step = true;
        return true;
    }
    if (!step_done(w, a))
        return false;
    a->at++;
    a->posted_step = false;
    return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays the traces of a process; see play.h.
 *
 * - A *flight* is one call that was made to the engine, from its first rank's call to the moment
 *   when the last rank that made it has seen its end. Its buffers are then used again.
 * - play_step takes a rank as far as one call; a rank that cannot go on waits for a time or for a
 *   flight. When no rank can go on, play_idle sleeps or waits for any flight.
 */
#include "play.h"

#include "data.h"
#include "fold.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PLAY_POLL_NS = 20000 };

struct play_buffer {
    struct play_buffer *next; /* of those that are free */
    void *memory;
    size_t bytes;
};

struct flight {
    struct flight *next; /* collectives that not all ranks of this process have called yet */
    struct collrun_request *request;
    struct collrun_call call;
    const struct cast_group *group;
    struct play_buffer *send, *recv; /* NULL: none */
    size_t *counts;                  /* of vector forms: send and receive counts */
    size_t received;
    int arrived, users;
    bool done;
    uint64_t end_ns;
};

struct play_rank {
    const struct trace *trace;
    int index; /* of the trace */
    size_t at; /* the next call */
    size_t drained;
    bool slept, called; /* the next call: its computation is over; it was made */
    uint64_t until_ns;  /* end of the computation; 0: none */
    uint64_t began_ns;  /* of a wait */
    struct flight **flight;
    uint64_t *begin_ns;
    uint64_t *calls; /* collectives, by group of the cast */
};

struct player {
    struct cast *cast;
    double speed;
    bool verify;
    struct play_rank *ranks;
    struct flight **open; /* that the engine has */
    struct collrun_request **requests;
    size_t nopen, open_room;
    struct flight **calling; /* by group: the list of flight.next */
    uint64_t *begun;         /* by group: the number of the first of them */
    struct play_buffer *spare;
    struct play_sum sums[TRACE_KINDS];
    uint64_t wrong;
};

static uint64_t play_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int play_out_of_memory(const struct player *p, size_t n)
{
    return collrun_fail(p->cast->ctx, "out of memory for %zu bytes", n);
}

/* ---- buffers ---- */

/* The smallest spare one that fits, or a new one. */
static int play_take(struct player *p, size_t bytes, struct play_buffer **out)
{
    struct play_buffer **best = NULL;
    *out = NULL;
    if (!bytes)
        return 0;
    for (struct play_buffer **b = &p->spare; *b; b = &(*b)->next)
        if ((*b)->bytes >= bytes && (!best || (*b)->bytes < (*best)->bytes))
            best = b;
    if (best) {
        *out = *best;
        *best = (*best)->next;
        return 0;
    }
    struct play_buffer *made = calloc(1, sizeof *made);
    if (!made)
        return play_out_of_memory(p, bytes);
    int rc = collrun_alloc(p->cast->group, bytes, &made->memory);
    if (rc) {
        free(made);
        return rc;
    }
    made->bytes = bytes;
    *out = made;
    return 0;
}

static void play_give(struct player *p, struct play_buffer *b)
{
    if (!b)
        return;
    b->next = p->spare;
    p->spare = b;
}

/* ---- flights ---- */

static struct data_call play_data(struct flight *f)
{
    return (struct data_call){&f->call, collrun_rank(f->group->group), f->group->nprocesses};
}

static void play_release(struct player *p, struct flight *f)
{
    play_give(p, f->send);
    play_give(p, f->recv);
    free(f->counts);
    free(f);
}

static void play_finish(struct player *p, struct flight *f)
{
    f->done = true;
    f->end_ns = play_now();
    struct data_call d = play_data(f);
    size_t received = f->call.kind == COLLRUN_RECV ? f->received : 0;
    if (p->verify && !data_right(&d, f->recv ? f->recv->memory : NULL, received))
        p->wrong++;
}

static int play_describe(struct player *p, struct flight *f, const struct play_rank *r,
                         const struct op *op)
{
    const struct cast_group *g = f->group;
    f->counts = calloc(2 * (size_t)g->nprocesses, sizeof *f->counts);
    if (!f->counts)
        return play_out_of_memory(p, 2 * (size_t)g->nprocesses);
    fold_call(p->cast, g, r->trace->rank, op, f->counts, &f->call);
    if (f->call.kind == COLLRUN_RECV)
        f->call.received = &f->received;
    return 0;
}

/* Gives the call to the engine. */
static int play_start(struct player *p, struct flight *f, bool alone)
{
    struct data_call d = play_data(f);
    int rc = play_take(p, data_send_bytes(&d), &f->send);
    if (!rc)
        rc = play_take(p, data_recv_bytes(&d), &f->recv);
    if (rc)
        return rc;
    f->call.send = f->send ? f->send->memory : NULL;
    f->call.recv = f->recv ? f->recv->memory : NULL;
    if (p->verify)
        data_fill(&d, f->send ? f->send->memory : NULL, f->call.recv);
    if (alone) {
        rc = collrun_run(f->group->group, &f->call, 1);
        if (!rc)
            play_finish(p, f);
        return rc;
    }
    if (p->nopen == p->open_room) {
        size_t room = p->open_room ? 2 * p->open_room : 64;
        struct flight **open = realloc(p->open, room * sizeof *open);
        p->open = open ? open : p->open;
        struct collrun_request **requests = realloc(p->requests, room * sizeof *requests);
        p->requests = requests ? requests : p->requests;
        if (!open || !requests)
            return play_out_of_memory(p, room);
        p->open_room = room;
    }
    rc = collrun_start(f->group->group, &f->call, &f->request);
    if (!rc)
        p->open[p->nopen++] = f;
    return rc;
}

/* The collective that this call of the rank belongs to; made by the first rank that calls it. */
static int play_collective(struct player *p, struct play_rank *r, const struct op *op,
                           struct flight **out)
{
    int group = p->cast->group_of[r->index][op->group];
    struct flight **f = &p->calling[group];
    for (uint64_t n = p->begun[group]; *f && n < r->calls[group]; n++)
        f = &(*f)->next;
    r->calls[group]++;
    *out = *f;
    if (*f)
        return 0;
    *f = *out = calloc(1, sizeof **out);
    if (!*out)
        return play_out_of_memory(p, sizeof **out);
    (*out)->group = &p->cast->groups[group];
    return play_describe(p, *out, r, op);
}

/* Makes the next call of the rank. */
static int play_call(struct player *p, struct play_rank *r, const struct op *op)
{
    struct flight *f = NULL;
    int rc, group = p->cast->group_of[r->index][op->group];
    bool message = collrun_kind_is_message((enum collrun_kind)op->kind), all = true;
    r->begin_ns[r->at] = play_now();
    if (message) {
        f = calloc(1, sizeof *f);
        if (!f)
            return play_out_of_memory(p, sizeof *f);
        f->group = &p->cast->groups[group];
        rc = play_describe(p, f, r, op);
    } else {
        rc = play_collective(p, r, op, &f);
    }
    if (!f)
        return rc;
    r->flight[r->at] = f;
    f->users++;
    f->arrived++;
    if (rc)
        return rc;
    if (op->kind == COLLRUN_ALLTOALLV)
        fold_blocks(f->group, r->trace, op, f->counts);
    if (!message) {
        all = f->arrived == f->group->here;
        if (all) { /* of collectives in one group, the oldest is complete first */
            p->calling[group] = f->next;
            p->begun[group]++;
        }
    }
    return all ? play_start(p, f, op->blocking && p->cast->ntraces == 1) : 0;
}

/* ---- ranks ---- */

static void play_count(struct player *p, const struct play_rank *r, const struct op *op,
                       uint64_t ns)
{
    struct play_sum *sum = &p->sums[op->kind];
    sum->calls++;
    sum->bytes += op->kind == TRACE_WAIT ? 0 : trace_bytes(r->trace, op);
    sum->ns += ns;
    if (op->timed) {
        sum->timed++;
        sum->timed_ns += ns;
        sum->recorded_ns += op->recorded_ns;
    }
}

/* The rank has seen the end of the operation; true if it has ended. */
static bool play_see(struct player *p, struct play_rank *r, size_t op)
{
    struct flight *f = r->flight[op];
    if (!f)
        return true; /* seen before */
    if (!f->done)
        return false;
    uint64_t begin = r->begin_ns[op];
    play_count(p, r, &r->trace->ops[op], f->end_ns > begin ? f->end_ns - begin : 0);
    r->flight[op] = NULL;
    if (--f->users == 0) /* all ranks of the process have made the call: it has ended */
        play_release(p, f);
    return true;
}

/* At most 30 years, which play_now can be added to. */
static uint64_t play_gap(const struct player *p, const struct op *op)
{
    double ns = (double)op->gap_ns / p->speed;
    return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

/* True if the computation before the next call is over. */
static bool play_compute(const struct player *p, struct play_rank *r, const struct op *op)
{
    if (r->slept)
        return true;
    if (!r->until_ns && op->gap_ns && p->speed > 0)
        r->until_ns = play_now() + play_gap(p, op);
    if (r->until_ns && play_now() < r->until_ns)
        return false;
    r->until_ns = 0;
    r->slept = true;
    return true;
}

static void play_next(struct play_rank *r)
{
    r->at++;
    r->slept = r->called = false;
    r->began_ns = 0;
}

/* Takes the rank as far as one call. *moved: it went on. */
static int play_step(struct player *p, struct play_rank *r, bool *moved)
{
    const struct trace *t = r->trace;
    *moved = false;
    if (r->at == t->nops) {
        while (r->drained < t->nops && play_see(p, r, r->drained))
            r->drained++;
        return 0;
    }
    const struct op *op = &t->ops[r->at];
    if (!play_compute(p, r, op))
        return 0;
    if (op->kind == TRACE_WAIT) {
        r->began_ns = r->began_ns ? r->began_ns : play_now();
        if (!play_see(p, r, op->target))
            return 0;
        play_count(p, r, op, play_now() - r->began_ns);
    } else {
        int rc = r->called ? 0 : play_call(p, r, op);
        r->called = true;
        if (rc)
            return rc;
        if (op->blocking && !play_see(p, r, r->at))
            return 0;
    }
    play_next(r);
    *moved = true;
    return 0;
}

/* ---- waiting ---- */

static void play_close(struct player *p, size_t index)
{
    play_finish(p, p->open[index]);
    p->open[index] = p->open[--p->nopen];
}

/* Finishes the flights that have ended. */
static int play_poll(struct player *p)
{
    for (size_t i = p->nopen; i > 0; i--) {
        int rc = collrun_test(p->open[i - 1]->request);
        if (rc != COLLRUN_AGAIN)
            p->open[i - 1]->request = NULL;
        if (rc == COLLRUN_OK)
            play_close(p, i - 1);
        else if (rc != COLLRUN_AGAIN)
            return rc;
    }
    return 0;
}

static int play_sleep(struct player *p, uint64_t until_ns)
{
    uint64_t now = play_now(), ns = until_ns > now ? until_ns - now : 0;
    if (p->nopen && ns > PLAY_POLL_NS)
        ns = PLAY_POLL_NS;
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};
    if (ns)
        (void)nanosleep(&time, NULL);
    return play_poll(p);
}

/* Waits for the next flight that ends. */
static int play_wait(struct player *p)
{
    int index = 0, rc;
    if (p->nopen == 1) {
        rc = collrun_wait(p->open[0]->request);
    } else {
        for (size_t i = 0; i < p->nopen; i++)
            p->requests[i] = p->open[i]->request;
        rc = collrun_wait_any(p->requests, (int)p->nopen, &index);
    }
    p->open[index]->request = NULL;
    if (!rc)
        play_close(p, (size_t)index);
    return rc;
}

static int play_stuck(const struct player *p)
{
    for (int i = 0; i < p->cast->ntraces; i++) {
        const struct play_rank *r = &p->ranks[i];
        if (r->at < r->trace->nops)
            return collrun_fail(p->cast->ctx,
                                "%s: %s %llu: %s of rank %d waits for another rank of this "
                                "process, which waits for it",
                                r->trace->file, r->trace->unit,
                                (unsigned long long)r->trace->ops[r->at].place,
                                trace_kind_name(r->trace->ops[r->at].kind), r->trace->rank);
    }
    return collrun_fail(p->cast->ctx, "a rank has not made the last calls of its process");
}

/* No rank can go on: until one computes no longer, or an operation has ended. */
static int play_idle(struct player *p)
{
    uint64_t until_ns = 0;
    for (int i = 0; i < p->cast->ntraces; i++) {
        uint64_t own = p->ranks[i].until_ns;
        if (own && (!until_ns || own < until_ns))
            until_ns = own;
    }
    if (until_ns)
        return play_sleep(p, until_ns);
    return p->nopen ? play_wait(p) : play_stuck(p);
}

/* Takes the rank as far as it can go. *any: it went on. */
static int play_go(struct player *p, struct play_rank *r, bool *any)
{
    bool moved = true;
    int rc = 0;
    while (!rc && moved) {
        rc = play_step(p, r, &moved);
        *any = *any || moved;
    }
    return rc;
}

int play_once(struct player *p)
{
    bool all = false;
    int rc = 0;
    for (int i = 0; i < p->cast->ntraces; i++)
        p->ranks[i].at = p->ranks[i].drained = 0;
    while (!rc && !all) {
        bool any = false;
        all = true;
        for (int i = 0; !rc && i < p->cast->ntraces; i++) {
            rc = play_go(p, &p->ranks[i], &any);
            all = all && p->ranks[i].drained == p->ranks[i].trace->nops;
        }
        if (!rc && !all && !any)
            rc = play_idle(p);
    }
    return rc;
}

/* ---- creation ---- */

static int play_rank_init(struct player *p, int index)
{
    struct play_rank *r = &p->ranks[index];
    r->trace = &p->cast->traces[index];
    r->index = index;
    r->flight = calloc(r->trace->nops + 1, sizeof(struct flight *));
    r->begin_ns = calloc(r->trace->nops + 1, sizeof *r->begin_ns);
    r->calls = calloc((size_t)p->cast->ngroups + 1, sizeof *r->calls);
    return r->flight && r->begin_ns && r->calls ? 0 : play_out_of_memory(p, r->trace->nops);
}

int play_new(struct player **out, struct cast *c, double speed, bool verify)
{
    int rc = 0;
    struct player *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return collrun_fail(c->ctx, "out of memory for the player");
    *p = (struct player){.cast = c, .speed = speed, .verify = verify};
    p->ranks = calloc((size_t)c->ntraces + 1, sizeof *p->ranks);
    p->calling = calloc((size_t)c->ngroups + 1, sizeof(struct flight *));
    p->begun = calloc((size_t)c->ngroups + 1, sizeof *p->begun);
    if (!p->ranks || !p->calling || !p->begun)
        return play_out_of_memory(p, (size_t)c->ngroups);
    for (int i = 0; !rc && i < c->ntraces; i++)
        rc = fold_check(c, i);
    for (int i = 0; !rc && i < c->ntraces; i++)
        rc = play_rank_init(p, i);
    return rc;
}

const struct play_sum *play_sums(const struct player *p)
{
    return p->sums;
}

uint64_t play_wrong(const struct player *p)
{
    return p->wrong;
}

void play_free(struct player *p)
{
    if (!p)
        return;
    for (int i = 0; p->ranks && i < p->cast->ntraces; i++) {
        free(p->ranks[i].flight);
        free(p->ranks[i].begin_ns);
        free(p->ranks[i].calls);
    }
    for (struct play_buffer *b = p->spare; b;) {
        struct play_buffer *next = b->next;
        (void)collrun_free(p->cast->group, b->memory);
        free(b);
        b = next;
    }
    free(p->ranks);
    free(p->calling);
    free(p->begun);
    free(p->open);
    free(p->requests);
    free(p);
}

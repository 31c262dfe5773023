/* SPDX-License-Identifier: Apache-2.0
 *
 * What receives learn of their messages: count, tag and sender; receives of any tag; probes;
 * withdrawn receives; messages of a rank to itself; several threads that send and receive in one
 * group beside its collectives. The oracle of the order is the order of sending.
 */
#include "conform.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 70000, PREFIX = 6, THREADS = 4, ROUNDS = 40 };

/* Message number `i` of a sender: its tag, its size, its content. */
struct message {
    uint32_t tag;
    size_t count;
    uint64_t salt;
};

static struct message message_of(const struct team *team, int from, int i)
{
    static const size_t counts[] = {3, 0, 900, 1, MOST, 17, 5000};
    uint64_t h = mix(team->serial * 1000003 + (uint64_t)from * 1009 + (uint64_t)i);
    return (struct message){
        .tag = (uint32_t)(h % 5), .count = counts[h / 8 % ARRAY_LEN(counts)], .salt = h};
}

static void message_write(const struct message *message, int from, int32_t *out)
{
    struct stream s = {.dtype = COLLRUN_INT32, .op = OP_NONE, .salt = message->salt};
    stream_input(&s, from, 0, message->count, out);
}

/* The content, and that nothing was written behind it. */
static bool message_is(const struct message *message, int from, const int32_t *got, int32_t *want)
{
    message_write(message, from, want);
    return memcmp(got, want, message->count * sizeof *got) == 0 &&
           (message->count == MOST || got[message->count] == -1);
}

/* One member's buffers and calls. */
struct endpoint {
    struct team *team;
    int32_t *out, *in, *want;
    int32_t *lent_out, *lent_in; /* what the group takes: the same, or copies on a device */
    size_t received;
    uint32_t tag;
    int source;
};

static struct endpoint endpoint_open(struct team *team)
{
    struct endpoint d = {.team = team,
                         .out = calloc(MOST, sizeof(int32_t)),
                         .in = calloc(MOST, sizeof(int32_t)),
                         .want = calloc(MOST, sizeof(int32_t))};
    d.lent_out = lend(team, 0, d.out, MOST * sizeof(int32_t));
    d.lent_in = lend(team, 0, d.in, MOST * sizeof(int32_t));
    return d;
}

static void endpoint_copy(struct endpoint *d, int32_t *to, const int32_t *from, size_t count)
{
    team_want(d->team, collrun_copy(d->team->group, to, from, count * sizeof *to), COLLRUN_OK,
              "copy");
}

static void endpoint_close(struct endpoint *d)
{
    take_back(d->team, d->out, d->lent_out, MOST * sizeof(int32_t));
    take_back(d->team, d->in, d->lent_in, MOST * sizeof(int32_t));
    free(d->out);
    free(d->in);
    free(d->want);
}

/* Takes a message of any size. */
static struct collrun_call endpoint_receive(struct endpoint *d, int peer, uint32_t tag)
{
    struct collrun_call call =
        COLLRUN_CALL(peer == COLLRUN_ANY_PEER ? COLLRUN_RECV_ANY : COLLRUN_RECV);
    memset(d->in, -1, MOST * sizeof *d->in);
    endpoint_copy(d, d->lent_in, d->in, MOST);
    d->received = SIZE_MAX;
    d->tag = UINT32_MAX;
    d->source = peer;
    call.recv = d->lent_in;
    call.count = MOST;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    call.tag = tag;
    call.source = &d->source;
    call.received = &d->received;
    call.received_tag = &d->tag;
    return call;
}

static struct collrun_call endpoint_send(struct endpoint *d, int peer,
                                         const struct message *message)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    message_write(message, d->team->rank, d->out);
    endpoint_copy(d, d->lent_out, d->out, message->count);
    call.send = d->lent_out;
    call.count = message->count;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    call.tag = message->tag;
    return call;
}

static bool endpoint_got(struct endpoint *d, int from, const struct message *message,
                         const char *what)
{
    team_case(d->team);
    endpoint_copy(d, d->in, d->lent_in, MOST);
    if (d->received == message->count && d->tag == message->tag && d->source == from &&
        message_is(message, from, d->in, d->want))
        return true;
    return team_fail(d->team,
                     "%s: %zu elements with tag %u from rank %d, expected %zu with tag %u from "
                     "rank %d, or their content is wrong",
                     what, d->received, d->tag, d->source, message->count, message->tag, from);
}

/* ---- from one rank to the next ---- */

/* Receives of any tag take the messages of one rank in the order of sending. */
static void in_order(struct team *team, struct endpoint *d, bool any_source)
{
    int next = (team->rank + 1) % team->size, prev = (team->rank + team->size - 1) % team->size;
    for (int i = 0; i < PREFIX && !team->dead; i++) {
        struct message mine = message_of(team, team->rank, i), theirs = message_of(team, prev, i);
        struct collrun_call calls[2] = {
            endpoint_receive(d, any_source ? COLLRUN_ANY_PEER : prev, COLLRUN_ANY_TAG),
            endpoint_send(d, next, &mine)};
        if (team_want(team, collrun_run(team->group, calls, 2), COLLRUN_OK, "run of any tag"))
            endpoint_got(d, prev, &theirs, "any tag");
    }
    team->serial++;
}

/* All messages are sent before the first is received: by tag, the last one first. */
static void unexpected(struct team *team, struct endpoint *d)
{
    int next = (team->rank + 1) % team->size, prev = (team->rank + team->size - 1) % team->size;
    struct collrun_request *sent[PREFIX] = {NULL};
    struct endpoint senders[PREFIX];
    for (int i = 0; i < PREFIX; i++) {
        struct message mine = message_of(team, team->rank, i);
        mine.tag = (uint32_t)i;
        senders[i] = endpoint_open(team);
        struct collrun_call call = endpoint_send(&senders[i], next, &mine);
        team_want(team, collrun_start(team->group, &call, &sent[i]), COLLRUN_OK, "start of a send");
    }
    team_want(team, collrun_barrier(team->group), COLLRUN_OK, "barrier beside messages");
    for (int i = PREFIX - 1; i >= 0 && !team->dead; i--) {
        struct message theirs = message_of(team, prev, i);
        theirs.tag = (uint32_t)i;
        struct collrun_call call = endpoint_receive(d, i % 2 ? prev : COLLRUN_ANY_PEER, theirs.tag);
        if (team_want(team, collrun_run(team->group, &call, 1), COLLRUN_OK, "receive of a tag"))
            endpoint_got(d, prev, &theirs, "by tag");
    }
    team_want(team, collrun_wait_all(sent, PREFIX), COLLRUN_OK, "wait_all of sends");
    for (int i = 0; i < PREFIX; i++)
        endpoint_close(&senders[i]);
    team->serial++;
}

/* ---- probes ---- */

static void probed(struct team *team, struct endpoint *d, bool blocks)
{
    int next = (team->rank + 1) % team->size, prev = (team->rank + team->size - 1) % team->size;
    for (int i = 0; i < PREFIX && !team->dead; i++) {
        struct message mine = message_of(team, team->rank, i), theirs = message_of(team, prev, i);
        struct collrun_message_info info = {.size = sizeof info};
        struct collrun_request *sent = NULL;
        struct collrun_call call = endpoint_send(d, next, &mine);
        int rc = collrun_start(team->group, &call, &sent);
        if (!team_want(team, rc, COLLRUN_OK, "start of a send"))
            return;
        int peer = i % 2 ? prev : COLLRUN_ANY_PEER;
        uint32_t tag = i % 3 ? theirs.tag : COLLRUN_ANY_TAG;
        do
            rc = blocks ? collrun_probe(team->group, peer, tag, &info)
                        : collrun_iprobe(team->group, peer, tag, &info);
        while (rc == COLLRUN_AGAIN);
        team_want(team, rc, COLLRUN_OK, "probe");
        if (info.source != prev || info.tag != theirs.tag || info.count != theirs.count ||
            info.dtype != COLLRUN_INT32)
            team_fail(team, "probe: %zu elements with tag %u from rank %d, expected %zu, %u, %d",
                      info.count, info.tag, info.source, theirs.count, theirs.tag, prev);
        call = endpoint_receive(d, info.source, info.tag);
        call.count = info.count;
        team_want(team, collrun_run(team->group, &call, 1), COLLRUN_OK, "receive after a probe");
        endpoint_got(d, prev, &theirs, "after a probe");
        team_want(team, collrun_wait(sent), COLLRUN_OK, "wait for a send");
        rc = collrun_iprobe(team->group, COLLRUN_ANY_PEER, 4711, &info);
        team_want(team, rc, COLLRUN_AGAIN, "iprobe for a tag that no rank sends");
    }
    team->serial++;
}

/* ---- withdrawing ---- */

static void withdrawn(struct team *team, struct endpoint *d)
{
    int next = (team->rank + 1) % team->size, prev = (team->rank + team->size - 1) % team->size;
    struct message mine = message_of(team, team->rank, 0), theirs = message_of(team, prev, 0);
    int32_t unused[4] = {7, 7, 7, 7};
    struct collrun_request *request = NULL;
    struct collrun_call call = endpoint_receive(d, prev, theirs.tag);
    int32_t *lent = call.recv = lend(team, 0, unused, sizeof unused);
    call.count = 4;
    if (!team_want(team, collrun_start(team->group, &call, &request), COLLRUN_OK,
                   "start of a receive"))
        return;
    team_want(team, collrun_cancel(request), COLLRUN_OK, "cancel before the message was sent");
    team_want(team, collrun_barrier(team->group), COLLRUN_OK, "barrier after cancel");
    struct collrun_call calls[2] = {endpoint_receive(d, prev, theirs.tag),
                                    endpoint_send(d, next, &mine)};
    team_want(team, collrun_run(team->group, calls, 2), COLLRUN_OK, "messages after cancel");
    endpoint_got(d, prev, &theirs, "after cancel");
    take_back(team, unused, lent, sizeof unused);
    if (unused[0] != 7 || unused[3] != 7)
        team_fail(team, "a withdrawn receive wrote to its buffer");
    /* Too late, and not a receive. */
    team->serial++;
    mine = message_of(team, team->rank, 1);
    theirs = message_of(team, prev, 1);
    struct collrun_request *both[2] = {NULL, NULL};
    calls[0] = endpoint_receive(d, prev, theirs.tag);
    calls[1] = endpoint_send(d, next, &mine);
    for (int i = 0; i < 2; i++)
        team_want(team, collrun_start(team->group, &calls[i], &both[i]), COLLRUN_OK, "start");
    team_want(team, collrun_cancel(both[1]), COLLRUN_ERR_INVALID, "cancel of a send");
    while (!team->dead && collrun_poll(both[0]) == COLLRUN_AGAIN)
        ;
    team_want(team, collrun_cancel(both[0]), COLLRUN_AGAIN, "cancel of a finished receive");
    team_want(team, collrun_wait_all(both, 2), COLLRUN_OK, "wait_all");
    endpoint_got(d, prev, &theirs, "cancelled too late");
    team->serial++;
}

/* ---- to itself ---- */

static void to_itself(struct team *team, struct endpoint *d)
{
    int me = team->rank;
    for (int i = 0; i < PREFIX && !team->dead; i++) {
        struct message own = message_of(team, me, i);
        struct collrun_call send = endpoint_send(d, me, &own);
        struct collrun_call recv =
            endpoint_receive(d, i % 2 ? me : COLLRUN_ANY_PEER, i % 3 ? own.tag : COLLRUN_ANY_TAG);
        struct collrun_call both[2] = {i % 2 ? recv : send, i % 2 ? send : recv};
        struct collrun_request *request = NULL;
        if (i < 2) {
            team_want(team, collrun_run(team->group, both, 2), COLLRUN_OK, "run to itself");
        } else {
            team_want(team, collrun_start(team->group, &both[0], &request), COLLRUN_OK, "start");
            team_want(team, collrun_run(team->group, &both[1], 1), COLLRUN_OK, "run");
            team_want(team, collrun_wait(request), COLLRUN_OK, "wait");
        }
        endpoint_got(d, me, &own, "to itself");
    }
    team->serial++;
}

/* ---- threads ---- */

struct thread {
    struct team team; /* its own copy: `serial` and `dead` are not shared */
    struct conform run;
    struct endpoint endpoint;
    pthread_t id;
    uint32_t number;
};

static void *thread_run(void *arg)
{
    struct thread *t = arg;
    struct team *team = &t->team;
    struct endpoint d = t->endpoint;
    int next = (team->rank + 1) % team->size, prev = (team->rank + team->size - 1) % team->size;
    for (int i = 0; i < ROUNDS && !team->dead; i++) {
        struct message mine = message_of(team, team->rank, i), theirs = message_of(team, prev, i);
        mine.tag = theirs.tag = 100 + t->number;
        struct collrun_call calls[2] = {endpoint_receive(&d, prev, mine.tag),
                                        endpoint_send(&d, next, &mine)};
        struct collrun_message_info info = {.size = sizeof info};
        struct collrun_request *sent = NULL;
        int rc = COLLRUN_OK;
        if (i % 3 == 0) {
            rc = collrun_run(team->group, calls, 2);
        } else {
            rc = collrun_start(team->group, &calls[1], &sent);
            if (rc == COLLRUN_OK && i % 3 == 1)
                rc = collrun_probe(team->group, prev, mine.tag, &info);
            if (rc == COLLRUN_OK)
                rc = collrun_run(team->group, &calls[0], 1);
            if (rc == COLLRUN_OK)
                rc = collrun_wait(sent);
        }
        if (!team_want(team, rc, COLLRUN_OK, "messages of several threads") ||
            !endpoint_got(&d, prev, &theirs, "of several threads"))
            break;
    }
    return NULL;
}

static void threads(struct team *team)
{
    static struct thread all[THREADS]; /* one suite at a time */
    for (uint32_t i = 0; i < THREADS; i++) {
        all[i] = (struct thread){.team = *team, .run = *team->run, .number = i};
        all[i].run.cases = all[i].run.failures = 0;
        all[i].team.run = &all[i].run;
        all[i].team.serial += i;
        all[i].endpoint = endpoint_open(&all[i].team); /* no thread allocates beside another */
    }
    int one = 1, sum = 0, *lent_one = lend(team, 0, &one, sizeof one),
        *lent_sum = lend(team, 0, &sum, sizeof sum);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_create(&all[i].id, NULL, thread_run, &all[i]);
    for (int i = 0; i < ROUNDS && !team->dead; i++) {
        int rc = collrun_allreduce(team->group, lent_one, lent_sum, 1, COLLRUN_INT32, COLLRUN_SUM);
        collrun_copy(team->group, &sum, lent_sum, sizeof sum);
        if (team_want(team, rc, COLLRUN_OK, "allreduce beside messages") && sum != team->size)
            team_fail(team, "allreduce beside messages: %d, expected %d", sum, team->size);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i].id, NULL);
        endpoint_close(&all[i].endpoint);
        team->run->cases += all[i].run.cases;
        team->run->failures += all[i].run.failures;
        team->dead = team->dead || all[i].team.dead;
    }
    take_back(team, &one, lent_one, sizeof one);
    take_back(team, &sum, lent_sum, sizeof sum);
    team->serial += THREADS;
}

/* ---- a thread that is blocked ---- */

enum { TAG_BLOCKED = 200, TAG_BESIDE };

static int previous(const struct team *team)
{
    return (team->rank + team->size - 1) % team->size;
}

static void *blocked_run(void *arg)
{
    struct thread *t = arg;
    struct message theirs = message_of(&t->team, previous(&t->team), 1);
    theirs.tag = TAG_BLOCKED;
    struct collrun_call call = endpoint_receive(&t->endpoint, previous(&t->team), theirs.tag);
    if (team_want(&t->team, collrun_run(t->team.group, &call, 1), COLLRUN_OK, "blocked receive"))
        endpoint_got(&t->endpoint, previous(&t->team), &theirs, "of a blocked receive");
    return NULL;
}

/* Messages of this thread pass while another one waits inside the backend for a message that is
 * sent after them. The pause lets that thread fall asleep; without it the result is the same. */
static void blocked(struct team *team, struct endpoint *d)
{
    static struct thread other; /* one suite at a time */
    int next = (team->rank + 1) % team->size;
    struct message mine = message_of(team, team->rank, 0),
                   theirs = message_of(team, previous(team), 0);
    other = (struct thread){.team = *team, .run = *team->run};
    other.run.cases = other.run.failures = 0;
    other.team.run = &other.run;
    other.endpoint = endpoint_open(&other.team);
    pthread_create(&other.id, NULL, blocked_run, &other);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    mine.tag = theirs.tag = TAG_BESIDE;
    struct collrun_call calls[2] = {endpoint_receive(d, previous(team), mine.tag),
                                    endpoint_send(d, next, &mine)};
    if (team_want(team, collrun_run(team->group, calls, 2), COLLRUN_OK, "messages beside"))
        endpoint_got(d, previous(team), &theirs, "beside a blocked receive");
    mine = message_of(team, team->rank, 1);
    mine.tag = TAG_BLOCKED;
    calls[1] = endpoint_send(d, next, &mine);
    if (!team->dead)
        team_want(team, collrun_run(team->group, &calls[1], 1), COLLRUN_OK, "send to a thread");
    pthread_join(other.id, NULL);
    endpoint_close(&other.endpoint);
    team->run->cases += other.run.cases;
    team->run->failures += other.run.failures;
    team->dead = team->dead || other.team.dead;
    team->serial++;
}

/* Receives of any source must not take messages of the next part. */
static void parted(struct team *team)
{
    if (!team->dead)
        team_want(team, collrun_barrier(team->group), COLLRUN_OK, "barrier");
}

void suite_envelope(struct team *team)
{
    struct endpoint d = endpoint_open(team);
    for (int i = 0; i < 4 && !team->dead; i++) {
        to_itself(team, &d);
        parted(team);
        in_order(team, &d, false);
        parted(team);
        in_order(team, &d, true);
        parted(team);
        unexpected(team, &d);
        parted(team);
        probed(team, &d, i % 2);
        withdrawn(team, &d);
        parted(team);
    }
    if (!team->dead)
        blocked(team, &d);
    if (!team->dead)
        threads(team);
    endpoint_close(&d);
}

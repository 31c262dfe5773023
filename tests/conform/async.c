/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests: many in flight, waited for in any order or tested; progress while no thread waits;
 * head-to-head messages by sendrecv and start_many at all sizes; tags that overtake; messages that
 * pass collectives; any-source receives. trial.c checks the data; the loops here choose the order.
 */
#include "conform.h"

#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

enum { ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM, ORDER_TEST, ORDER_ALL, ORDER_ANY, ORDERS };
static const char *const order_names[] = {"in order", "in reverse",  "in random order",
                                          "by test",  "by wait_all", "by wait_any"};

static struct shape small_shape(const struct team *team, uint64_t i)
{
    static const enum collrun_kind kinds[] = {
        COLLRUN_ALLREDUCE,      COLLRUN_BROADCAST, COLLRUN_ALLGATHER, COLLRUN_REDUCE,
        COLLRUN_REDUCE_SCATTER, COLLRUN_ALLTOALL,  COLLRUN_GATHERV};
    size_t nkinds = team->run->full ? ARRAY_LEN(kinds) : 5;
    return (struct shape){.kind = kinds[i % nkinds],
                          .dtype = i % 2 != 0 ? COLLRUN_INT64 : COLLRUN_FLOAT32,
                          .root = (int)(i % (uint64_t)team->size),
                          .count = 1 + i * 7 % 40};
}

static void shuffle(int *order, int n, uint64_t seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(mix(seed + (uint64_t)i) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* Polled, then tested: both must give the same result. */
static int wait_by_test(struct collrun_request *request)
{
    int status, polled;
    while ((polled = collrun_poll(request)) == COLLRUN_AGAIN)
        sched_yield();
    if (polled != COLLRUN_OK)
        return collrun_wait(request);
    while ((status = collrun_test(request)) == COLLRUN_AGAIN)
        sched_yield();
    return status;
}

static void finish_any(struct team *team, struct trial *trials, struct collrun_request **requests,
                       int n)
{
    int at = -1;
    for (int i = 0; i < n; i++) {
        int status = collrun_wait_any(requests, n, &at);
        if (at < 0 || at >= n || requests[at] != NULL) {
            team_fail(team, "wait_any gives index %d of %d", at, n);
            return;
        }
        trial_verify(&trials[at], status);
    }
    if (collrun_wait_any(requests, n, &at) != COLLRUN_OK || at != -1)
        team_fail(team, "wait_any without requests gives index %d", at);
}

static void finish_all(struct team *team, struct trial *trials, int n, int how)
{
    int *order = calloc((size_t)n, sizeof *order);
    struct collrun_request **requests = calloc((size_t)n, sizeof(struct collrun_request *));
    if (order == NULL || requests == NULL)
        abort();
    for (int i = 0; i < n; i++) {
        order[i] = how == ORDER_REVERSE ? n - 1 - i : i;
        requests[i] = trials[i].request;
    }
    if (how == ORDER_RANDOM)
        shuffle(order, n, team->serial * 64 + (uint64_t)team->rank);
    int all = how == ORDER_ALL ? collrun_wait_all(requests, n) : COLLRUN_OK;
    if (how == ORDER_ANY)
        finish_any(team, trials, requests, n);
    for (int i = 0; how != ORDER_ANY && i < n; i++) {
        struct trial *t = &trials[order[i]];
        int status = how == ORDER_ALL    ? all
                     : how == ORDER_TEST ? wait_by_test(t->request)
                                         : collrun_wait(t->request);
        trial_verify(t, status);
    }
    free(order);
    free(requests);
}

static void in_flight(struct team *team, int n, int how)
{
    struct trial *trials = calloc((size_t)n, sizeof *trials);
    int started = 0;
    if (trials == NULL)
        abort();
    for (; started < n && !team->dead; started++) {
        struct shape s = small_shape(team, (uint64_t)started);
        trial_prepare(&trials[started], team, &s);
        int status = collrun_start(team->group, &trials[started].call, &trials[started].request);
        if (!team_want(team, status, COLLRUN_OK, order_names[how]))
            break;
    }
    finish_all(team, trials, started, how);
    for (int i = 0; i < n; i++)
        trial_free(&trials[i]);
    free(trials);
}

/* Messages in both directions between neighbours, all started before any is waited for: no rank
 * receives the first before the last has been started, and that must not slow them down. The
 * bound on time detects a wait per message; on devices, whose stand-ins pause at random, a hang. */
static void both_ways(struct team *team, int n)
{
    int low = team->rank & ~1, high = low | 1, started = 0;
    uint64_t after = team->serial + (uint64_t)n;
    struct trial *trials = calloc((size_t)n, sizeof *trials);
    double begin = now_s();
    if (trials == NULL)
        abort();
    for (; high < team->size && started < n && !team->dead; started++) {
        struct shape s = {.dtype = COLLRUN_INT64, .count = 3, .tag = (uint32_t)started % 5};
        s.from = started % 2 != 0 ? low : high, s.to = low + high - s.from;
        s.kind = team->rank == s.from ? COLLRUN_SEND : COLLRUN_RECV;
        trial_prepare(&trials[started], team, &s);
        int status = collrun_start(team->group, &trials[started].call, &trials[started].request);
        if (!team_want(team, status, COLLRUN_OK, "messages both ways"))
            break;
    }
    finish_all(team, trials, started, ORDER_RANDOM);
    double took = now_s() - begin, limit = SLOWER * (2 + n * 1e-3);
    limit *= team->run->cuda != NULL ? 10 : 1;
    if (took > limit)
        team_fail(team, "%d small messages both ways took %.1f s, more than %.1f s", n, took,
                  limit);
    for (int i = 0; i < n; i++)
        trial_free(&trials[i]);
    free(trials);
    team->serial = after;
}

/* ---- head to head ---- */
struct exchange {
    struct stream stream;
    struct guarded out, in, want;
    void *lent_out, *lent_in;
    size_t count;
};

static void exchange_prepare(struct exchange *x, struct team *team, size_t count, int from)
{
    x->count = count;
    x->stream = (struct stream){COLLRUN_INT32, OP_NONE, mix(team->run->seed) + team->serial, 0};
    guarded_set(&x->out, count * 4, 0);
    guarded_set(&x->in, count * 4, 0);
    guarded_set(&x->want, count * 4, 0);
    stream_input(&x->stream, team->rank, 0, count, x->out.at);
    stream_input(&x->stream, from, 0, count, x->want.at);
    x->lent_out = lend(team, 0, x->out.at, count * 4);
    x->lent_in = lend(team, 0, x->in.at, count * 4);
}

static void exchange_verify(struct exchange *x, struct team *team, int status, const char *what)
{
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, what))
        return;
    take_back(team, x->out.at, x->lent_out, x->count * 4);
    take_back(team, x->in.at, x->lent_in, x->count * 4);
    if (stream_differs(&x->stream, x->in.at, x->want.at, x->count) != x->count)
        team_fail(team, "%s of %zu elements: wrong data", what, x->count);
    if (!guarded_intact(&x->in) || !guarded_intact(&x->out))
        team_fail(team, "%s of %zu elements: wrote outside its buffer", what, x->count);
}

static void exchange_free(struct exchange *x)
{
    guarded_free(&x->out);
    guarded_free(&x->in);
    guarded_free(&x->want);
}

static const size_t exchange_counts[] = {0, 1, 1000, 16384, 100003, 262144, 2097152};

static void sendrecv_ring(struct team *team, size_t count)
{
    struct exchange x = {0};
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    team->serial++;
    exchange_prepare(&x, team, count, left);
    int status = collrun_sendrecv(team->group, x.lent_out, count, right, x.lent_in, count, left,
                                  COLLRUN_INT32);
    exchange_verify(&x, team, status, "sendrecv round the ring");
    exchange_free(&x);
}

/* Every rank sends to every rank, all sends before all receives: completes only if the calls of one
 * start_many, or of one run, progress together. */
static void many_to_many(struct team *team, size_t count)
{
    struct exchange xs[MAX_RANKS] = {0};
    struct collrun_call calls[2 * MAX_RANKS] = {0};
    struct collrun_request *request = NULL;
    int n = 0, size = team->size;
    team->serial++;
    for (int i = 1; i < size; i++) {
        int peer = (team->rank + i) % size;
        exchange_prepare(&xs[peer], team, count, peer);
        calls[n] = (struct collrun_call)COLLRUN_CALL(COLLRUN_SEND);
        calls[n].send = xs[peer].lent_out, calls[n].peer = peer;
        calls[n].count = count, calls[n++].dtype = COLLRUN_INT32;
    }
    for (int i = 1; i < size; i++) {
        int peer = (team->rank + size - i) % size;
        calls[n] = (struct collrun_call)COLLRUN_CALL(COLLRUN_RECV);
        calls[n].recv = xs[peer].lent_in, calls[n].peer = peer;
        calls[n].count = count, calls[n++].dtype = COLLRUN_INT32;
    }
    bool blocks = team->serial % 2 != 0;
    int status = blocks ? collrun_run(team->group, calls, n)
                        : collrun_start_many(team->group, calls, n, &request);
    if (!blocks && status == COLLRUN_OK)
        status = collrun_wait(request);
    for (int peer = 0; peer < size; peer++) {
        if (peer != team->rank)
            exchange_verify(&xs[peer], team, status,
                            blocks ? "run, all to all" : "start_many, all to all");
        exchange_free(&xs[peer]);
    }
}

/* ---- tags and recv_any ---- */

/* Small ones, and such that differ in their upper bits alone. */
static uint32_t tag_of(uint32_t i)
{
    return i < 4 ? i + 1 : 1 + (1u << (8 * (i - 4) + 6));
}

static void tags_overtake(struct team *team)
{
    enum { TAGS = 8 };
    struct trial trials[TAGS] = {0};
    bool sends = team->rank == 0, takes_part = team->rank < 2;
    for (uint32_t i = 0; i < TAGS; i++) {
        /* The sender goes up through the tags, the receiver waits for each on its way down. */
        uint32_t at = sends ? i : TAGS - 1 - i;
        struct shape s = {
            .dtype = COLLRUN_INT64, .from = 0, .to = 1, .count = 10, .tag = tag_of(at)};
        uint64_t serial = team->serial;
        s.kind = sends ? COLLRUN_SEND : COLLRUN_RECV;
        team->serial = serial - i + at; /* the salt goes with the tag */
        if (takes_part && !team->dead) {
            trial_prepare(&trials[i], team, &s);
            int status = collrun_start(team->group, &trials[i].call, &trials[i].request);
            if (status != COLLRUN_OK)
                trials[i].request = NULL, team_want(team, status, COLLRUN_OK, "start with a tag");
            else if (!sends)
                trial_verify(&trials[i], collrun_wait(trials[i].request));
        }
        team->serial = serial + 1;
    }
    for (int i = 0; sends && i < TAGS; i++)
        if (trials[i].request != NULL)
            trial_verify(&trials[i], collrun_wait(trials[i].request));
    for (int i = 0; i < TAGS; i++)
        trial_free(&trials[i]);
}

/* An any-source receive takes no message of another tag, even if that arrived first. */
static void any_source_with_tag(struct team *team)
{
    int64_t sent[2] = {7, 9}, got[2] = {-1, -1};
    int sources[2] = {-1, -1};
    struct collrun_request *requests[2] = {NULL, NULL};
    if (team->rank > 1 || team->dead)
        return;
    void *lent_out = lend(team, 0, sent, sizeof sent), *lent_in = lend(team, 0, got, sizeof got);
    for (int i = 0; i < 2; i++) {
        int at = team->rank == 1 ? i : 1 - i;
        struct collrun_call call = COLLRUN_CALL(team->rank == 1 ? COLLRUN_SEND : COLLRUN_RECV_ANY);
        call.send = (int64_t *)lent_out + at, call.recv = (int64_t *)lent_in + at;
        call.count = 1, call.dtype = COLLRUN_INT64, call.tag = (uint32_t)sent[at];
        call.peer = 0, call.source = &sources[at];
        team_case(team);
        if (!team_want(team, collrun_start(team->group, &call, &requests[i]), COLLRUN_OK,
                       "start with a tag") ||
            team->rank == 1)
            continue;
        team_want(team, collrun_wait(requests[i]), COLLRUN_OK, "recv_any with a tag");
        requests[i] = NULL;
    }
    team_want(team, collrun_wait_all(requests, 2), COLLRUN_OK, "sends with tags");
    take_back(team, sent, lent_out, sizeof sent);
    take_back(team, got, lent_in, sizeof got);
    if (team->rank == 0 && (got[0] != 7 || got[1] != 9 || sources[0] != 1 || sources[1] != 1))
        team_fail(team, "recv_any with tags 9, then 7, got %d from %d, then %d from %d",
                  (int)got[1], sources[1], (int)got[0], sources[0]);
}

/* A message does not wait for a collective that was started before it: the last rank comes to the
 * collective only when it has the message. */
static void passes_collective(struct team *team, enum collrun_dtype dtype, enum collrun_op op)
{
    int last = team->size - 1;
    struct trial collective = {0}, message = {0};
    struct shape all = {.kind = COLLRUN_ALLREDUCE, .dtype = dtype, .op = op, .count = 1000};
    struct shape one = {.dtype = COLLRUN_INT32, .from = 0, .to = last, .count = 100000};
    one.kind = team->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV;
    if (team->dead || !dtype_in_scope(team->run, dtype) || !op_in_scope(team->run, op))
        return;
    trial_prepare(&collective, team, &all);
    if (team->rank == 0 || team->rank == last)
        trial_prepare(&message, team, &one);
    else
        team->serial++;
    int status = COLLRUN_OK;
    if (team->rank == last)
        trial_verify(&message, trial_block(&message));
    status = collrun_start(team->group, &collective.call, &collective.request);
    if (team->rank == 0) {
        int sent = collrun_start(team->group, &message.call, &message.request);
        trial_verify(&message, sent == COLLRUN_OK ? collrun_wait(message.request) : sent);
    }
    trial_verify(&collective, status == COLLRUN_OK ? collrun_wait(collective.request) : status);
    trial_free(&collective);
    trial_free(&message);
}

/* Every rank sends `ROUNDS` numbered messages to rank 0, which receives them from any source. */
static void from_any_source(struct team *team)
{
    enum { ROUNDS = 20 };
    int64_t next[MAX_RANKS] = {0};
    for (int64_t i = 0; team->rank != 0 && i < ROUNDS && !team->dead; i++) {
        int64_t message[2] = {team->rank, i};
        void *lent = lend(team, 0, message, sizeof message);
        team_want(team, collrun_send(team->group, lent, 2, COLLRUN_INT64, 0), COLLRUN_OK,
                  "send to recv_any");
        take_back(team, message, lent, sizeof message);
    }
    for (int i = 0; team->rank == 0 && i < ROUNDS * (team->size - 1) && !team->dead; i++) {
        int64_t message[2] = {-1, -1};
        int source = -1;
        team_case(team);
        void *lent = lend(team, 0, message, sizeof message);
        int status = collrun_recv_any(team->group, lent, 2, COLLRUN_INT64, &source);
        take_back(team, message, lent, sizeof message);
        if (!team_want(team, status, COLLRUN_OK, "recv_any"))
            continue;
        if (source < 1 || source >= team->size || message[0] != source)
            team_fail(team, "recv_any: source %d, message from %d", source, (int)message[0]);
        else if (message[1] != next[source]++)
            team_fail(team, "recv_any: messages of rank %d out of order", source);
    }
}

/* Messages with tag 0 that are direct have a named sender; those with other tags need not. */
static void any_source_is_refused(struct team *team)
{
    int64_t nothing = -1;
    int source = -1;
    team_case(team);
    void *lent = lend(team, 0, &nothing, sizeof nothing);
    int status = collrun_recv_any(team->group, lent, 1, COLLRUN_INT64, &source);
    if (status != COLLRUN_ERR_UNSUPPORTED || !strstr(collrun_error(), "messages: matched"))
        team_fail(team, "recv_any of direct messages: %d, %s", status, collrun_error());
    take_back(team, &nothing, lent, sizeof nothing);
}

/* ---- requests are freed ---- */

static void one_of_each(struct team *team)
{
    int64_t in = 1, out = 0, message = 1;
    struct collrun_request *requests[2] = {NULL, NULL};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = &in, call.recv = &out, call.count = 1, call.dtype = COLLRUN_INT64;
    team_want(team, collrun_start(team->group, &call, &requests[0]), COLLRUN_OK, "start");
    call.kind = team->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV;
    call.send = call.recv = &message, call.peer = 1 - team->rank;
    team_want(team, collrun_start(team->group, &call, &requests[1]), COLLRUN_OK, "start");
    team_want(team, collrun_wait_all(requests, 2), COLLRUN_OK, "wait_all");
}

/* A long send ends beside a receive that nothing has been sent for: rank 1 answers when it has the
 * message and another one after it. The send is waited for, or polled. */
static void send_beside_receive(struct team *team, size_t count, bool polls)
{
    int32_t *data = calloc(count, sizeof *data), answer = 0;
    struct collrun_request *requests[2] = {NULL, NULL};
    struct collrun_call wait_for = COLLRUN_CALL(COLLRUN_RECV), sends = COLLRUN_CALL(COLLRUN_SEND);
    wait_for.recv = &answer, wait_for.count = 1, wait_for.tag = 9, wait_for.peer = 1;
    sends.send = data, sends.count = count, sends.peer = 1;
    wait_for.dtype = sends.dtype = COLLRUN_INT32;
    team_case(team);
    if (data == NULL)
        team_fail(team, "out of memory");
    if (data != NULL && team->rank == 0) {
        data[count - 1] = 5;
        team_want(team, collrun_start(team->group, &wait_for, &requests[0]), COLLRUN_OK, "start");
        team_want(team, collrun_start(team->group, &sends, &requests[1]), COLLRUN_OK, "start");
        team_want(team, polls ? wait_by_test(requests[1]) : collrun_wait(requests[1]), COLLRUN_OK,
                  "a send beside a receive");
        team_want(team, collrun_send(team->group, data, 1, COLLRUN_INT32, 1), COLLRUN_OK, "send");
        team_want(team, collrun_wait(requests[0]), COLLRUN_OK, "the answer");
    } else if (data != NULL && team->rank == 1) {
        team_want(team, collrun_recv(team->group, data, count, COLLRUN_INT32, 0), COLLRUN_OK,
                  "a long message");
        answer = data[count - 1];
        team_want(team, collrun_recv(team->group, data, 1, COLLRUN_INT32, 0), COLLRUN_OK, "recv");
        struct collrun_call back = COLLRUN_CALL(COLLRUN_SEND);
        back.send = &answer, back.count = 1, back.dtype = COLLRUN_INT32, back.tag = 9;
        back.peer = 0;
        team_want(team, collrun_run(team->group, &back, 1), COLLRUN_OK, "the answer's send");
    }
    if (data != NULL && team->rank < 2 && answer != 5)
        team_fail(team, "a long message beside a receive: %d for 5", (int)answer);
    free(data);
}

/* What malloc has given out does not grow with the number of requests that have been. */
static void without_growth(struct team *team)
{
    enum { WARM = 500, TURNS = 4000 };
    size_t before = 0;
    if (team->size != 2 || team->run->cuda)
        return;
    for (int i = 0; i < WARM + TURNS && !team->dead; i++) {
        if (i == WARM)
            before = mallinfo2().uordblks;
        one_of_each(team);
    }
    size_t after = mallinfo2().uordblks;
    team_case(team);
    if (after > before + TURNS * 16)
        team_fail(team, "%d requests that were waited for left %zu bytes behind", 2 * TURNS,
                  after - before);
}

/* ---- progress while no thread waits ---- */
static void mark(const struct team *team, const char *name, uint64_t serial, int rank, char *out,
                 size_t len)
{
    snprintf(out, len, "%s/%s-%s-%llu-%d", team->run->dir, name, team->name,
             (unsigned long long)serial, rank);
}

/* Rank 0 starts and stays out of the library until the others are through. */
static void progress_alone(struct team *team)
{
    char path[512];
    struct trial t = {0};
    struct shape s = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 100000};
    if (team->dead || team->run->dir[0] == '\0')
        return;
    trial_prepare(&t, team, &s);
    int status = collrun_start(team->group, &t.call, &t.request);
    double deadline = now_s() + 20;
    bool late = false;
    for (int r = 1; status == COLLRUN_OK && team->rank == 0 && r < team->size; r++) {
        struct timespec pause = {.tv_nsec = 1000000};
        mark(team, "through", team->serial, r, path, sizeof path);
        while (access(path, F_OK) != 0 && !(late = now_s() > deadline))
            nanosleep(&pause, NULL);
    }
    if (late)
        team_fail(team, "an operation made no progress while one rank did not wait for it");
    if (status == COLLRUN_OK)
        status = collrun_wait(t.request);
    trial_verify(&t, status);
    mark(team, "through", team->serial, team->rank, path, sizeof path);
    FILE *file = fopen(path, "w");
    if (file == NULL || fclose(file) != 0)
        team_fail(team, "cannot write %s", path);
    trial_free(&t);
}

void suite_async(struct team *team)
{
    int n = (int)team->run->steps;
    for (int how = 0; how < ORDERS && !team->dead; how++)
        in_flight(team, n, how);
    if (!team->dead)
        both_ways(team, n);
    for (size_t i = 0; team->size > 1 && i < ARRAY_LEN(exchange_counts); i++) {
        if (exchange_counts[i] * 4 > team->run->max_bytes * 8)
            break;
        if (!team->dead)
            sendrecv_ring(team, exchange_counts[i]);
        for (int k = 0; k < 2 && !team->dead; k++)
            many_to_many(team, exchange_counts[i]);
    }
    if (team->size > 1) {
        tags_overtake(team);
        passes_collective(team, COLLRUN_INT32, COLLRUN_SUM);
        passes_collective(team, COLLRUN_FLOAT16, COLLRUN_SUM);
        passes_collective(team, COLLRUN_FLOAT32, COLLRUN_MIN);
        team->run->direct ? any_source_is_refused(team) : from_any_source(team);
        any_source_with_tag(team);
        for (int i = 0; i < 8 && !team->run->cuda && !team->dead; i++)
            send_beside_receive(team, 100003, i % 4 == 3);
        without_growth(team);
        progress_alone(team);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of collectives: every call of the array gives its result, in the order of the array, so
 * that a call reads what an earlier one has written. A batch with a bad call does nothing.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

/* With scans, which no backend has, the engine executes the batch call by call; without them a
 * backend may take all of it. */
static struct shape batch_shape(const struct team *team, uint64_t i, bool scans)
{
    static const enum collrun_kind kinds[] = {
        COLLRUN_ALLREDUCE, COLLRUN_SCAN,       COLLRUN_BROADCAST, COLLRUN_ALLGATHER, COLLRUN_REDUCE,
        COLLRUN_EXSCAN,    COLLRUN_ALLGATHERV, COLLRUN_ALLTOALLV, COLLRUN_BARRIER};
    static const enum collrun_kind others[] = {
        COLLRUN_REDUCE_SCATTER, COLLRUN_GATHER,   COLLRUN_ALLTOALL, COLLRUN_ALLREDUCE,
        COLLRUN_GATHERV,        COLLRUN_SCATTERV, COLLRUN_SCATTER,  COLLRUN_REDUCE_SCATTERV,
        COLLRUN_ALLGATHERV,     COLLRUN_BARRIER,  COLLRUN_BROADCAST};
    struct shape s = {.kind = scans ? kinds[i % ARRAY_LEN(kinds)] : others[i % ARRAY_LEN(others)],
                      .dtype = i % 2 != 0 ? COLLRUN_INT64 : COLLRUN_FLOAT32,
                      .root = (int)(i % (uint64_t)team->size),
                      .count = i * 37 % 1000};
    s.in_place = i % 3 == 0 && has_in_place(s.kind);
    return s;
}

enum { GATHERED = 16 };

static int batch_run(struct team *team, const struct collrun_call *calls, int n, bool started)
{
    struct collrun_request *request = NULL;
    if (!started)
        return collrun_run(team->group, calls, n);
    int status = collrun_start_many(team->group, calls, n, &request);
    return status == COLLRUN_OK ? collrun_wait(request) : status;
}

static void many_kinds(struct team *team, int n, bool scans, bool started)
{
    struct trial *trials = calloc((size_t)n, sizeof *trials);
    struct collrun_call *calls = calloc((size_t)n, sizeof *calls);
    if (trials == NULL || calls == NULL)
        abort();
    for (int i = 0; i < n; i++) {
        struct shape s = batch_shape(team, team->serial, scans);
        trial_prepare(&trials[i], team, &s);
        calls[i] = trials[i].call;
    }
    int status = batch_run(team, calls, n, started);
    for (int i = 0; i < n; i++) {
        trial_verify(&trials[i], status);
        trial_free(&trials[i]);
    }
    free(calls);
    free(trials);
}

/* Rank r sends r + 1; sum = n (n + 1) / 2; its scan at rank r is (r + 1) sum; the last rank's
 * reaches all. */
static void dependent(struct team *team, bool started)
{
    int64_t n = team->size, sum = n * (n + 1) / 2, values[3] = {team->rank + 1, -1, -1};
    struct collrun_call calls[3] = {COLLRUN_CALL(COLLRUN_ALLREDUCE), COLLRUN_CALL(COLLRUN_SCAN),
                                    COLLRUN_CALL(COLLRUN_BROADCAST)};
    int64_t *at = lend(team, 0, values, sizeof values);
    for (int i = 0; i < 3; i++) {
        calls[i].count = 1;
        calls[i].dtype = COLLRUN_INT64;
    }
    calls[0].send = &at[0], calls[0].recv = &at[1];
    calls[1].send = &at[1], calls[1].recv = &at[2];
    calls[2].recv = &at[2], calls[2].root = team->size - 1;
    team_case(team);
    int status = batch_run(team, calls, 3, started);
    take_back(team, values, at, sizeof values);
    if (team_want(team, status, COLLRUN_OK, "a batch whose calls depend on each other") &&
        (values[0] != team->rank + 1 || values[1] != sum || values[2] != n * sum))
        team_fail(team, "allreduce, scan and broadcast in one batch: %d, %d, %d", (int)values[0],
                  (int)values[1], (int)values[2]);
}

/* Only the root reads what an earlier call has written: the first rank's value and all others,
 * which it has gathered. */
static void dependent_at_root(struct team *team, bool started)
{
    int64_t n = team->size, values[2 + GATHERED] = {team->rank + 1};
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_GATHER), COLLRUN_CALL(COLLRUN_BROADCAST)};
    int64_t *at = lend(team, 0, values, sizeof values);
    calls[0].send = &at[0], calls[0].recv = &at[1], calls[0].count = 1;
    calls[1].recv = &at[1], calls[1].count = (size_t)n;
    calls[0].dtype = calls[1].dtype = COLLRUN_INT64;
    team_case(team);
    int status = batch_run(team, calls, 2, started);
    take_back(team, values, at, sizeof values);
    if (!team_want(team, status, COLLRUN_OK, "a batch that depends at the root"))
        return;
    for (int r = 0; r < n; r++)
        if (values[1 + r] != r + 1)
            team_fail(team, "gather and broadcast in one batch: value %d is %d", r,
                      (int)values[1 + r]);
}

/* Alike on all ranks, so nothing has to be sent to find out. */
static void refused(struct team *team, bool started)
{
    int64_t values[2] = {1, -1};
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_ALLREDUCE),
                                    COLLRUN_CALL(COLLRUN_BROADCAST)};
    int64_t *at = lend(team, 0, values, sizeof values);
    for (int i = 0; i < 2; i++) {
        calls[i].count = 1;
        calls[i].dtype = COLLRUN_INT64;
    }
    calls[0].send = &at[0], calls[0].recv = &at[1];
    calls[1].recv = &at[0], calls[1].root = team->size;
    team_case(team);
    team_want(team, batch_run(team, calls, 2, started), COLLRUN_ERR_INVALID,
              "a batch with a bad root");
    calls[1] = (struct collrun_call)COLLRUN_CALL(COLLRUN_SEND);
    calls[1].send = &at[0], calls[1].count = 1, calls[1].dtype = COLLRUN_INT64;
    calls[1].peer = (team->rank + 1) % team->size;
    if (team->size > 1)
        team_want(team, batch_run(team, calls, 2, started), COLLRUN_ERR_INVALID,
                  "a collective and a message in one array");
    take_back(team, values, at, sizeof values);
    if (values[0] != 1 || values[1] != -1)
        team_fail(team, "a batch that was refused wrote to its buffers");
}

void suite_batch(struct team *team)
{
    for (int i = 0; i < 8 && !team->dead; i++) {
        bool started = i % 2 != 0;
        many_kinds(team, 2 + i / 2, true, started);
        many_kinds(team, 20 + i, true, started);
        many_kinds(team, 12 * i + 2, false, started);
        dependent(team, started);
        if (team->size <= GATHERED)
            dependent_at_root(team, started);
        refused(team, started);
    }
}

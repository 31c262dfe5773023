/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that disagree about a call: all of them get MISMATCH, with both calls in the error text,
 * nothing is written, and every later call on the group fails. Group rank 1 deviates. Each group
 * serves one case and is named after it ("m-dtype"). For a message, the receiver must report it;
 * the sender may have returned by then. With the parameter `early`, so may ranks of a broadcast
 * that agree with the root, and then their next operation reports it.
 */
#include "conform.h"

#include <string.h>
#include <strings.h>

struct mismatch {
    const char *name;
    struct shape others, deviating; /* what group rank 1 calls is `deviating` */
    const char *texts[2];           /* both are in the error text */
};

static void combine(void *ctx, const void *left, void *right, size_t count,
                    enum collrun_dtype dtype)
{
    (void)ctx;
    (void)dtype;
    memcpy(right, left, count * sizeof(int32_t));
}

static const struct collrun_user_op first = {
    .size = sizeof first, .name = "the-first", .combine = combine};
static const struct collrun_user_op last = {
    .size = sizeof last, .name = "the-last", .combine = combine};

static const struct mismatch cases[] = {
    {"m-kind",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 10},
     {.kind = COLLRUN_BROADCAST, .dtype = COLLRUN_INT32, .count = 10},
     {"allreduce", "broadcast"}},
    {"m-barrier",
     {.kind = COLLRUN_BARRIER},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 1},
     {"barrier", "allreduce"}},
    {"m-dtype",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 10},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_FLOAT32, .count = 10},
     {"int32", "float32"}},
    {"m-width",
     {.kind = COLLRUN_ALLGATHER, .dtype = COLLRUN_FLOAT32, .count = 8},
     {.kind = COLLRUN_ALLGATHER, .dtype = COLLRUN_FLOAT64, .count = 8},
     {"float32", "float64"}},
    {"m-op",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 10, .op = COLLRUN_SUM},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 10, .op = COLLRUN_MAX},
     {"sum", "max"}},
    {"m-root",
     {.kind = COLLRUN_BROADCAST, .dtype = COLLRUN_UINT8, .count = 10, .root = 0},
     {.kind = COLLRUN_BROADCAST, .dtype = COLLRUN_UINT8, .count = 10, .root = 2},
     {"root", "2"}},
    {"m-count",
     {.kind = COLLRUN_REDUCE_SCATTER, .dtype = COLLRUN_INT32, .count = 4321},
     {.kind = COLLRUN_REDUCE_SCATTER, .dtype = COLLRUN_INT32, .count = 4322},
     {"4321", "4322"}},
    {"m-large",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_FLOAT32, .count = 250000},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_FLOAT32, .count = 250001},
     {"250000", "250001"}},
    {"m-zero",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 0},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 7},
     {"allreduce", "7"}},
    {"m-scan",
     {.kind = COLLRUN_SCAN, .dtype = COLLRUN_INT32, .count = 10},
     {.kind = COLLRUN_EXSCAN, .dtype = COLLRUN_INT32, .count = 10},
     {"calls scan(10 x int32, sum)", "calls exscan(10 x int32, sum)"}},
    {"m-scankind",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 10},
     {.kind = COLLRUN_SCAN, .dtype = COLLRUN_INT32, .count = 10},
     {"calls allreduce(10 x int32, sum)", "rank 1 calls scan"}},
    {"m-userop",
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 10, .user_op = &first},
     {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 10, .user_op = &last},
     {"user op the-first", "user op the-last"}},
    {"m-allgatherv",
     {.kind = COLLRUN_ALLGATHERV, .dtype = COLLRUN_INT32, .count = 9},
     {.kind = COLLRUN_ALLGATHERV, .dtype = COLLRUN_INT32, .count = 39},
     {"allgatherv(int32): rank ", ", which receives "}},
    {"m-gatherv",
     {.kind = COLLRUN_GATHERV, .dtype = COLLRUN_INT32, .count = 9, .root = 2},
     {.kind = COLLRUN_GATHERV, .dtype = COLLRUN_INT32, .count = 39, .root = 2},
     {"gatherv(int32, root 2): rank 1 sends ", " to rank 2, which receives "}},
    {"m-scatterv",
     {.kind = COLLRUN_SCATTERV, .dtype = COLLRUN_INT32, .count = 9, .root = 0},
     {.kind = COLLRUN_SCATTERV, .dtype = COLLRUN_INT32, .count = 39, .root = 0},
     {"scatterv(int32, root 0): rank 0 sends ", " to rank 1, which receives "}},
    {"m-reduce_scatterv",
     {.kind = COLLRUN_REDUCE_SCATTERV, .dtype = COLLRUN_INT32, .count = 9},
     {.kind = COLLRUN_REDUCE_SCATTERV, .dtype = COLLRUN_INT32, .count = 39},
     {"reduce_scatterv(int32, sum): rank ", ", which receives "}},
    {"m-alltoallv",
     {.kind = COLLRUN_ALLTOALLV, .dtype = COLLRUN_INT32, .count = 9},
     {.kind = COLLRUN_ALLTOALLV, .dtype = COLLRUN_INT32, .count = 39},
     {"alltoallv(int32): rank ", ", which receives "}},
    {"m-sendcount",
     {.kind = COLLRUN_SEND, .dtype = COLLRUN_INT32, .count = 301, .from = 0, .to = 1},
     {.kind = COLLRUN_RECV, .dtype = COLLRUN_INT32, .count = 302, .from = 0, .to = 1},
     {"301", "302"}},
    {"m-sendtype",
     {.kind = COLLRUN_SEND, .dtype = COLLRUN_INT32, .count = 30, .from = 0, .to = 1},
     {.kind = COLLRUN_RECV, .dtype = COLLRUN_FLOAT32, .count = 30, .from = 0, .to = 1},
     {"int32", "float32"}},
    {"m-anycount",
     {.kind = COLLRUN_SEND, .dtype = COLLRUN_INT32, .count = 301, .from = 0, .to = 1},
     {.kind = COLLRUN_RECV_ANY, .dtype = COLLRUN_INT32, .count = 302, .from = 0, .to = 1},
     {"301", "302"}},
};

static int call(struct trial *t)
{
    if (!t->team->run->async)
        return trial_block(t);
    int status = collrun_start(t->team->group, &t->call, &t->request);
    return status == COLLRUN_OK ? collrun_wait(t->request) : status;
}

static void disagree(struct team *team, const struct mismatch *m)
{
    struct trial t = {0};
    const struct shape *s = team->rank == 1 ? &m->deviating : &m->others;
    if (collrun_kind_is_message(s->kind) && team->rank > 1)
        return;
    team_case(team);
    trial_prepare(&t, team, s);
    guarded_set(&t.want, t.recv.len, 0);
    if (t.recv.len != 0)
        memcpy(t.want.at, t.recv.at, t.recv.len);
    int status = call(&t);
    bool may_return = team->run->early && s->kind == COLLRUN_BROADCAST && team->rank != 1;
    bool has_returned = may_return && status == COLLRUN_OK;
    if (has_returned)
        status = collrun_barrier(team->group);
    const char *text = collrun_error();
    bool is_gone = s->kind == COLLRUN_SEND && status == COLLRUN_OK;
    if (!is_gone && team_want(team, status, COLLRUN_ERR_MISMATCH, m->name)) {
        for (int i = 0; i < 2; i++)
            if (strcasestr(text, m->texts[i]) == NULL)
                team_fail(team, "%s: the error lacks \"%s\": %s", m->name, m->texts[i], text);
        if (!has_returned && t.recv.len != 0 && memcmp(t.want.at, t.recv.at, t.recv.len) != 0)
            team_fail(team, "%s: wrote to the output", m->name);
        team_want(team, collrun_barrier(team->group), COLLRUN_ERR_MISMATCH, "the next operation");
        status =
            collrun_sendrecv(team->group, NULL, 0, team->rank, NULL, 0, team->rank, COLLRUN_INT32);
        team_want(team, status, COLLRUN_ERR_MISMATCH, "a message to oneself after that");
    }
    trial_free(&t);
}

void suite_mismatch(struct team *team)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (strcmp(cases[i].name, team->name) == 0) {
            disagree(team, &cases[i]);
            return;
        }
    team_fail(team, "no such mismatch");
}

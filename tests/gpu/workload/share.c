/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that share a communicator: "tp" has the option share: dp, and "pp" the option share: tp.
 * The case's group is one of them; `other` is dp, or tp for dp.
 */
#include "workload.h"

#include <signal.h>
#include <unistd.h>

enum { NAMES = 3, ROUNDS = 12 };
static const char *const names[NAMES] = {"dp", "tp", "pp"};

struct member { /* one group */
    struct gpu_test t;
    void *in[MAX_BLOCKS], *out[MAX_BLOCKS];
    int salt;
};

static bool open_member(struct gpu_test *t, const char *name, int salt, struct member *m)
{
    *m = (struct member){.t = *t, .salt = salt};
    if (!ok(t, collrun_group_get(t->ctx, name, &m->t.g), "group_get"))
        return false;
    for (int i = 0; i < t->devices; i++) {
        m->in[i] = device_values(i, comm_rank_of(t, t->rank, i), COUNT, salt);
        m->out[i] = cuda_new(i, COUNT * 4);
    }
    return true;
}

static int start_sum(const struct member *m, enum collrun_kind kind, struct collrun_request **out)
{
    struct collrun_call calls[MAX_BLOCKS];
    for (int i = 0; i < m->t.devices; i++) {
        calls[i] = allreduce_call(m->in[i], m->out[i]);
        calls[i].device = i;
        calls[i].kind = kind;
    }
    return collrun_start_many(m->t.g, calls, m->t.devices, out);
}

static int sum(const struct member *m)
{
    struct collrun_request *r = NULL;
    int rc = start_sum(m, COLLRUN_ALLREDUCE, &r);
    return rc == COLLRUN_OK ? collrun_wait(r) : rc;
}

static void expect_sums(struct gpu_test *t, const struct member *m, const char *what)
{
    for (int i = 0; i < t->devices; i++)
        expect_sum(t, i, m->out[i], m->salt, what);
}

/* In flight together: several of each group, with a scan between them that the engine executes, and
 * ranks that start at different times. */
static void share_in_flight(struct gpu_test *t, struct member *members)
{
    struct collrun_request *requests[NAMES * 4];
    bool scans = t->comm_size == t->size;
    for (int round = 0; round < ROUNDS && !t->failures; round++) {
        int n = 0;
        if (round % 4 == 3)
            pause_ms(3 * t->rank);
        for (int k = 0; k < NAMES * 4; k++) {
            struct member *m = &members[(k + k / NAMES * round) % NAMES];
            bool scan = scans && round % 3 == 2 && k % 4 == 2;
            if (!ok(t, start_sum(m, scan ? COLLRUN_SCAN : COLLRUN_ALLREDUCE, &requests[n++]),
                    "start"))
                return;
        }
        ok(t, collrun_wait_all(requests, (size_t)n), "wait_all");
        for (int i = 0; i < NAMES; i++)
            if (ok(t, sum(&members[i]), "allreduce"))
                expect_sums(t, &members[i], names[i]);
    }
}

static void print_memory(const struct gpu_test *t)
{
    size_t available = 0, total = 0;
    cuda_must(cuda.set_device(collrun_device(t->g, 0)), "cudaSetDevice");
    cuda_must(cuda.mem_get_info(&available, &total), "cudaMemGetInfo");
    printf("gpu_test: %zu MiB\n", (total - available) >> 20);
}

/* All ranks use the groups in one order. */
void gpu_share(struct gpu_test *t)
{
    struct member members[NAMES];
    print_memory(t);
    for (int i = 0; i < NAMES; i++)
        if (!open_member(t, names[i], 70 + i, &members[i]))
            return;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < NAMES; i++)
            if (ok(t, sum(&members[(i + round) % NAMES]), "allreduce"))
                expect_sums(t, &members[(i + round) % NAMES], "in turn");
    share_in_flight(t, members);
}

static bool open_pair(struct gpu_test *t, struct member *own, struct member *other)
{
    struct collrun_group *dp = NULL;
    if (!ok(t, collrun_group_get(t->ctx, "dp", &dp), "group_get"))
        return false;
    return open_member(t, collrun_group_name(t->g), 80, own) &&
           open_member(t, t->g == dp ? "tp" : "dp", 81, other);
}

/* Both have failed, and the GPU is usable. */
static void expect_both_failed(struct gpu_test *t, const struct member *own,
                               const struct member *other)
{
    if (sum(own) == COLLRUN_OK || sum(other) == COLLRUN_OK)
        case_failed(t, "a group is usable after one that shares with it has failed");
    cuda_must(cuda.free(own->in[0]), "cudaFree"); /* waits for the GPU */
    expect_values(t, 0, device_values(0, t->rank, 10, 15), 10, t->rank, 15, "the GPU afterwards");
}

/* Odd ranks use the groups in the other order. */
void gpu_share_inverse(struct gpu_test *t)
{
    struct member own, other;
    struct collrun_request *r[2] = {NULL, NULL};
    if (!open_pair(t, &own, &other))
        return;
    for (int i = 0; i < 2; i++)
        ok(t, start_sum(t->rank % 2 == i ? &own : &other, COLLRUN_ALLREDUCE, &r[i]), "start");
    for (int i = 0; i < 2; i++) {
        int rc = collrun_wait(r[i]);
        if (rc == COLLRUN_OK)
            case_failed(t, "operations in different orders have ended");
        printf("share_inverse: rank %d: %s\n", t->rank, collrun_error());
    }
    expect_both_failed(t, &own, &other);
}

/* This rank aborts its group, with operations of both in flight that the last rank does not start.
 */
void gpu_share_abort(struct gpu_test *t)
{
    struct member own, other;
    struct collrun_request *r[2] = {NULL, NULL};
    if (!open_pair(t, &own, &other))
        return;
    if (t->rank < t->size - 1) {
        ok(t, start_sum(&other, COLLRUN_ALLREDUCE, &r[0]), "start");
        ok(t, start_sum(&own, COLLRUN_ALLREDUCE, &r[1]), "start");
        pause_ms(100);
    }
    ok(t, collrun_group_abort(t->g, "no longer needed"), "abort");
    for (int i = 0; r[0] && i < 2; i++)
        if (collrun_wait(r[i]) == COLLRUN_OK)
            case_failed(t, "an operation has ended after an abort");
    if (sum(&other) == COLLRUN_OK)
        case_failed(t, "the other group is usable after an abort");
    printf("share_abort: %s\n", collrun_error());
    expect_both_failed(t, &own, &other);
}

/* The last rank does not call this group. */
void gpu_share_late(struct gpu_test *t)
{
    struct member own, other;
    if (!open_pair(t, &own, &other))
        return;
    if (t->rank == t->size - 1) {
        pause_ms(6000);
        return;
    }
    int rc = sum(&own);
    if (rc != COLLRUN_ERR_TIMEOUT)
        case_failed(t, "%d, %s", rc, collrun_error());
    printf("share_late: %s\n", collrun_error());
    if (sum(&other) == COLLRUN_OK)
        case_failed(t, "the other group is usable after a time-out");
    printf("share_late: %s\n", collrun_error());
    expect_both_failed(t, &own, &other);
}

/* The last rank dies, while operations of both are in flight. */
void gpu_share_killed(struct gpu_test *t)
{
    struct member own, other;
    struct collrun_request *r[2] = {NULL, NULL};
    if (!open_pair(t, &own, &other))
        return;
    ok(t, sum(&own), "allreduce");
    if (t->rank == t->size - 1) {
        pause_ms(200);
        kill(getpid(), SIGKILL);
    }
    ok(t, start_sum(&own, COLLRUN_ALLREDUCE, &r[0]), "start");
    ok(t, start_sum(&other, COLLRUN_ALLREDUCE, &r[1]), "start");
    for (int i = 0; i < 2; i++) {
        int rc = collrun_wait(r[i]);
        if (rc != COLLRUN_ERR_PEER_FAILED && rc != COLLRUN_ERR_ABORTED)
            case_failed(t, "%d, %s", rc, collrun_error());
    }
    expect_both_failed(t, &own, &other);
    printf("gpu_test: survived\n");
}

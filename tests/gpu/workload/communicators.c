/* SPDX-License-Identifier: Apache-2.0
 *
 * How many communicators the GPUs have, and when they are formed. The stand-in library counts them;
 * on real GPUs only the results are tested.
 */
#include "workload.h"

#include <dlfcn.h>
#include <time.h>

enum { LIMIT_MS = 5000 };

static void *library_function(const char *name)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    return nccl ? dlsym(nccl, name) : NULL;
}

/* Waits until the first GPU of this process has so many communicators: those of messages are formed
 * in the background. */
static void expect_communicators(struct gpu_test *t, int expected, const char *when)
{
    int (*count)(int) = NULL;
    *(void **)&count = library_function("fake_nccl_communicators");
    int device = collrun_device(t->g, 0), found = -1;
    for (int ms = 0; count && (found = count(device)) < expected && ms < LIMIT_MS; ms += 10)
        pause_ms(10);
    if (count && found != expected)
        case_failed(t, "%s: %d communicators, not %d", when, found, expected);
}

static size_t memory_in_use(void)
{
    size_t available = 0, total = 0;
    cuda_must(cuda.mem_get_info(&available, &total), "cudaMemGetInfo");
    return total - available;
}

/* A rank that does not call has its communicator formed in the background: the communicator counts
 * when that begins, and has its memory when that ends. */
static void expect_memory_grows(struct gpu_test *t, size_t before)
{
    size_t least = before + (8u << 20);
    if (!library_function("fake_nccl_communicators"))
        return;
    for (int ms = 0; memory_in_use() < least && ms < LIMIT_MS; ms += 10)
        pause_ms(10);
    if (memory_in_use() < least)
        case_failed(t, "a communicator holds no memory");
}

/* Ranks 0 and 1 alone exchange a message; the others do not call meanwhile. */
static void exchange_one(struct gpu_test *t, struct collrun_group *g, int rank, int salt)
{
    void *buffer = rank ? cuda_new(0, COUNT * 4) : device_values(0, 0, COUNT, salt);
    if (rank == 0)
        ok(t, collrun_send(g, buffer, COUNT, COLLRUN_INT32, 1), "send");
    if (rank == 1 && ok(t, collrun_recv(g, buffer, COUNT, COLLRUN_INT32, 0), "recv"))
        expect_values(t, 0, buffer, COUNT, 0, salt, "the first message");
}

/* All ranks have got here. On a group that uses no GPU. */
static void meet(struct gpu_test *t)
{
    struct collrun_group *sync = NULL;
    if (ok(t, collrun_group_get(t->ctx, "sync", &sync), "group_get"))
        ok(t, collrun_barrier(sync), "barrier");
}

/* Collectives and messages take their communicators when they are first used. */
void gpu_lean(struct gpu_test *t)
{
    int at_start = (int)collrun_param_int(t->ctx, "communicators");
    void *in = device_values(0, t->rank, COUNT, 40), *out = cuda_new(0, COUNT * 4);
    expect_communicators(t, at_start, "at the start");
    meet(t);
    if (ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
        expect_sum(t, 0, out, 40, "the first collective");
    expect_communicators(t, 1, "after a collective");
    if (t->rank == 0)
        ok(t, collrun_send(t->g, in, 0, COLLRUN_INT32, 1), "send nothing");
    if (t->rank == 1)
        ok(t, collrun_recv(t->g, out, 0, COLLRUN_INT32, 0), "receive nothing");
    expect_communicators(t, 1, "after an empty message");
    size_t before = memory_in_use();
    meet(t);
    exchange_one(t, t->g, t->rank, 41);
    expect_communicators(t, 2, "after a message");
    expect_memory_grows(t, before);
    ok(t, collrun_barrier(t->g), "barrier");
    expect_communicators(t, 2, "at the end");
}

/* Three groups are first used at the same time, in an order that depends on the rank. */
void gpu_first_use(struct gpu_test *t)
{
    static const char *const names[] = {"world", "second", "third"};
    struct collrun_request *requests[6];
    void *in[3], *out[3], *got[3];
    int n = 0;
    for (int k = 0; k < 3; k++) {
        int i = t->rank % 2 ? 2 - k : k, next = (t->rank + 1) % t->size;
        struct collrun_group *g = NULL;
        struct collrun_call send = message_call(COLLRUN_SEND, NULL, 0, next);
        struct collrun_call calls[2];
        if (!ok(t, collrun_group_get(t->ctx, names[i], &g), "group_get"))
            return;
        in[i] = device_values(0, t->rank, COUNT, 50 + i);
        out[i] = cuda_new(0, COUNT * 4);
        got[i] = cuda_new(0, COUNT * 4);
        calls[0] = send;
        calls[0].send = in[i];
        calls[1] = message_call(COLLRUN_RECV, got[i], 0, (t->rank + t->size - 1) % t->size);
        struct collrun_call sum = allreduce_call(in[i], out[i]);
        if (!ok(t, collrun_start_many(g, calls, 2, &requests[n++]), "start messages") ||
            !ok(t, collrun_start(g, &sum, &requests[n++]), "start a collective"))
            return;
    }
    ok(t, collrun_wait_all(requests, (size_t)n), "wait_all");
    for (int i = 0; i < 3; i++) {
        expect_sum(t, 0, out[i], 50 + i, names[i]);
        expect_values(t, 0, got[i], COUNT, (t->rank + t->size - 1) % t->size, 50 + i, names[i]);
    }
}

/* The last rank closes a group before the others send their first message. */
void gpu_left(struct gpu_test *t)
{
    for (int i = 0; i < 5; i++) {
        static const int ranks[] = {0, 1, 2};
        struct collrun_group_options options = {.size = sizeof options,
                                                .ranks = ranks,
                                                .nranks = t->size,
                                                .backend = collrun_group_backend(t->g),
                                                .name = "short"};
        struct collrun_group *g = NULL;
        if (!ok(t, collrun_group_create(t->ctx, &options, &g), "group_create"))
            return;
        if (t->rank + 1 < t->size)
            pause_ms(30);
        exchange_one(t, g, t->rank, 60 + i);
        ok(t, collrun_group_destroy(g), "group_destroy");
        ok(t, collrun_barrier(t->g), "barrier");
    }
}

/* ---- groups that have failed ---- */

static struct collrun_group *make_group(struct gpu_test *t, const char *name)
{
    static const int ranks[] = {0, 1, 2};
    struct collrun_group *g = NULL;
    struct collrun_group_options options = {.size = sizeof options,
                                            .ranks = ranks,
                                            .nranks = t->size,
                                            .backend = collrun_group_backend(t->g),
                                            .name = name};
    return ok(t, collrun_group_create(t->ctx, &options, &g), "group_create") ? g : NULL;
}

/* Two ranks start collectives of two groups in different orders, and between these they destroy a
 * group that has failed: its memory is freed when the kernels of the others have ended. */
void gpu_broken(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 70), *out[2] = {cuda_new(0, COUNT * 4)};
    struct collrun_group *other[2] = {make_group(t, "one"), make_group(t, "two")};
    out[1] = cuda_new(0, COUNT * 4);
    for (int round = 0; round < 5 && !t->failures; round++) {
        struct collrun_request *requests[2] = {NULL, NULL};
        struct collrun_group *broken = make_group(t, "broken");
        for (int i = 0; broken && !t->failures && i < 2; i++) {
            int at = i ^ t->rank;
            struct collrun_call sum = allreduce_call(in, out[at]);
            if (i == 0)
                ok(t, collrun_group_abort(broken, "a test"), "group_abort");
            ok(t, collrun_start(other[at], &sum, &requests[at]), "start");
            if (i == 0) {
                ok(t, collrun_group_destroy(broken), "group_destroy");
                pause_ms(20);
            }
        }
        ok(t, collrun_wait_all(requests, 2), "wait_all");
        for (int i = 0; i < 2; i++)
            expect_sum(t, 0, out[i], 70, "beside a group that has failed");
    }
}

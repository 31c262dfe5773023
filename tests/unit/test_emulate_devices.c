/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that a backend lacks, in a group whose processes drive two devices each: what the
 * backend gets instead.
 */
#include "core/backend.h"
#include "null_group.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { NRANKS = 2, DEVICES = 2, COMM_SIZE = NRANKS * DEVICES, COUNT = 8 };

static int32_t in[DEVICES][COUNT * COMM_SIZE], out[DEVICES][COUNT * COMM_SIZE];
static int streams[DEVICES];

static struct collrun_group *group_of_devices(void)
{
    struct collrun_group *g = null_group_new(0, NRANKS, COLLRUN_BACKEND_TAGS);
    g->backends[0].ndevices = DEVICES;
    g->backends[0].comm_size = COMM_SIZE;
    return g;
}

/* In the opposite order. */
static void calls_of_devices(enum collrun_kind kind, struct collrun_call calls[DEVICES])
{
    for (int i = 0; i < DEVICES; i++) {
        const int device = DEVICES - 1 - i;
        calls[i] = (struct collrun_call)COLLRUN_CALL(kind);
        calls[i].device = device;
        calls[i].send = in[device];
        calls[i].recv = out[device];
        calls[i].count = COUNT;
        calls[i].dtype = COLLRUN_INT32;
        calls[i].stream = &streams[device];
    }
}

static void add(void *ctx, const void *left, void *right, size_t count, enum collrun_dtype dtype)
{
    (void)ctx, (void)left, (void)right, (void)count, (void)dtype;
}

static void messages_are_on_the_stream_of_the_first_device(void **state)
{
    static const struct collrun_user_op op = {.size = sizeof op, .name = "add", .combine = add};
    struct collrun_call calls[DEVICES];
    (void)state;
    struct collrun_group *g = group_of_devices();
    for (int root = 0; root < 3; root++) {
        calls_of_devices(root == 2 ? COLLRUN_ALLREDUCE : COLLRUN_REDUCE, calls);
        for (int i = 0; i < DEVICES; i++) {
            calls[i].user_op = &op;
            calls[i].root = root % 2;
        }
        assert_int_equal(collrun_run(g, calls, DEVICES), COLLRUN_OK);
        assert_true(collrun_kind_is_message(null_backend.last.kind));
        assert_ptr_equal(null_backend.last.stream, &streams[0]);
    }
    null_group_free(g);
}

/* What the backend has got as bytes. */
static unsigned ndevices;
static size_t nbytes, last_at;

static int exec_bytes(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    ndevices = n;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(calls[i].dtype, COLLRUN_UINT8);
        assert_int_equal(calls[i].device, DEVICES - 1 - i);
        nbytes += calls[i].count;
        last_at = calls[i].recvdispls ? calls[i].recvdispls[COMM_SIZE - 1] : 0;
    }
    return COLLRUN_OK;
}

static void each_device_moves_its_data_as_bytes(void **state)
{
    static const size_t counts[COMM_SIZE] = {COUNT, COUNT, COUNT, COUNT},
                        displs[COMM_SIZE] = {0, COUNT, 2 * COUNT, 3 * COUNT};
    struct collrun_call calls[DEVICES];
    (void)state;
    struct collrun_group *g = group_of_devices();
    struct backend *b = g->backends[0].backend;
    b->native[COLLRUN_ALLGATHER][COLLRUN_INT32] = b->native[COLLRUN_ALLGATHERV][COLLRUN_INT32] = 0;
    b->table.exec = exec_bytes;
    for (int uneven = 0; uneven < 2; uneven++) {
        calls_of_devices(uneven ? COLLRUN_ALLGATHERV : COLLRUN_ALLGATHER, calls);
        for (int i = 0; uneven && i < DEVICES; i++) {
            calls[i].recvcounts = counts;
            calls[i].recvdispls = displs;
        }
        nbytes = ndevices = 0;
        assert_int_equal(collrun_run(g, calls, DEVICES), COLLRUN_OK);
        assert_int_equal(ndevices, DEVICES);
        assert_int_equal(nbytes, sizeof(int32_t) * COUNT * DEVICES);
        assert_int_equal(last_at, uneven ? sizeof(int32_t) * 3 * COUNT : 0);
    }
    null_group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_on_the_stream_of_the_first_device),
        cmocka_unit_test(each_device_moves_its_data_as_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with a group that was destroyed: INVALID, and none of them reaches the backend, whose
 * handle is closed.
 */
#include "core/backend.h"
#include "null_group.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned nchecked; /* receives that the backend was asked about */

static int check_receive(void *group, const struct collrun_call *call, int probes)
{
    (void)group, (void)call, (void)probes;
    nchecked++;
    return COLLRUN_OK;
}

static int locate_nothing(void *state, const void *ptr, int32_t *device)
{
    (void)state, (void)ptr, (void)device;
    return 0;
}

static int call_all(struct collrun_group *g, unsigned i)
{
    static struct collrun_message_info info = {.size = sizeof info};
    static int32_t in[4], out[4];
    static struct collrun_request *request;
    struct collrun_group *made = NULL;
    struct collrun_call call = null_group_message(COLLRUN_RECV, in, 1);
    void *memory = NULL;
    switch (i) {
    case 0:
        return collrun_barrier(g);
    case 1:
        return collrun_send(g, out, 1, COLLRUN_INT32, 1);
    case 2:
        return collrun_recv(g, in, 1, COLLRUN_INT32, 1);
    case 3:
        return collrun_sendrecv(g, out, 1, 1, in, 1, 1, COLLRUN_INT32);
    case 4:
        return collrun_sendrecv(g, out, 1, 0, in, 1, 0, COLLRUN_INT32);
    case 5:
        return collrun_probe(g, 1, 0, &info);
    case 6:
        return collrun_iprobe(g, 1, 0, &info);
    case 7:
        return collrun_start(g, &call, &request);
    case 8:
        return collrun_run(g, &call, 1);
    case 9:
        return collrun_alloc(g, 8, &memory);
    case 10:
        return collrun_free(g, out);
    case 11:
        return collrun_group_split(g, 0, 0, NULL, &made);
    case 12:
        return collrun_group_shrink(g, NULL, &made);
    case 13:
        return collrun_group_abort(g, "no reason");
    default:
        return COLLRUN_AGAIN;
    }
}

static void calls_are_invalid(void **state)
{
    static struct memory_kind kind = {
        .table = {.locate = locate_nothing}, .name = "device", .title = "device", .usable = true};
    (void)state;
    struct collrun_group *g = null_group_new(0, 2, COLLRUN_BACKEND_ENVELOPES);
    struct group_table *groups = g->table;
    struct backend *b = g->backends[0].backend;
    g->kinds = (struct memory_kind_set){.items = {&kind}, .n = 1};
    b->table.check_receive = check_receive;
    b->has_transport = true;
    assert_int_equal(collrun_recv(g, &nchecked, 1, COLLRUN_UINT32, 1), COLLRUN_OK);
    assert_int_equal(nchecked, 1);
    const unsigned calls = null_backend.calls;
    assert_int_equal(collrun_group_destroy(g), COLLRUN_OK);
    unsigned n = 0;
    for (int rc; (rc = call_all(g, n)) != COLLRUN_AGAIN; n++) {
        if (rc != COLLRUN_ERR_INVALID || !strstr(collrun_error(), "destroyed"))
            fail_msg("call %u returned %d: %s", n, rc, collrun_error());
    }
    assert_int_equal(n, 14);
    assert_int_equal(nchecked, 1);
    assert_int_equal(null_backend.calls, calls);
    assert_int_equal(collrun_group_destroy(g), COLLRUN_OK);
    group_table_fini(groups);
    backend_close(b);
    free(b);
    free(groups->process); /* the start of all that null_group_new has allocated */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

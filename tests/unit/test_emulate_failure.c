/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that is out of memory for a collective which the engine builds: what its peers get to
 * know.
 */
#include "core/backend.h"
#include "core/error.h"
#include "null_group.h"
#include "progress/p2p.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
    int status;
    uint32_t peer;
    char text[256];
} failed;

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_ERR_BACKEND;
}

static void wire_fail(void *group, uint32_t peer, int status, const char *text)
{
    (void)group;
    failed.status = status;
    failed.peer = peer;
    strncpy(failed.text, text, sizeof failed.text - 1);
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = null_transport_recv,
    .progress = null_transport_progress,
    .fail = wire_fail,
};

/* The check of the calls, in which both ranks say the same. */
static int exec_check(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    assert_int_equal(n, 1);
    assert_int_equal(calls->kind, COLLRUN_ALLGATHER);
    for (size_t r = 0; r < 2; r++)
        memcpy((char *)calls->recv + r * calls->count, calls->send, calls->count);
    return COLLRUN_OK;
}

/* Memory for the check, and none for the collective. */
static unsigned nallocs;

static int kind_alloc(void *kind, size_t len, void **ptr)
{
    (void)kind;
    *ptr = nallocs++ == 0 ? malloc(len) : NULL;
    return *ptr ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static void kind_free(void *kind, void *ptr, size_t len)
{
    (void)kind, (void)len;
    free(ptr);
}

static void combine(void *ctx, const void *left, void *right, size_t count, enum collrun_dtype type)
{
    (void)ctx, (void)left, (void)right, (void)count, (void)type;
}

static void peers_in_the_collective_learn_of_it(void **state)
{
    static struct memory_kind kind = {.table = {.host_alloc = kind_alloc, .host_free = kind_free},
                                      .name = "device",
                                      .title = "device",
                                      .usable = true};
    const struct collrun_user_op op = {.size = sizeof op, .name = "add", .combine = combine};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    static char in[1 << 16], out[1 << 16]; /* more than the check, whose memory is used again */
    (void)state;
    struct collrun_group *g = null_group_new(1, 2, COLLRUN_BACKEND_TAGS);
    struct group_backend *gb = &g->backends[0];
    struct p2p *p2p = null_group_carry(g, &transport);
    gb->queues[GROUP_COLLECTIVES].config.p2p = p2p;
    gb->kind = &kind;
    gb->backend->memory = COLLRUN_MEMORY_DEVICE;
    gb->backend->table.exec = exec_check;
    g->check = COLLRUN_CHECK_STRICT;
    pthread_mutex_init(&kind.blocks.lock, NULL);
    call.send = in;
    call.recv = out;
    call.count = sizeof in;
    call.dtype = COLLRUN_UINT8;
    call.user_op = &op;
    int rc = collrun_run(g, &call, 1);
    if (rc != COLLRUN_ERR_NO_MEMORY)
        fail_msg("status %d: %s", rc, collrun_error());
    assert_int_equal(nallocs, 2);
    assert_int_equal(failed.status,
                     COLLRUN_ERR_PEER_FAILED); /* to them it is this rank's failure */
    assert_int_equal(failed.peer, COLLRUN_ANY_SOURCE);
    assert_non_null(strstr(failed.text, "rank 1: out of memory for "));
    assert_non_null(strstr(collrun_error(), ": out of memory for "));
    assert_int_equal(collrun_barrier(g), COLLRUN_ERR_NO_MEMORY); /* the group has failed */
    gb->queues[GROUP_COLLECTIVES].config.p2p = NULL;
    null_group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_in_the_collective_learn_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

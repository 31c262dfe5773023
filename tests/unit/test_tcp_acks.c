/* SPDX-License-Identifier: Apache-2.0
 *
 * When the TCP backend asks the kernel for acknowledgements at arrival (link_ask_for_acks in
 * backends/tcp/link.c): for packets longer than a segment that go both ways, of few connections,
 * and never while a thread sleeps, which would not see short input.
 */
#include "p2p_suite.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PACKET = 4096, ATTEMPTS = 100, MANY = 7 };

/* The largest SO_RCVLOWAT of this process's sockets; 1: none has been set. */
static int largest_lowat(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int largest = 1;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        int value = 0;
        socklen_t len = sizeof value;
        if (e->d_name[0] != '.' &&
            getsockopt(atoi(e->d_name), SOL_SOCKET, SO_RCVLOWAT, &value, &len) == 0)
            largest = value > largest ? value : largest;
    }
    if (dir)
        closedir(dir);
    return largest;
}

static int exchange(struct harness_rank *r, size_t bytes)
{
    const uint32_t peer = 1 - r->rank;
    char *memory = calloc(2, bytes);
    const struct collrun_call calls[2] = {
        harness_message(COLLRUN_SEND, memory, bytes, peer, 0),
        harness_message(COLLRUN_RECV, memory ? memory + bytes : NULL, bytes, peer, 0)};
    HARNESS_CHECK(r, memory);
    const int status = harness_exec(r->group, calls, 2);
    free(memory);
    HARNESS_CHECK(r, status == COLLRUN_OK);
    return 0;
}

static int broadcast_value(struct harness_rank *r, uint32_t root, void *data, size_t bytes)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = data;
    call.count = bytes;
    call.dtype = COLLRUN_UINT8;
    call.root = (int32_t)root;
    return harness_exec(r->group, &call, 1);
}

static int broadcast(struct harness_rank *r, uint32_t root, size_t bytes)
{
    char *memory = calloc(1, bytes);
    const int status = memory ? broadcast_value(r, root, memory, bytes) : COLLRUN_ERR_NO_MEMORY;
    free(memory);
    return status;
}

/* A rank that has lost its core for long sleeps for its last packet, but not for all of them. */
static int exchange_packets(struct harness_rank *r)
{
    bool asked = false;
    for (int i = 0; i < ATTEMPTS; i++) {
        if (exchange(r, PACKET) != 0)
            return 1;
        asked |= largest_lowat() > PACKET;
    }
    HARNESS_CHECK(r, asked);
    harness_sync(r);
    return 0;
}

static int ask_for_exchanges_alone(struct harness_rank *r)
{
    if (exchange(r, 8) != 0)
        return 1;
    harness_sync(r);
    HARNESS_CHECK(r, largest_lowat() == 1);
    harness_sync(r);
    if (exchange_packets(r) != 0 || exchange(r, LARGE) != 0)
        return 1;
    harness_sync(r);
    HARNESS_CHECK(r, largest_lowat() == 1);
    harness_sync(r);
    if (exchange_packets(r) != 0)
        return 1;
    for (uint32_t root = 0; root < 2; root++) {
        for (int i = 0; i < 4; i++)
            HARNESS_CHECK(r, broadcast(r, root, PACKET) == COLLRUN_OK);
        harness_sync(r);
    }
    HARNESS_CHECK(r, largest_lowat() == 1);
    harness_sync(r);
    return 0;
}

static void exchanged_packets_are_acknowledged_at_arrival_and_others_are_not(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, ask_for_exchanges_alone), 0);
}

static int ask_of_few(struct harness_rank *r)
{
    char *memory = calloc(2 * MANY, PACKET);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALL);
    HARNESS_CHECK(r, memory);
    call.send = memory;
    call.recv = memory + MANY * PACKET;
    call.count = PACKET;
    call.dtype = COLLRUN_UINT8;
    int status = COLLRUN_OK;
    for (int i = 0; status == COLLRUN_OK && i < 20; i++)
        status = harness_exec(r->group, &call, 1);
    free(memory);
    HARNESS_CHECK(r, status == COLLRUN_OK);
    harness_sync(r);
    HARNESS_CHECK(r, largest_lowat() == 1);
    harness_sync(r);
    return 0;
}

static void many_connections_are_left_to_epoll(void **state)
{
    const struct harness_options options = options_for(state, MANY);
    assert_int_equal(harness_run(&options, ask_of_few), 0);
}

static bool sleeps(int tid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", tid);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (file)
        fclose(file);
    return state == 'S';
}

/* Rank 1 waits for a short packet, and rank 0 sends it when rank 1 is asleep. */
static int wake_a_sleeper(struct harness_rank *r)
{
    int32_t tid = (int32_t)gettid(), value = 7;
    int seen = 0;
    if (exchange_packets(r) != 0)
        return 1;
    HARNESS_CHECK(r, broadcast_value(r, 1, &tid, sizeof tid) == COLLRUN_OK);
    if (r->rank == 0)
        HARNESS_UNTIL(r, (seen = sleeps(tid) ? seen + 1 : 0) == 10);
    HARNESS_CHECK(r, broadcast_value(r, 0, &value, sizeof value) == COLLRUN_OK);
    harness_sync(r);
    return 0;
}

/* An operation may take longer than the whole run. */
static void a_short_packet_wakes_a_rank_that_sleeps(void **state)
{
    struct harness_options options = options_for(state, 2);
    options.timeout_ns = 600000000000u;
    options.limit_s = 60;
    assert_int_equal(harness_run(&options, wake_a_sleeper), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanged_packets_are_acknowledged_at_arrival_and_others_are_not),
        cmocka_unit_test(many_connections_are_left_to_epoll),
        cmocka_unit_test(a_short_packet_wakes_a_rank_that_sleeps),
    };
    return cmocka_run_group_tests(tests, each_alone, NULL);
}

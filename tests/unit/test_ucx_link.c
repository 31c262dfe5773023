/* SPDX-License-Identifier: Apache-2.0
 *
 * The link of the ucx backend (backends/net/link.h), two of them in one process: UCX connects each
 * direction on its own, and a process that has only received has a connection, too.
 */
#include "../../backends/ucx/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* UCX does not free what it was about to send when its worker is destroyed. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libucs.so\n";
}

struct side {
    struct link *link;
    struct link_peer *peer; /* the other side */
    unsigned packets, losses;
    enum link_loss_reason loss;
};

static void on_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    (void)ctx, (void)level, (void)format;
}

static int on_fail(void *ctx, int status, const char *format, ...)
{
    va_list args;
    (void)ctx;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    return status;
}

static const char *on_option(void *ctx, const char *key)
{
    (void)ctx;
    return strcmp(key, "transports") == 0 ? "tcp" : NULL;
}

static uint64_t on_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct collrun_services services = {.size = sizeof services,
                                                 .log = on_log,
                                                 .fail = on_fail,
                                                 .option = on_option,
                                                 .now_ns = on_now_ns};

static void on_packet(void *ctx, void *cookie, const void *header, const void *data, size_t len)
{
    struct side *s = ctx;
    (void)cookie, (void)header, (void)data, (void)len;
    s->packets++;
}

static void on_lost(void *ctx, void *cookie, const struct link_loss *loss)
{
    struct side *s = ctx;
    (void)cookie;
    s->losses++;
    s->loss = loss->reason;
}

/* Rank 0 sends to rank 1, which sends nothing. */
static void open_sides(struct side sides[2])
{
    const char header[LINK_HEADER_LEN] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        const struct link_config config = {
            .services = &services,
            .options = &services,
            .world_rank = i,
            .address = "127.0.0.1",
            .interface = "lo",
            .upcalls = {.ctx = &sides[i], .packet = on_packet, .lost = on_lost}};
        assert_int_equal(link_open(&config, &sides[i].link), COLLRUN_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        char address[LINK_ADDRESS_MAX];
        const struct link_peer_config config = {.world_rank = 1 - i,
                                                .address = address,
                                                .len = link_address(sides[1 - i].link, address),
                                                .name = "the other side",
                                                .cookie = &sides[i]};
        assert_int_equal(link_peer_open(sides[i].link, &config, &sides[i].peer), COLLRUN_OK);
    }
    link_send(sides[0].peer, header, NULL, 0);
}

/* So that a group that it closes tells the other side. */
static void a_rank_that_has_only_received_is_connected(void **state)
{
    const char header[LINK_HEADER_LEN] = {0};
    struct side sides[2] = {{0}, {0}};
    (void)state;
    open_sides(sides);
    for (time_t end = time(NULL) + 60; sides[1].packets == 0 && time(NULL) < end;) {
        link_progress(sides[0].link);
        link_progress(sides[1].link);
    }
    assert_int_equal(sides[1].packets, 1);
    assert_true(link_is_connected(sides[1].peer));
    link_send(sides[1].peer, header, NULL, 0);
    for (time_t end = time(NULL) + 60; sides[0].packets == 0 && time(NULL) < end;) {
        link_progress(sides[1].link);
        link_progress(sides[0].link);
    }
    assert_int_equal(sides[0].packets, 1);
    for (int i = 0; i < 2; i++)
        link_close(sides[i].link);
}

/* At any time: UCX has an answer to send, or waits for one. */
static void a_rank_ends_while_another_one_connects(void **state)
{
    (void)state;
    for (int steps = 0; steps < 40; steps++) {
        struct side sides[2] = {{0}, {0}};
        open_sides(sides);
        for (int i = 0; i < steps; i++) {
            const struct link *link = sides[i % 2].link;
            link->ucx.ucp_worker_progress(link->worker);
        }
        link_close(sides[1].link);
        link_close(sides[0].link);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_has_only_received_is_connected),
        cmocka_unit_test(a_rank_ends_while_another_one_connects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

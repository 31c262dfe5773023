/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what a hostile or dying peer may send on an open connection of the tcp backend. The
 * first byte of the input is the length of the pieces in which the rest arrives. Three landings
 * wait, one of them for another peer; each long packet gets a further one, at once or after the
 * piece, or is dropped. Nothing may be written outside a landing, and none may be
 * complete twice; the sanitizers see the rest.
 */
#include "conn.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { FUZZ_LANDINGS = 3 };

struct fuzz_landing {
    struct link_landing landing;
    int landed;
};

static void fuzz_packet(void *ctx, void *cookie, const void *header, const void *data, size_t len)
{
    volatile uint8_t sum = 0;
    const uint8_t *bytes = data;
    (void)ctx, (void)cookie;
    for (size_t i = 0; i < LINK_HEADER_LEN; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)header)[i]);
    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + bytes[i]);
}

static void fuzz_landed(struct link_landing *landing)
{
    struct fuzz_landing *f = (struct fuzz_landing *)(void *)landing;
    if (f->landed++)
        abort();
    free(landing->data);
    landing->data = NULL;
}

static void fuzz_long_landed(struct link_landing *landing)
{
    free(landing->data);
    *landing = (struct link_landing){0};
}

/* As the data's length says: at once, later, or dropped. */
static bool fuzz_long(void *ctx, void *cookie, const void *header, size_t len,
                      struct link_landing **landing)
{
    struct link_landing *l = ctx;
    (void)cookie, (void)header;
    if (l->data || len == 0)
        abort();
    *landing = NULL;
    if (len % 3 == 0)
        return true;
    *l = (struct link_landing){.data = malloc(len), .len = len, .landed = fuzz_long_landed};
    if (!l->data)
        abort();
    *landing = l;
    return len % 3 == 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const size_t room[FUZZ_LANDINGS] = {64, 4096, 64};
    struct link_peer *const peers = (void *)&peers; /* only compared */
    struct link_landing long_landing = {0};
    struct conn_io io = {
        .epoll_fd = -1,
        .buffer = aligned_alloc(CONN_ALIGN, CONN_BUFFER_LEN),
        .upcalls = {.ctx = &long_landing, .packet = fuzz_packet, .long_packet = fuzz_long}};
    struct conn_puts puts = {0};
    struct conn conn = {.io = &io, .peer = peers, .puts = &puts, .fd = -1};
    struct fuzz_landing landings[FUZZ_LANDINGS];
    memset(landings, 0, sizeof landings);
    for (int i = 0; i < FUZZ_LANDINGS; i++) {
        struct link_landing *l = &landings[i].landing;
        *l = (struct link_landing){.peer = i < 2 ? peers : (void *)&io,
                                   .data = malloc(room[i]),
                                   .len = room[i],
                                   .landed = fuzz_landed};
        if (!l->data || !landing_add(&io.landings, l))
            abort();
    }
    const size_t piece = len ? bytes[0] + 1u : 1;
    for (size_t at = 1; at < len; at += piece) {
        conn_feed(&conn, (const char *)bytes + at, len - at < piece ? len - at : piece);
        while (conn.suspended && !conn.ended) {
            conn_take(&conn, &long_landing);
            conn_pull(&conn);
        }
    }
    conn_fini(&conn);
    free(long_landing.data);
    free(io.buffer);
    for (int i = 0; i < FUZZ_LANDINGS; i++) {
        if (!landings[i].landed)
            landing_remove(&io.landings, &landings[i].landing);
        free(landings[i].landing.data);
    }
    landing_table_fini(&io.landings);
    return 0;
}

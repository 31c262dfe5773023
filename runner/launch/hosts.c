/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames from the runner to the ranks. A frame for several ranks crosses the stream to a host once;
 * its agent fans it out.
 */
#include "launch/supervise.h"

#include <stdlib.h>

void hosts_send_all(struct supervisor *s, uint16_t type, const void *payload, size_t len)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (conn_is_open(&s->hosts[h].conn))
            conn_send(&s->hosts[h].conn, type, WIRE_HOST, s->desc->attempt, payload, len);
    }
}

static void send_many(struct host *host, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload)
{
    struct supervisor *s = host->run;
    struct buf *out = conn_out(&host->conn);
    uint32_t here = 0, last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->desc->ranks[ranks[i]].host == host->index) {
            here++;
            last = ranks[i];
        }
    }
    if (!here)
        return;
    size_t len = buf_pending(payload);
    const void *bytes = payload->data + payload->start;
    if (here == 1) {
        conn_send(&host->conn, type, last, s->desc->attempt, bytes, len);
        return;
    }
    size_t mark = wire_begin(out, WIRE_MANY, WIRE_HOST, s->desc->attempt);
    buf_put_u32(out, here);
    for (uint32_t i = 0; i < n; i++) {
        if (s->desc->ranks[ranks[i]].host == host->index)
            buf_put_u32(out, ranks[i]);
    }
    buf_put_u16(out, type);
    buf_put(out, bytes, len);
    wire_end(out, mark);
    conn_flush(&host->conn);
}

void hosts_send_ranks(struct supervisor *s, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (conn_is_open(&s->hosts[h].conn))
            send_many(&s->hosts[h], ranks, n, type, payload);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame with lines that cannot be read is dropped: a log fails no job.
 */
#include "connect/agent_log.h"

#include "base/debug.h"
#include "base/wire_fields.h"

#include <string.h>

void agent_log_start(struct conn *conn, const char *host)
{
    struct buf b;
    if (!debug_areas())
        return;
    buf_init(&b);
    wire_put_debug(&b, &(struct wire_debug){debug_areas(), debug_start_ns(), host});
    conn_send_buf(conn, WIRE_DEBUG, WIRE_HOST, 0, &b);
    buf_fini(&b);
}

void agent_log_relay(const struct wire_frame *f)
{
    struct wire_debug_lines debug;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_debug_lines(f, &arena, &debug))
        debug_relay(debug.lines, strlen(debug.lines));
    arena_fini(&arena);
}

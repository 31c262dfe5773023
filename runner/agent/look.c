/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank is doing, for WIRE_LOOK: its process state, and of each group what its record says.
 * Read from the shared page, so it works on a rank that hangs or is dead.
 */
#include "agent/agent.h"
#include "base/reap.h"

void agent_tell_seen(struct agent *a, const struct rank_proc *p)
{
    struct record_group g;
    struct buf groups;
    uint32_t n = 0;
    uint64_t now = now_ns();
    buf_init(&groups);
    for (int i = 0; p->record && i < RECORD_GROUPS; i++) {
        if (!record_read(&p->record->groups[i], &g))
            continue;
        n++;
        buf_put_str(&groups, g.name);
        buf_put_u64(&groups, g.started);
        buf_put_u64(&groups, g.done);
        buf_put_u64(&groups, g.bytes);
        buf_put_u64(&groups, g.since_ns && g.since_ns < now ? now - g.since_ns : 0);
        buf_put_u64(&groups, g.count);
        buf_put_u32(&groups, (uint32_t)g.root_or_peer);
        buf_put_u8(&groups, g.kind);
        buf_put_u8(&groups, g.dtype);
        buf_put_u8(&groups, g.op);
    }
    pid_t parent;
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, p->exited ? 0 : (uint8_t)reap_look(p->pid, &parent));
    buf_put_u32(&b, n);
    buf_put(&b, groups.data, groups.len);
    conn_send(&a->runner, WIRE_SEEN, p->rank, a->desc.attempt, b.data, b.len);
    buf_fini(&b);
    buf_fini(&groups);
}

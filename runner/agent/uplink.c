/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/uplink.h"

#include "agent/address.h"
#include "agent/agent.h"
#include "base/topology.h"

#include "base/wire_fields.h"
#include "build_id.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

void uplink_send_hello(struct agent *a)
{
    struct buf b;
    char host[65] = "", ports[512], machine[160];
    struct timespec now;
    gethostname(host, sizeof host - 1);
    buf_init(&b);
    buf_put_str(&b, WIRE_MAGIC);
    buf_put_u32(&b, WIRE_VERSION);
    buf_put_str(&b, COLLRUN_BUILD_ID);
    buf_put_str(&b, host);
    buf_put_u32(&b, (uint32_t)getpid());
    buf_put_u32(&b, cpus_usable(0));
    machine_name("/proc/sys/kernel/random/boot_id", "/sys/class/net", machine, sizeof machine);
    buf_put_str(&b, machine);
    clock_gettime(CLOCK_REALTIME, &now);
    buf_put_u64(&b, (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec);
    rdma_ports(ports, sizeof ports);
    buf_put_str(&b, ports);
    conn_send_buf(&a->runner, WIRE_HELLO, WIRE_HOST, 0, &b);
    buf_fini(&b);
}

void uplink_send_heartbeat(struct agent *a)
{
    struct buf b;
    buf_init(&b);
    wire_put_heartbeat(&b, &(struct wire_heartbeat){a->keepalive_ns, a->keepalive_at_ns, now_ns()});
    conn_send_buf(&a->runner, WIRE_HEARTBEAT, WIRE_HOST, a->desc.attempt, &b);
    buf_fini(&b);
}

void uplink_send_error(struct agent *a, const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    wire_put_diag(&b, d);
    conn_send_buf(&a->runner, WIRE_HOST_ERROR, WIRE_HOST, a->desc.attempt, &b);
    buf_fini(&b);
}

void uplink_send_output(struct rank_pipe *p, const void *bytes, size_t len)
{
    struct agent *a = p->proc->agent;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    a->credit -= len < a->credit ? len : a->credit;
    if (!conn_is_open(&a->runner))
        return;
    struct buf *out = conn_out(&a->runner);
    size_t mark = wire_begin(out, WIRE_OUTPUT, p->proc->rank, a->desc.attempt);
    buf_put_u8(out, p->stream);
    buf_put_u64(out, (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec);
    buf_put(out, bytes, len);
    wire_end(out, mark);
    conn_flush(&a->runner);
}

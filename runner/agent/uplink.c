/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/uplink.h"

#include "agent/address.h"
#include "agent/agent.h"
#include "base/debug.h"
#include "base/topology.h"
#include "base/wire_fields.h"
#include "build_id.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
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
    machine_name("/proc/sys/kernel/random/boot_id", "/sys/class/net", machine, sizeof machine);
    rdma_ports(ports, sizeof ports);
    clock_gettime(CLOCK_REALTIME, &now);
    wire_put_hello(&b, &(struct wire_hello){.magic = WIRE_MAGIC,
                                            .version = WIRE_VERSION,
                                            .build = COLLRUN_BUILD_ID,
                                            .host = host,
                                            .pid = (uint32_t)getpid(),
                                            .cpus = cpus_usable(0),
                                            .machine = machine,
                                            .realtime_ns = (uint64_t)now.tv_sec * SECOND_NS +
                                                           (uint64_t)now.tv_nsec,
                                            .rdma = ports});
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
    wire_put_host_error(&b, &(struct wire_host_error){*d});
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
    conn_end(&a->runner, mark);
    conn_flush(&a->runner);
}

/* ---- the log ---- */

void uplink_send_debug(struct agent *a)
{
    char lines[4096];
    ssize_t n;
    while (a->debug.fd >= 0 && (n = read(a->debug.fd, lines, sizeof lines - 1)) > 0) {
        struct buf b;
        lines[n] = '\0';
        buf_init(&b);
        wire_put_debug_lines(&b, &(struct wire_debug_lines){lines});
        conn_send_buf(&a->runner, WIRE_DEBUG_LINES, WIRE_HOST, a->desc.attempt, &b);
        buf_fini(&b);
    }
}

static void uplink_on_debug(struct loop_fd *w, uint32_t events)
{
    (void)events;
    uplink_send_debug(w->owner);
}

void uplink_open_debug(struct agent *a, const struct wire_frame *f)
{
    struct wire_debug debug;
    char who[80];
    int fds[2];
    if (a->debug.owner || !wire_read_debug(f, &a->arena, &debug) || !debug.areas ||
        pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    a->debug = (struct loop_fd){.fd = -1, .ready = uplink_on_debug, .owner = a};
    loop_watch(a->loop, &a->debug, fds[0], EPOLLIN);
    debug_set_output(fds[1], -1);
    snprintf(who, sizeof who, "agent %s", debug.host);
    debug_start(debug.areas, debug.start_ns, who);
    debug_log(DEBUG_STAGE, "collrun-agent runs as pid %d, build %s", (int)getpid(),
              COLLRUN_BUILD_ID);
}

void uplink_close_debug(struct agent *a)
{
    if (!a->debug.owner)
        return;
    debug_set_output(STDERR_FILENO, -1);
    loop_unwatch(a->loop, &a->debug);
}

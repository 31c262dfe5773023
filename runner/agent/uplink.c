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
    wire_put_output(out, &(struct wire_output){p->stream,
                                               (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec,
                                               {bytes, len}});
    conn_end(&a->runner, mark);
    conn_flush(&a->runner);
}

/* ---- the log ---- */

/* Sends what has arrived up to the end of a line. */
static void uplink_send_lines(struct agent *a)
{
    struct buf b;
    const char *end = memrchr(a->debug_lines, '\n', a->debug_len);
    const size_t len = end ? (size_t)(end - a->debug_lines) + 1 : 0;
    char lines[sizeof a->debug_lines + 1];
    if (!len)
        return;
    memcpy(lines, a->debug_lines, len);
    lines[len] = '\0';
    buf_init(&b);
    wire_put_debug_lines(&b, &(struct wire_debug_lines){lines});
    conn_send_buf(&a->runner, WIRE_DEBUG_LINES, WIRE_HOST, a->desc.attempt, &b);
    buf_fini(&b);
    a->debug_len -= len;
    memmove(a->debug_lines, a->debug_lines + len, a->debug_len);
}

void uplink_send_debug(struct agent *a)
{
    ssize_t n;
    while (a->debug.fd >= 0 && (n = read(a->debug.fd, a->debug_lines + a->debug_len,
                                         sizeof a->debug_lines - a->debug_len)) > 0) {
        a->debug_len += (size_t)n;
        uplink_send_lines(a);
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

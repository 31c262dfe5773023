/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/examine.h"

#include "agent/address.h"
#include "agent/engine_query.h"
#include "agent/placement.h"
#include "agent/program.h"
#include "base/loop.h"
#include "base/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROBE_MS = 2000 };

/* ---- network ---- */

/* Listens until the agent exits. No connection is accepted; the kernel completes the handshakes. */
static uint16_t examine_listen(const char *address, struct diag *d)
{
    struct sockaddr_storage where;
    socklen_t len = tcp_address(address, 0, &where);
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&where, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (void *)&where, &len) < 0) {
        diag_sys(d, errno, "cannot listen at %s", address);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    return ntohs(where.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&where)->sin_port
                                            : ((struct sockaddr_in6 *)(void *)&where)->sin6_port);
}

/* 0, or the errno of a connection attempt. */
static int examine_connect(const char *address, uint16_t port)
{
    struct sockaddr_storage where;
    socklen_t len = tcp_address(address, port, &where);
    int fd, err;
    if (!len)
        return EAFNOSUPPORT;
    err = tcp_connect((void *)&where, len, now_ns() + PROBE_MS * 1000000ull, -1, &fd);
    if (!err)
        close(fd);
    return err;
}

/* ---- the two questions ---- */

/* The devices of each kind of memory that the frame lists. */
static void examine_put_devices(struct agent *a, struct reader *r, const char *engine,
                                struct buf *out)
{
    struct arena *arena = &a->arena;
    uint32_t n = read_count(r, 12);
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *backend = read_str(r, arena), *mask = read_str(r, arena),
                   *title = read_str(r, arena);
        struct devices pool = {.reason = ""};
        struct diag d;
        placement_pool(a, engine, backend, mask, &pool, &d);
        const char *text = devices_text(&pool, title, arena);
        buf_put_u32(out, pool.n);
        buf_put_str(out, text ? text : "");
    }
}

/* The description of each plugin that the frame lists. */
static void examine_put_plugins(struct agent *a, struct reader *r, const char *engine,
                                struct buf *out)
{
    struct buf answer;
    buf_init(&answer);
    uint32_t n = read_count(r, 4);
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        buf_clear(&answer);
        engine_query(a, engine, "--describe", read_str(r, &a->arena), &answer);
        buf_put_u32(out, (uint32_t)buf_pending(&answer)); /* a blob */
        buf_put_buf(out, &answer);
    }
    buf_fini(&answer);
}

/* The working directory, and the program. */
static int examine_command(const char *program, const char *path, const char *folder,
                           struct diag *d)
{
    int fd = *folder ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0)
        close(fd);
    if (*folder && (fd < 0 || access(folder, X_OK) < 0))
        return diag_sys(d, errno, "working directory %s", folder);
    return *program ? program_check(program, path, d) : COLLRUN_OK;
}

static void examine_put_commands(struct reader *r, struct arena *arena, struct buf *out)
{
    uint32_t n = read_count(r, 12);
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *program = read_str(r, arena), *path = read_str(r, arena),
                   *folder = read_str(r, arena);
        struct diag d;
        diag_init(&d);
        buf_put_str(out, examine_command(program, path, folder, &d) == COLLRUN_OK ? "" : d.text);
    }
}

void examine_host(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    struct diag d;
    struct buf b;
    char address[64] = "", interface[64] = "", engine[4096];
    uint16_t port = 0;
    diag_init(&d);
    arena_init(&arena);
    buf_init(&b);
    reader_init(&r, f->payload, f->len);
    const char *wanted = read_str(&r, &arena);
    bool one_machine = read_u8(&r);
    if (address_resolve(wanted, address, sizeof address, interface, sizeof interface, &d) ==
            COLLRUN_OK &&
        address_check(address, interface, one_machine, &d) == COLLRUN_OK)
        port = examine_listen(address, &d);
    buf_put_str(&b, address);
    buf_put_str(&b, interface);
    buf_put_u16(&b, port);
    wire_put_diag(&b, &d);
    if (engine_path("", engine, sizeof engine, &d) != COLLRUN_OK)
        engine[0] = '\0'; /* no query can be started */
    examine_put_devices(a, &r, engine, &b);
    examine_put_plugins(a, &r, engine, &b);
    examine_put_commands(&r, &arena, &b);
    conn_send_buf(&a->runner, WIRE_EXAMINED, WIRE_HOST, 0, &b);
    buf_fini(&b);
    arena_fini(&arena);
}

void examine_probe(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    struct buf b;
    arena_init(&arena);
    buf_init(&b);
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, 6);
    buf_put_u32(&b, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *address = read_str(&r, &arena);
        uint16_t port = read_u16(&r);
        int err = port ? examine_connect(address, port) : 0;
        buf_put_str(&b, err ? strerror(err) : "");
    }
    conn_send_buf(&a->runner, WIRE_PROBED, WIRE_HOST, 0, &b);
    buf_fini(&b);
    arena_fini(&arena);
}

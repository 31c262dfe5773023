/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/master.h"

#include "base/desc.h"
#include "base/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket that is bound to the port; negative: errno. Port 0: any. */
static int master_bind(const char *address, uint16_t port)
{
    struct sockaddr_storage at;
    socklen_t len = tcp_address(address, port, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (at.ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)&at)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)(void *)&at)->sin6_addr = in6addr_any;
    if (bind(fd, (struct sockaddr *)&at, len) == 0)
        return fd;
    int err = errno;
    close(fd);
    return -err;
}

static uint16_t master_port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof at;
    memset(&at, 0, sizeof at);
    if (getsockname(fd, &at.any, &len) < 0)
        return 0;
    return ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
}

int master_reserve(struct master *m, const struct desc *desc, const char *address, struct diag *d)
{
    int fd = -EADDRINUSE;
    for (uint32_t port = desc->last_port; fd == -EADDRINUSE && port >= desc->first_port; port--) {
        fd = master_bind(address, (uint16_t)port);
        if (!port)
            break;
    }
    if (fd < 0)
        return diag_sys(d, -fd, "cannot reserve a port for MASTER_PORT");
    *m = (struct master){.address = address, .port = master_port_of(fd), .fd = fd};
    return COLLRUN_OK;
}

void master_release(struct master *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/master.h"

#include "base/desc.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MASTER_PORTS_MIN = 256, MASTER_PORT_FIRST = 10000, MASTER_PORT_LAST = 65535 };

/* A socket that is bound to the port on all addresses; negative: errno. Port 0: any. */
static int master_bind(int family, int type, uint16_t port, bool reuse)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    memset(&at, 0, sizeof at);
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){reuse}, sizeof(int));
    at.any.sa_family = (sa_family_t)family;
    if (family == AF_INET)
        at.v4.sin_port = htons(port);
    else
        at.v6.sin6_port = htons(port);
    if (bind(fd, &at.any, family == AF_INET ? sizeof at.v4 : sizeof at.v6) == 0)
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

/* Whether a server may bind the port at once. */
static bool master_is_free(int family, uint16_t port)
{
    const int fd = master_bind(family, SOCK_STREAM, port, false);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Ports outside of those that the kernel chooses from: above them, else below. */
static bool master_quiet_ports(uint32_t *first, uint32_t *last)
{
    unsigned low = 1, high = MASTER_PORT_LAST;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    const bool known = f && fscanf(f, "%u %u", &low, &high) == 2 && high <= MASTER_PORT_LAST;
    if (f)
        fclose(f);
    *first = high + 1;
    *last = MASTER_PORT_LAST;
    if (known && *first + MASTER_PORTS_MIN > *last) {
        *first = MASTER_PORT_FIRST;
        *last = low - 1;
    }
    return known && *first + MASTER_PORTS_MIN <= *last;
}

/* Agents that start at the same time begin at different ports. Negative: there is none. */
static int master_hold_number(int family, uint16_t *port)
{
    uint32_t first, last;
    if (!master_quiet_ports(&first, &last))
        return -EADDRINUSE;
    const uint32_t n = last - first + 1, begin = (uint32_t)getpid() * 31u % n;
    for (uint32_t i = 0; i < n; i++) {
        *port = (uint16_t)(first + (begin + i) % n);
        const int fd = master_bind(family, SOCK_DGRAM, *port, false);
        if (fd >= 0 && master_is_free(family, *port))
            return fd;
        if (fd >= 0)
            close(fd);
        else if (fd != -EADDRINUSE)
            return fd;
    }
    return -EADDRINUSE;
}

int master_reserve(struct master *m, const struct desc *desc, const char *address, struct diag *d)
{
    const int family = strchr(address, ':') ? AF_INET6 : AF_INET;
    uint16_t number = 0;
    int fd = desc->last_port ? -EADDRINUSE : master_hold_number(family, &number);
    if (fd >= 0) {
        *m = (struct master){.address = address, .port = number, .fd = fd};
        return COLLRUN_OK;
    }
    fd = -EADDRINUSE;
    for (uint32_t port = desc->last_port; fd == -EADDRINUSE && port >= desc->first_port; port--) {
        fd = master_bind(family, SOCK_STREAM, (uint16_t)port, true);
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

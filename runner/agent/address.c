/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/address.h"

#include "base/desc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct cidr {
    int family;
    unsigned char bytes[16];
    unsigned bits;
};

/* "10.2.0.0/16", "fd00::/8". False: not a CIDR, hence the name of an interface. */
static bool address_parse_cidr(const char *s, struct cidr *c)
{
    char address[INET6_ADDRSTRLEN], *end;
    const char *slash = strchr(s, '/');
    if (!slash || (size_t)(slash - s) >= sizeof address)
        return false;
    memcpy(address, s, (size_t)(slash - s));
    address[slash - s] = '\0';
    c->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end || end == slash + 1 || bits > (c->family == AF_INET ? 32u : 128u))
        return false;
    c->bits = (unsigned)bits;
    return inet_pton(c->family, address, c->bytes) == 1;
}

static const unsigned char *address_bytes(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (const unsigned char *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
    return (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
}

static bool address_in_cidr(const struct cidr *c, const struct sockaddr *a)
{
    if (a->sa_family != c->family)
        return false;
    const unsigned char *bytes = address_bytes(a);
    for (unsigned i = 0; i < c->bits; i++) {
        unsigned char bit = (unsigned char)(0x80u >> (i % 8));
        if ((bytes[i / 8] & bit) != (c->bytes[i / 8] & bit))
            return false;
    }
    return true;
}

/* The interface of the default route, "" without one. */
static void address_default_route(char *name, size_t size)
{
    char line[512], device[IFNAMSIZ];
    unsigned long destination, gateway, flags, refs, use, metric, mask, best = ~0ul;
    name[0] = '\0';
    FILE *f = fopen("/proc/net/route", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%15s %lx %lx %lx %lu %lu %lu %lx", device, &destination, &gateway, &flags,
                   &refs, &use, &metric, &mask) == 8 &&
            destination == 0 && mask == 0 && metric < best) {
            best = metric;
            snprintf(name, size, "%s", device);
        }
    }
    if (f)
        fclose(f);
    f = name[0] ? NULL : fopen("/proc/net/ipv6_route", "re");
    while (f && fgets(line, sizeof line, f)) {
        char to[33];
        unsigned len;
        if (sscanf(line, "%32s %x %*s %*x %*s %lx %*x %*x %*x %15s", to, &len, &metric, device) ==
                4 &&
            len == 0 && strcmp(device, "lo") != 0 && metric < best) {
            best = metric;
            snprintf(name, size, "%s", device);
        }
    }
    if (f)
        fclose(f);
}

/* IPv4 before IPv6. A link-local IPv6 address is skipped: it is ambiguous without its zone. */
static const struct ifaddrs *address_pick(const struct ifaddrs *all, const char *name,
                                          const struct cidr *cidr)
{
    const struct ifaddrs *best = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
            continue;
        int family = i->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6)
            continue;
        if (cidr ? !address_in_cidr(cidr, i->ifa_addr) : strcmp(i->ifa_name, name) != 0)
            continue;
        const unsigned char *bytes = address_bytes(i->ifa_addr);
        if (family == AF_INET6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80)
            continue;
        if (!best || (best->ifa_addr->sa_family == AF_INET6 && family == AF_INET))
            best = i;
    }
    return best;
}

/* An interface that has no address, as it is down, is listed without an address of a family. */
static bool address_is_down(const struct ifaddrs *all, const char *name)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (strcmp(i->ifa_name, name) == 0 && !(i->ifa_flags & IFF_UP))
            return true;
    return false;
}

static int address_not_found(const struct ifaddrs *all, const char *wanted, const char *name,
                             struct diag *d)
{
    char known[256] = "";
    if (address_is_down(all, name)) {
        diag_set(d, COLLRUN_ERR_NOT_FOUND, "network.interface: %s is down", name);
        return diag_hint(d, "ip link set %s up", name);
    }
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        size_t len = strlen(known);
        if (!i->ifa_addr ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        inet_ntop(i->ifa_addr->sa_family, address_bytes(i->ifa_addr), address, sizeof address);
        snprintf(known + len, sizeof known - len, "%s%s %s", len ? ", " : "", i->ifa_name, address);
    }
    diag_set(d, COLLRUN_ERR_NOT_FOUND,
             "network.interface: no interface of this host matches \"%s\"", wanted);
    return diag_hint(
        d, known[0] ? "interfaces of this host: %s" : "no interface of this host is up%s", known);
}

int address_check(const char *address, const char *interface, bool one_machine, struct diag *d)
{
    if (one_machine || (strncmp(address, "127.", 4) != 0 && strcmp(address, "::1") != 0))
        return COLLRUN_OK;
    diag_set(d, COLLRUN_ERR_INVALID,
             "network.interface: %s is a loopback interface (%s), which no other host can reach",
             interface, address);
    return diag_hint(d,
                     "name another interface or a CIDR; if the host's own name resolves to such an "
                     "address, see its /etc/hosts");
}

int address_resolve(const char *wanted, char *address, size_t address_size, char *interface,
                    size_t interface_size, struct diag *d)
{
    struct cidr cidr;
    char name[IFNAMSIZ];
    snprintf(name, sizeof name, "%s", wanted);
    if (strcmp(wanted, "loopback") == 0)
        snprintf(name, sizeof name, "lo");
    if (strcmp(wanted, "default-route") == 0)
        address_default_route(name, sizeof name);
    if (!name[0]) {
        diag_set(d, COLLRUN_ERR_NOT_FOUND, "network.interface: this host has no default route");
        return diag_hint(d, "name an interface or a CIDR in network.interface");
    }
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0)
        return diag_sys(d, errno, "cannot list the network interfaces");
    /* Ranks of one host that share memory alone need no network. Where a backend needs lo, it says
     * that it cannot bind this address. */
    if (strcmp(wanted, "loopback") == 0 && address_is_down(all, "lo")) {
        snprintf(address, address_size, "127.0.0.1");
        snprintf(interface, interface_size, "lo");
        freeifaddrs(all);
        return COLLRUN_OK;
    }
    const struct ifaddrs *found =
        address_pick(all, name, address_parse_cidr(wanted, &cidr) ? &cidr : NULL);
    int rc = COLLRUN_OK;
    if (!found)
        rc = address_not_found(all, wanted, name, d);
    else if (!inet_ntop(found->ifa_addr->sa_family, address_bytes(found->ifa_addr), address,
                        (socklen_t)address_size))
        rc = diag_sys(d, errno, "cannot format the address of %s", found->ifa_name);
    else
        snprintf(interface, interface_size, "%s", found->ifa_name);
    freeifaddrs(all);
    return rc;
}

/* ---- what tells machines apart ---- */

static bool machine_read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    bool got = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    line[got ? strcspn(line, "\n") : 0] = '\0';
    return got;
}

/* FNV-1a of each card's address, added up, since the order of a folder may differ. Interfaces
 * without a device (bridges, tunnels, containers) come and go. */
static uint64_t machine_hash_cards(const char *net)
{
    char path[512], address[64];
    uint64_t sum = 0;
    DIR *folder = opendir(net);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s/device", net, e->d_name);
        if (e->d_name[0] == '.' || access(path, F_OK) < 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/address", net, e->d_name);
        uint64_t hash = 0xcbf29ce484222325u;
        if (!machine_read_line(path, address, sizeof address))
            continue;
        for (const char *p = address; *p; p++)
            hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
        sum += hash;
    }
    if (folder)
        closedir(folder);
    return sum;
}

void machine_name(const char *boot_id, const char *net, char *out, size_t size)
{
    char boot[64];
    struct stat ns;
    out[0] = '\0';
    if (!machine_read_line(boot_id, boot, sizeof boot) || stat("/proc/self/ns/net", &ns) < 0)
        return;
    snprintf(out, size, "%s/%ju/%016" PRIx64, boot, (uintmax_t)ns.st_ino, machine_hash_cards(net));
}

/* ---- RDMA devices ---- */

#define RDMA_ROOT "/sys/class/infiniband/"

static bool rdma_is_active(const char *file)
{
    char state[64] = "";
    FILE *f = fopen(file, "re");
    const bool read = f && fgets(state, sizeof state, f);
    if (f)
        fclose(f);
    return read && strstr(state, "ACTIVE");
}

/* In another process: UCX starts threads and handlers when it is loaded. */
static bool rdma_has_ucx(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        setenv("UCX_LOG_LEVEL", "fatal", 1);
        setenv("UCX_HANDLE_ERRORS", "none", 1);
        _exit(dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL) ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void rdma_ports(char *out, size_t size)
{
    glob_t files;
    size_t used = 0;
    out[0] = '\0';
    if (glob(RDMA_ROOT "*/ports/*/state", 0, NULL, &files) != 0)
        return;
    for (size_t i = 0; i < files.gl_pathc && used < size; i++) {
        char device[64], port[16];
        if (sscanf(files.gl_pathv[i], RDMA_ROOT "%63[^/]/ports/%15[^/]/", device, port) == 2 &&
            rdma_is_active(files.gl_pathv[i]))
            used += (size_t)snprintf(out + used, size - used, "%s%s:%s", used ? ", " : "", device,
                                     port);
    }
    globfree(&files);
    if (used && !rdma_has_ucx())
        out[0] = '\0';
}

/* ---- master ---- */

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

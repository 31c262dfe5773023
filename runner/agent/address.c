/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

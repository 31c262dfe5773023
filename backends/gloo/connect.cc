/* SPDX-License-Identifier: Apache-2.0
 *
 * How the members of a group meet. Every rank listens on one port per peer (Gloo gives each pair
 * its own socket, all on the same address), so what a rank publishes is one small blob: its address
 * once, then a port for every peer. Gloo decides by comparing addresses who connects; those
 * connections are made first, since they only need the peer's listening socket and I/O thread. Then
 * a fence: it ends early when the job fails, and after it every connection to this rank is there,
 * so that the second half does not wait.
 */
#include "mesh.h"

#include <gloo/transport/tcp/address.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/resource.h>

namespace collrun_gloo
{

/* Gloo waits five times as long for a connection. */
static constexpr auto connect_patience = std::chrono::seconds(4);

/* What Gloo takes for an address: struct sockaddr_storage and a sequence number that stays -1. */
struct gloo_address {
    sockaddr_storage socket;
    ssize_t sequence;
};

/* What a rank publishes. */
struct mesh::addresses {
    uint16_t family;
    uint16_t busy; /* members on its host outnumber their cores */
    uint32_t scope;
    char ip[16];
    std::vector<uint16_t> ports; /* network order; by group rank */

    static constexpr size_t head = 2 * sizeof(uint16_t) + sizeof(uint32_t) + 16;

    void set(size_t peer, const sockaddr_storage &s);
    std::string pack() const;
    static addresses unpack(const std::string &blob, size_t nranks);
    gloo_address of(size_t peer, uint32_t own_scope) const;
};

void mesh::addresses::set(size_t peer, const sockaddr_storage &s)
{
    family = s.ss_family;
    if (family == AF_INET) {
        sockaddr_in in;
        std::memcpy(&in, &s, sizeof(in));
        std::memcpy(ip, &in.sin_addr, sizeof(in.sin_addr));
        ports[peer] = in.sin_port;
        return;
    }
    sockaddr_in6 in6;
    std::memcpy(&in6, &s, sizeof(in6));
    std::memcpy(ip, &in6.sin6_addr, sizeof(in6.sin6_addr));
    scope = in6.sin6_scope_id;
    ports[peer] = in6.sin6_port;
}

std::string mesh::addresses::pack() const
{
    std::string blob;
    blob.append(reinterpret_cast<const char *>(&family), sizeof(family));
    blob.append(reinterpret_cast<const char *>(&busy), sizeof(busy));
    blob.append(reinterpret_cast<const char *>(&scope), sizeof(scope));
    blob.append(ip, sizeof(ip));
    blob.append(reinterpret_cast<const char *>(ports.data()), ports.size() * sizeof(ports[0]));
    return blob;
}

mesh::addresses mesh::addresses::unpack(const std::string &blob, size_t nranks)
{
    addresses a = {};
    if (blob.size() != head + nranks * sizeof(uint16_t))
        throw failure{COLLRUN_ERR_BACKEND, no_peer, "a member published a malformed address"};
    const char *at = blob.data();
    std::memcpy(&a.family, at, sizeof(a.family));
    std::memcpy(&a.busy, at += sizeof(a.family), sizeof(a.busy));
    std::memcpy(&a.scope, at += sizeof(a.busy), sizeof(a.scope));
    std::memcpy(a.ip, at + sizeof(a.scope), sizeof(a.ip));
    a.ports.resize(nranks);
    std::memcpy(a.ports.data(), blob.data() + head, nranks * sizeof(uint16_t));
    return a;
}

/* A link-local address is reached through this host's interface, whose number is this host's own.
 */
gloo_address mesh::addresses::of(size_t peer, uint32_t own_scope) const
{
    gloo_address a = {};
    a.sequence = -1;
    if (family == AF_INET) {
        sockaddr_in in = {};
        in.sin_family = AF_INET;
        in.sin_port = ports[peer];
        std::memcpy(&in.sin_addr, ip, sizeof(in.sin_addr));
        std::memcpy(&a.socket, &in, sizeof(in));
        return a;
    }
    sockaddr_in6 in6 = {};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = ports[peer];
    in6.sin6_scope_id = scope != 0 ? own_scope : 0;
    std::memcpy(&in6.sin6_addr, ip, sizeof(in6.sin6_addr));
    std::memcpy(&a.socket, &in6, sizeof(in6));
    return a;
}

static gloo_address address_of(const gloo::transport::Pair &pair)
{
    const auto bytes = pair.address().bytes();
    gloo_address a;
    if (bytes.size() != sizeof(a))
        throw failure{COLLRUN_ERR_BACKEND, no_peer,
                      "this Gloo library has another form of addresses than the backend was built "
                      "for"};
    std::memcpy(&a, bytes.data(), sizeof(a));
    return a;
}

/* Gloo's words, and a hint where the cause is the usual one. */
static std::string explain(const char *what, int size)
{
    struct rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::string text = format("Gloo: %s", what);
    if (std::strstr(what, "Too many open files"))
        text += format("; a group of %d needs %d descriptors, the limit is %llu (ulimit -n)", size,
                       size - 1, static_cast<unsigned long long>(limit.rlim_cur));
    return text;
}

/* The services have the sentence of a failed rendezvous call already. */
static void check(int status)
{
    if (status != COLLRUN_OK)
        throw failure{status, no_peer, ""};
}

void mesh::sort_by_host(const collrun_group_desc &desc)
{
    for (int i = 0; i < size; i++)
        order_.push_back(i);
    const uint32_t *host = desc.host_of;
    if (host) /* hosts in the order in which the group first names them */
        std::stable_sort(order_.begin(), order_.end(), [host, this](int a, int b) {
            const auto first = [host, this](int r) {
                return std::find(host, host + size, host[r]) - host;
            };
            return first(a) < first(b);
        });
    place_.resize(order_.size());
    for (int i = 0; i < size; i++)
        place_[static_cast<size_t>(order_[static_cast<size_t>(i)])] = i;
    int hosts = 1;
    for (int i = 1; host && i < size; i++)
        hosts += host[order_[static_cast<size_t>(i)]] != host[order_[static_cast<size_t>(i) - 1]];
    crowded_ = hosts > 1 && hosts < size;
}

mesh::mesh(devices &devices, watch &watch, const collrun_group_desc &desc)
    : rank(static_cast<int>(desc.rank)), size(static_cast<int>(desc.nranks)),
      name(desc.name ? desc.name : ""), services(desc.services), watch_(watch),
      sent_to_(desc.nranks)
{
    for (int i = 0; i < size; i++)
        world_rank_.push_back(desc.world_rank ? desc.world_rank[i] : static_cast<uint32_t>(i));
    sort_by_host(desc);
    if (size == 1)
        return;
    try {
        device_ = devices.get(desc.address, desc.interface);
        connect(desc);
        watch_.add(this);
    } catch (const std::exception &e) {
        close();
        throw failure{COLLRUN_ERR_BACKEND, no_peer, explain(e.what(), size)};
    } catch (const failure &) {
        close();
        throw;
    }
}

void mesh::connect_peer(int peer, const std::vector<char> &address)
{
    try {
        context_->getPair(peer)->connect(address);
    } catch (const std::exception &e) {
        throw failure{
            COLLRUN_ERR_BACKEND, peer,
            format("connect to %s: %s", name_of(peer).c_str(), explain(e.what(), size).c_str())};
    }
}

/* Gloo lets the larger address connect to the smaller one. Here this only decides the order. */
static bool connects(const gloo_address &self, const gloo_address &peer)
{
    if (self.socket.ss_family == AF_INET) {
        sockaddr_in a, b;
        std::memcpy(&a, &self.socket, sizeof(a));
        std::memcpy(&b, &peer.socket, sizeof(b));
        const int d = std::memcmp(&a.sin_addr, &b.sin_addr, sizeof(a.sin_addr));
        return d != 0 ? d > 0 : a.sin_port > b.sin_port;
    }
    sockaddr_in6 a, b;
    std::memcpy(&a, &self.socket, sizeof(a));
    std::memcpy(&b, &peer.socket, sizeof(b));
    const int d = std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr));
    return d != 0 ? d > 0 : a.sin6_port > b.sin6_port;
}

static std::string fetch(const collrun_rendezvous &r, const std::string &key, size_t capacity)
{
    std::string blob(capacity, '\0');
    size_t len = 0;
    check(r.get(r.ctx, key.c_str(), &blob[0], blob.size(), &len));
    blob.resize(std::min(len, blob.size()));
    return blob;
}

void mesh::connect(const collrun_group_desc &desc)
{
    const auto &meet = *desc.rendezvous;
    const auto n = static_cast<size_t>(size), self = static_cast<size_t>(rank);
    context_ = make_context(device_, rank, size);
    context_->setTimeout(connect_patience);
    std::vector<gloo_address> own(n), theirs(n);
    addresses mine = {};
    mine.busy = desc.ncpus > 0 && desc.nlocal > desc.ncpus;
    mine.ports.resize(n);
    busy_ = mine.busy;
    for (size_t i = 0; i < n; i++) {
        if (i == self)
            continue;
        own[i] = address_of(*context_->createPair(static_cast<int>(i)));
        mine.set(i, own[i].socket);
    }
    const std::string blob = mine.pack();
    check(meet.put(meet.ctx, format("gloo/%d", rank).c_str(), blob.data(), blob.size()));
    check(meet.fence(meet.ctx));
    for (size_t i = 0; i < n; i++) {
        if (i == self)
            continue;
        const auto a = addresses::unpack(fetch(meet, format("gloo/%zu", i), blob.size() + 1), n);
        busy_ = busy_ || a.busy;
        if (a.family != mine.family)
            throw failure{COLLRUN_ERR_BACKEND, static_cast<int>(i),
                          format("%s has an IPv%c address, this rank an IPv%c one",
                                 name_of(static_cast<int>(i)).c_str(),
                                 a.family == AF_INET ? '4' : '6',
                                 mine.family == AF_INET ? '4' : '6')};
        theirs[i] = a.of(self, mine.scope);
    }
    for (const bool first : {true, false}) {
        const auto fast = first ? quicken() : nullptr; /* who connects closes a listening socket */
        for (size_t i = 0; i < n; i++) {
            if (i == self || connects(own[i], theirs[i]) != first)
                continue;
            const char *bytes = reinterpret_cast<const char *>(&theirs[i]);
            connect_peer(static_cast<int>(i), {bytes, bytes + sizeof(theirs[i])});
        }
        /* After the last one nobody is still connecting to a member that is through already and
         * leaves. */
        check(meet.fence(meet.ctx));
    }
}

} // namespace collrun_gloo

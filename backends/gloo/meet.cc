/* SPDX-License-Identifier: Apache-2.0
 *
 * How the members of a group meet. Every rank opens a door and publishes its card; nobody connects
 * before a connection is needed. But whether the hosts reach each other must show when the group
 * forms: of each host, for every other one, a member calls at a door there, all of them at the same
 * time. The fence after it ends early when the job fails, and keeps doors open until everybody has
 * called.
 */
#include "mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

namespace collrun_gloo
{

/* Three attempts of TCP, which come after 0, 1 and 3 s. */
static constexpr uint64_t probe_patience = 5000 * millisecond;
static constexpr int probe_turn_ms = 100;
/* For what Gloo connects by itself: nothing. */
static constexpr auto gloo_patience = std::chrono::seconds(4);

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
      name(desc.name ? desc.name : ""), services(desc.services), watch_(watch), cards_(desc.nranks),
      links_(desc.nranks)
{
    for (int i = 0; i < size; i++)
        world_rank_.push_back(desc.world_rank ? desc.world_rank[i] : static_cast<uint32_t>(i));
    sort_by_host(desc);
    if (size == 1)
        return;
    try {
        device_ = devices.get(desc.address, desc.interface);
        meet(desc);
        watch_.add(this);
    } catch (const std::exception &e) {
        close();
        throw failure{COLLRUN_ERR_BACKEND, no_peer, format("Gloo: %s", e.what())};
    } catch (const failure &) {
        close();
        throw;
    }
}

static std::string fetch(const collrun_rendezvous &r, const std::string &key, size_t capacity)
{
    std::string blob(capacity, '\0');
    size_t len = 0;
    check(r.get(r.ctx, key.c_str(), &blob[0], blob.size(), &len));
    blob.resize(std::min(len, blob.size()));
    return blob;
}

void mesh::exchange_cards(const collrun_rendezvous &r)
{
    card &own = cards_[static_cast<size_t>(rank)];
    const std::string blob = own.pack();
    check(r.put(r.ctx, format("gloo/%d", rank).c_str(), blob.data(), blob.size()));
    check(r.fence(r.ctx));
    for (int i = 0; i < size; i++) {
        if (i == rank)
            continue;
        card &theirs = cards_[static_cast<size_t>(i)];
        theirs = card::unpack(fetch(r, format("gloo/%d", i), blob.size() + 1));
        if (theirs.family != own.family)
            throw failure{COLLRUN_ERR_BACKEND, i,
                          format("%s has an IPv%c address, this rank an IPv%c one",
                                 name_of(i).c_str(), theirs.family == AF_INET ? '4' : '6',
                                 own.family == AF_INET ? '4' : '6')};
        /* A link-local address is reached through this host's interface, whose number is this
         * host's own. */
        if (theirs.scope != 0)
            theirs.scope = own.scope;
        busy_ = busy_ || theirs.busy;
    }
}

void mesh::meet(const collrun_group_desc &desc)
{
    card &own = cards_[static_cast<size_t>(rank)];
    if (getrandom(&own.password, sizeof(own.password), 0) != sizeof(own.password))
        throw failure{COLLRUN_ERR_SYSTEM, no_peer,
                      format("no random bytes: %s", std::strerror(errno))};
    bell_.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell_.fd < 0)
        throw failure{COLLRUN_ERR_SYSTEM, no_peer, format("eventfd: %s", std::strerror(errno))};
    context_ = std::make_shared<own_context>(device_->gloo, rank, size);
    context_->setTimeout(gloo_patience);
    door_.reset(new door(device_, own.password, cards_.size(), *this));
    own.set_address(door_->address());
    own.busy = busy_ = desc.ncpus > 0 && desc.nlocal > desc.ncpus;
    exchange_cards(*desc.rendezvous);
    if (!desc.host_of)
        return;
    probe_hosts(*desc.rendezvous, to_probe(desc.host_of));
    check(desc.rendezvous->fence(desc.rendezvous->ctx));
}

/* ---- do the hosts reach each other? ---- */

/* Members share their host's calls, and are called in turn. */
std::vector<int> mesh::to_probe(const uint32_t *host_of) const
{
    std::vector<std::vector<int>> hosts;
    size_t own = 0, place = 0;
    for (int r : order_) {
        if (hosts.empty() || host_of[hosts.back()[0]] != host_of[r])
            hosts.emplace_back();
        if (r == rank) {
            own = hosts.size() - 1;
            place = hosts.back().size();
        }
        hosts.back().push_back(r);
    }
    std::vector<int> peers;
    for (size_t h = 0; h < hosts.size(); h++)
        if (h != own && h % hosts[own].size() == place)
            peers.push_back(hosts[h][own % hosts[h].size()]);
    return peers;
}

/* Looks up now and then: a card that is here already is got at once, unless the job has failed. */
void mesh::probe_hosts(const collrun_rendezvous &r, const std::vector<int> &peers)
{
    const uint64_t until = now_ns() + probe_patience;
    std::vector<descriptor> calls(peers.size());
    std::vector<pollfd> polled;
    for (size_t i = 0; i < peers.size(); i++) {
        calls[i].fd = dial(peers[i]);
        polled.push_back({calls[i].fd, POLLOUT, 0});
    }
    for (size_t open = peers.size(); open > 0;) {
        poll(polled.data(), polled.size(), probe_turn_ms);
        const bool late = now_ns() >= until;
        for (size_t i = 0; i < polled.size(); i++) {
            if (polled[i].fd < 0 || (polled[i].revents == 0 && !late))
                continue;
            const int error = polled[i].revents ? connect_error(polled[i].fd) : ETIMEDOUT;
            if (error != 0)
                throw unreachable(peers[i], error);
            polled[i].fd = -1;
            open--;
        }
        fetch(r, format("gloo/%d", rank), sizeof(card));
    }
}

} // namespace collrun_gloo

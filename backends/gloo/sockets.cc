/* SPDX-License-Identifier: Apache-2.0
 *
 * How pairs get the connections of others.
 *
 * - Gloo compares a pair's address with that of its peer; the greater one connects. All peers get
 *   the greatest address there is, so that every pair waits for a connection.
 * - Which descriptor a pair has is not part of Gloo's interface. It is the one whose local address
 *   is the pair's; its remote address tells who has connected.
 */
#include "sockets.h"

#if GLOO_API == 2022
#include <gloo/transport/tcp/address.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <map>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace collrun_gloo
{

namespace tcp = gloo::transport::tcp;

sockets::~sockets()
{
    for (const int fd : fds_)
        if (fd >= 0)
            close(fd);
}

/* Its close() resets the connection, which leaves no port in TIME_WAIT. */
static void close_by_reset(int fd)
{
    const struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* ---- addresses ---- */

/* Port and address. */
static std::string bytes_of(const struct sockaddr_storage &address)
{
    const auto *v4 = reinterpret_cast<const struct sockaddr_in *>(&address);
    const auto *v6 = reinterpret_cast<const struct sockaddr_in6 *>(&address);
    if (address.ss_family == AF_INET)
        return std::string(reinterpret_cast<const char *>(&v4->sin_port), sizeof v4->sin_port) +
               std::string(reinterpret_cast<const char *>(&v4->sin_addr), sizeof v4->sin_addr);
    return std::string(reinterpret_cast<const char *>(&v6->sin6_port), sizeof v6->sin6_port) +
           std::string(reinterpret_cast<const char *>(&v6->sin6_addr), sizeof v6->sin6_addr);
}

/* By getsockname or getpeername; empty: it has none. */
static std::string bytes_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_storage address = {};
    socklen_t len = sizeof address;
    const bool known = name(fd, reinterpret_cast<struct sockaddr *>(&address), &len) == 0 &&
                       (address.ss_family == AF_INET || address.ss_family == AF_INET6);
    return known ? bytes_of(address) : "";
}

static std::vector<char> greatest_address(const tcp::Address &like)
{
    struct sockaddr_storage address = like.getSockaddr();
    auto *v4 = reinterpret_cast<struct sockaddr_in *>(&address);
    auto *v6 = reinterpret_cast<struct sockaddr_in6 *>(&address);
    if (address.ss_family == AF_INET)
        std::memset(&v4->sin_addr, 0xff, sizeof v4->sin_addr);
    else
        std::memset(&v6->sin6_addr, 0xff, sizeof v6->sin6_addr);
    return tcp::Address(address).bytes();
}

/* ---- each pair is connected to this process ---- */

/* Gloo stores the addresses of its pairs here, and then asks for those of the other members. (Under
 * "rank_0" and so on it has names of hosts, which only transports of GPUs need.) */
class own_connections final : public gloo::rendezvous::Store
{
  public:
    explicit own_connections(uint32_t peers) : peers_(peers), fds_(0)
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        if (is_host(key) || peers_ == 0)
            return;
        const auto len = static_cast<std::ptrdiff_t>(data.size() / peers_);
        for (auto at = data.begin(); at != data.end(); at += len) {
            const tcp::Address pair(std::vector<char>(at, at + len));
            connect_to(pair.getSockaddr());
            const std::vector<char> far = greatest_address(pair);
            others_.insert(others_.end(), far.begin(), far.end());
        }
    }
    std::vector<char> get(const std::string &key) override
    {
        return is_host(key) ? std::vector<char>() : others_;
    }
    using gloo::rendezvous::Store::wait;
    void wait(const std::vector<std::string> &) override
    {
    }

    std::set<std::string> addresses() const
    {
        std::set<std::string> out;
        for (const int fd : fds_.all())
            out.insert(bytes_of(fd, getsockname));
        return out;
    }

  private:
    static bool is_host(const std::string &key)
    {
        return key.compare(0, 5, "rank_") == 0;
    }
    void connect_to(const struct sockaddr_storage &address)
    {
        const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const socklen_t len =
            address.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        fds_.add(fd);
        if (fd < 0 ||
            (::connect(fd, reinterpret_cast<const struct sockaddr *>(&address), len) != 0 &&
             errno != EINPROGRESS && errno != ECONNREFUSED))
            throw failure{COLLRUN_ERR_SYSTEM, format("cannot connect: %s", std::strerror(errno))};
        close_by_reset(fd);
    }

    const uint32_t peers_;
    sockets fds_;
    std::vector<char> others_;
};

/* ---- and gets that to its peer ---- */

/* The descriptors of this process that have a local address of `pairs`, and whose remote address is
 * in `from`. */
static std::vector<int> find_connections(const std::map<std::string, size_t> &pairs,
                                         const std::set<std::string> &from, size_t n)
{
    std::vector<int> found(n, -1);
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        throw failure{COLLRUN_ERR_SYSTEM, format("/proc/self/fd: %s", std::strerror(errno))};
    while (const struct dirent *entry = readdir(folder)) {
        const int fd = std::atoi(entry->d_name);
        const auto pair = pairs.find(bytes_of(fd, getsockname));
        if (pair != pairs.end() && from.count(bytes_of(fd, getpeername)) > 0)
            found[pair->second] = fd;
    }
    closedir(folder);
    return found;
}

/* False: not all pairs have a connection of this process. */
static bool exchange(abortable_context &context, const device &used_device,
                     const sockets &connected, const std::set<std::string> &from)
{
    const std::vector<int> &sockets_of = connected.all();
    std::map<std::string, size_t> pairs;
    for (size_t i = 0; i < sockets_of.size(); i++) {
        if (sockets_of[i] < 0)
            continue;
        const tcp::Address address(context.getPair(static_cast<int>(i))->address().bytes());
        pairs[bytes_of(address.getSockaddr())] = i;
    }
    const std::vector<int> found = find_connections(pairs, from, sockets_of.size());
    for (const auto &pair : pairs)
        if (found[pair.second] < 0)
            return false;
    for (const auto &pair : pairs) {
        const size_t i = pair.second;
        auto *handler = dynamic_cast<tcp::Handler *>(context.getPair(static_cast<int>(i)).get());
        if (!handler)
            throw failure{COLLRUN_ERR_BACKEND, "this Gloo has another interface"};
        close_by_reset(found[i]);
        used_device.replace(found[i], sockets_of[i], *handler);
    }
    return true;
}

std::shared_ptr<abortable_context> connect_on(gloo::rendezvous::Context &context,
                                              const device &used_device, const sockets &connected,
                                              std::exception_ptr &why)
{
    const size_t peers = connected.all().size() - 1;
    const auto wrapped = std::make_shared<abortable_device>(used_device.gloo());
    const auto own = std::make_shared<own_connections>(static_cast<uint32_t>(peers));
    const device::closing closing(used_device); /* the thread takes pairs out of its loop at once */
    try {
        connect_full_mesh(context, own, wrapped);
        if (peers == 0 || exchange(*wrapped->context(), used_device, connected, own->addresses()))
            return wrapped->context();
        why = std::make_exception_ptr(
            failure{COLLRUN_ERR_BACKEND, "another process connects to the ports of Gloo"});
    } catch (const std::exception &) {
        why = std::current_exception();
    }
    if (wrapped->context())
        wrapped->context()->close();
    return nullptr;
}

} // namespace collrun_gloo
#endif

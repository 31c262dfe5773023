/* SPDX-License-Identifier: Apache-2.0
 *
 * All but making it happens in the I/O thread. When this process may have no more descriptors, the
 * spare one is given up for as long as it takes to say so.
 */
#include "door.h"

#include "common.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>

namespace collrun_gloo
{

door::door(const std::shared_ptr<device> &where, uint64_t password, size_t nranks, resident &inside)
    : device_(where), password_(password), inside_(inside), most_guests_(nranks + 64)
{
    const auto *address = reinterpret_cast<const sockaddr *>(&where->address);
    spare_.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener_.fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (spare_.fd < 0 || listener_.fd < 0 || bind(listener_.fd, address, where->address_len) != 0 ||
        listen(listener_.fd, static_cast<int>(most_guests_)) != 0)
        throw failure{COLLRUN_ERR_SYSTEM, no_peer,
                      format("cannot listen for the other ranks: %s", std::strerror(errno))};
    device_->gloo->registerDescriptor(listener_.fd, EPOLLIN, this);
}

sockaddr_storage door::address() const
{
    sockaddr_storage out = {};
    socklen_t len = sizeof(out);
    getsockname(listener_.fd, reinterpret_cast<sockaddr *>(&out), &len);
    return out;
}

void door::shut() noexcept
{
    if (listener_.fd < 0)
        return;
    device_->gloo->unregisterDescriptor(listener_.fd, this);
    listener_.reset();
    for (guest &g : guests_) {
        if (g.socket.fd >= 0)
            device_->gloo->unregisterDescriptor(g.socket.fd, &g);
        g.socket.reset();
    }
}

/* ---- who comes ---- */

void door::handleEvents(int)
{
    try {
        while (listener_.fd >= 0) {
            const int fd = accept4(listener_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 && (errno == EMFILE || errno == ENFILE))
                turn_away();
            if (fd < 0)
                return;
            welcome(fd);
        }
    } catch (const std::exception &) { /* no memory for a guest, who sees the end of its socket */
    }
}

void door::welcome(int fd)
{
    if (guests_.size() >= most_guests_) {
        close(fd);
        return;
    }
    guests_.emplace_back(*this);
    guests_.back().socket.fd = fd;
    try {
        device_->gloo->registerDescriptor(fd, EPOLLIN, &guests_.back());
    } catch (...) {
        guests_.pop_back();
        throw;
    }
}

void door::turn_away()
{
    const answer reply = {answer::no, errno};
    spare_.reset();
    const int fd = accept4(listener_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        ::send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    spare_.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* ---- what they say ---- */

void door::hear(guest &g)
{
    if (g.socket.fd < 0)
        return; /* the door was shut a moment ago */
    const ssize_t n = recv(g.socket.fd, g.heard + g.len, sizeof(g.heard) - g.len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        g.len += static_cast<size_t>(n);
    if (n > 0 && g.len < sizeof(g.heard))
        return;
    device_->gloo->unregisterDescriptor(g.socket.fd, &g);
    if (n > 0)
        decide(g);
    guests_.remove_if([&g](const guest &other) { return &other == &g; });
}

void door::decide(guest &g)
{
    knock said;
    answer reply = {answer::no, 0};
    std::memcpy(&said, g.heard, sizeof(said));
    if (said.password != password_)
        return;
    if (inside_.admit(g.socket.fd, said.rank, &reply))
        g.socket.fd = -1;
    else
        ::send(g.socket.fd, &reply, sizeof(reply), MSG_NOSIGNAL);
}

} // namespace collrun_gloo

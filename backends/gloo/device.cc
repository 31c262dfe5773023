/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating devices, and keeping their loops awake.
 */
#include "device.h"

#include <gloo/transport/tcp/attr.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace collrun_gloo
{

namespace tcp_ns = gloo::transport::tcp;

/* Gloo looks addresses up, and leaks when that fails. What would fail is refused before. */
static void check_address(const std::string &address)
{
    struct addrinfo hints = {}, *list = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    const int found = getaddrinfo(address.c_str(), nullptr, &hints, &list);
    if (found != 0)
        throw failure{COLLRUN_ERR_INVALID,
                      format("address \"%s\": %s", address.c_str(), gai_strerror(found))};
    const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && bind(fd, list->ai_addr, list->ai_addrlen) == 0;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    if (!bound)
        throw failure{COLLRUN_ERR_SYSTEM,
                      format("address %s: %s", address.c_str(), std::strerror(error))};
}

static std::shared_ptr<gloo::transport::Device> create(const char *address, const char *interface)
{
    tcp_ns::attr attr;
    if (*address)
        attr.hostname = address;
    else if (*interface)
        attr.iface = interface;
    else
        throw failure{COLLRUN_ERR_INVALID, "neither an address nor an interface is given"};
    if (*address)
        check_address(address);
    const quiet_signals quiet;
    return tcp_ns::CreateDevice(attr);
}

device::device(const char *address, const char *interface)
    : fd_(-1), gloo_(create(address, interface))
{
    fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
    if (fd_ < 0)
        throw failure{COLLRUN_ERR_SYSTEM, format("eventfd: %s", std::strerror(errno))};
    tcp().registerDescriptor(fd_, EPOLLIN, this);
}

device::~device()
{
    tcp().unregisterDescriptor(fd_, this);
    close(fd_);
}

gloo::transport::tcp::Device &device::tcp() const
{
    return static_cast<tcp_ns::Device &>(*gloo_);
}

void device::replace(int fd, int socket, tcp_ns::Handler &handler) const
{
    tcp().unregisterDescriptor(fd, &handler);
    if (dup3(socket, fd, O_CLOEXEC) < 0)
        throw failure{COLLRUN_ERR_SYSTEM, format("dup3: %s", std::strerror(errno))};
    tcp().registerDescriptor(fd, EPOLLIN, &handler);
}

device::closing::closing(const device &d) : fd_(d.fd_)
{
    eventfd_write(fd_, 1);
}

device::closing::~closing()
{
    eventfd_t one;
    eventfd_read(fd_, &one);
}

} // namespace collrun_gloo

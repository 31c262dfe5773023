/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices and signals. What the I/O thread is to do waits behind an eventfd that Gloo's own loop
 * watches.
 */
#include "device.h"

#include "common.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace collrun_gloo
{

namespace tcp = gloo::transport::tcp;

/* Gloo looks addresses up and leaks when that fails, so what would fail is refused before. */
static void check_address(const std::string &address)
{
    struct addrinfo hints = {}, *list = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    const int found = getaddrinfo(address.c_str(), nullptr, &hints, &list);
    if (found != 0)
        throw failure{COLLRUN_ERR_INVALID, no_peer,
                      format("address \"%s\": %s", address.c_str(), gai_strerror(found))};
    const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && bind(fd, list->ai_addr, list->ai_addrlen) == 0;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    if (!bound)
        throw failure{COLLRUN_ERR_SYSTEM, no_peer,
                      format("address %s: %s", address.c_str(), std::strerror(error))};
}

std::shared_ptr<device> devices::get(const char *address, const char *interface)
{
    tcp::attr attr;
    if (address && *address)
        attr.hostname = address;
    else if (interface && *interface)
        attr.iface = interface;
    else
        throw failure{COLLRUN_ERR_INVALID, no_peer, "neither an address nor an interface is given"};
    std::lock_guard<std::mutex> guard(lock);
    auto &found = known[attr.hostname + "%" + attr.iface];
    if (!found) {
        if (!attr.hostname.empty())
            check_address(attr.hostname);
        quiet_signals quiet;
        found = std::make_shared<device>(tcp::CreateDeviceAttr(attr));
    }
    return found;
}

device::device(const tcp::attr &resolved)
    : gloo(std::make_shared<tcp::Device>(resolved)), address(resolved.ai_addr),
      address_len(static_cast<socklen_t>(resolved.ai_addrlen)),
      bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
{
    if (bell_ < 0)
        throw failure{COLLRUN_ERR_SYSTEM, no_peer, format("eventfd: %s", std::strerror(errno))};
    gloo->registerDescriptor(bell_, EPOLLIN, this);
}

device::~device()
{
    run([this] { gloo->unregisterDescriptor(bell_, this); });
    close(bell_);
}

void device::run(const std::function<void()> &task)
{
    order o = {task, false};
    std::unique_lock<std::mutex> guard(lock_);
    orders_.push_back(&o);
    eventfd_write(bell_, 1); /* cannot fail: it is read at every turn */
    done_.wait(guard, [&o] { return o.done; });
}

void device::handleEvents(int)
{
    eventfd_t rings;
    std::unique_lock<std::mutex> guard(lock_);
    eventfd_read(bell_, &rings);
    std::vector<order *> orders;
    orders.swap(orders_);
    for (order *o : orders) {
        guard.unlock();
        o->task();
        guard.lock();
        o->done = true;
        done_.notify_all();
    }
}

quiet_signals::quiet_signals()
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
}

quiet_signals::~quiet_signals()
{
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

static sigset_t only_sigpipe()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

no_sigpipe::no_sigpipe() : active(false)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler == SIG_IGN)
        return;
    const sigset_t set = only_sigpipe();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &set, &before);
    active = !sigismember(&before, SIGPIPE);
}

no_sigpipe::~no_sigpipe()
{
    if (!active)
        return;
    const sigset_t set = only_sigpipe();
    const struct timespec at_once = {0, 0};
    sigtimedwait(&set, nullptr, &at_once);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace collrun_gloo

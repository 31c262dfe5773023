/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, pulses and signals. A pulse is a descriptor that is always ready, watched by Gloo's own
 * loop.
 */
#include "device.h"

#include "common.h"

#include <gloo/transport/tcp/attr.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <netdb.h>
#include <sched.h>
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

std::shared_ptr<gloo::transport::Device> devices::get(const char *address, const char *interface)
{
    tcp::attr attr;
    if (address && *address)
        attr.hostname = address;
    else if (interface && *interface)
        attr.iface = interface;
    else
        throw failure{COLLRUN_ERR_INVALID, no_peer, "neither an address nor an interface is given"};
    std::lock_guard<std::mutex> guard(lock);
    auto &device = known[attr.hostname + "%" + attr.iface];
    if (!device) {
        if (!attr.hostname.empty())
            check_address(attr.hostname);
        quiet_signals quiet;
        device = tcp::CreateDevice(attr);
    }
    return device;
}

void pulse::beat::handleEvents(int)
{
    if (turns < turns_max) {
        turns++;
        sched_yield();
    } else {
        usleep(200);
    }
}

pulse::pulse(const std::shared_ptr<gloo::transport::Device> &d)
    : device(std::dynamic_pointer_cast<tcp::Device>(d))
{
    beat_.fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    if (beat_.fd < 0 || !device)
        return; /* slower, no worse */
    try {
        device->registerDescriptor(beat_.fd, EPOLLIN, &beat_);
    } catch (...) {
        close(beat_.fd);
        beat_.fd = -1;
    }
}

pulse::~pulse()
{
    if (beat_.fd < 0)
        return;
    try {
        device->unregisterDescriptor(beat_.fd, &beat_);
    } catch (...) { /* it was registered, so this cannot be */
    }
    close(beat_.fd);
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

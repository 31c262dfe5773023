/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection when it is first needed. The thread that needs it knocks at the peer's door
 * (door.h), whose I/O thread answers whatever the peer is doing; so this never waits for the peer's
 * program, and ends by an answer, an abort or the operation's deadline.
 *
 * Two ranks may knock at each other at the same time. Then the lower one's connection is taken: the
 * other is told `wait`, and gives its own up for the one that comes in. A link says how the two
 * stand; the step from `apart` is taken by whoever is first, this thread or the I/O thread.
 */
#include "mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

namespace collrun_gloo
{

static constexpr uint64_t dial_patience = 20000 * millisecond;
static constexpr uint64_t longest_wait = 1000 * millisecond;
static constexpr uint64_t redial_pause = 10 * millisecond;
static constexpr int most_dials = 5;

failure mesh::unreachable(int peer, int error) const
{
    struct rlimit limit = {};
    std::string text =
        format("connect to %s at %s: %s", name_of(peer).c_str(),
               cards_[static_cast<size_t>(peer)].address_text().c_str(), std::strerror(error));
    if (error == ECONNREFUSED)
        return {COLLRUN_ERR_PEER_FAILED, peer,
                format("%s has left the group", name_of(peer).c_str())};
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        text += format("; a group of %d needs up to %d descriptors, the limit is %llu (ulimit -n)",
                       size, size - 1, static_cast<unsigned long long>(limit.rlim_cur));
    return {COLLRUN_ERR_BACKEND, peer, text};
}

int mesh::dial(int peer)
{
    sockaddr_storage address;
    descriptor s;
    const socklen_t len = cards_[static_cast<size_t>(peer)].get_address(&address);
    s.fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s.fd < 0 ||
        (::connect(s.fd, reinterpret_cast<sockaddr *>(&address), len) != 0 && errno != EINPROGRESS))
        throw unreachable(peer, errno);
    const int fd = s.fd;
    s.fd = -1;
    return fd;
}

int connect_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
}

/* ---- knocking ---- */

/* Waits for something to happen at the socket, for the bell, or until `until`. True: the socket. */
bool mesh::await(int fd, short events, int peer, uint64_t until)
{
    struct pollfd polled[] = {{fd, events, 0}, {bell_.fd, POLLIN, 0}};
    const uint64_t now = now_ns();
    eventfd_t rings;
    if (now >= until)
        throw until == deadline_
            ? failure{COLLRUN_ERR_TIMEOUT, peer,
                      format("%s did not take a connection in time", name_of(peer).c_str())}
            : unreachable(peer, ETIMEDOUT);
    const uint64_t left = std::min((until - now) / millisecond + 1, longest_wait / millisecond);
    const int ready = poll(polled, 2, static_cast<int>(left));
    if (ready > 0 && polled[1].revents)
        eventfd_read(bell_.fd, &rings);
    if (aborted())
        throw abort_failure();
    return ready > 0 && polled[0].revents;
}

/* The door's answer; a word of 0 when it ended the connection without one. */
answer mesh::hear_answer(int fd, int peer)
{
    answer reply = {0, 0};
    size_t len = 0;
    while (len < sizeof(reply) && link_to(peer) != joined) {
        if (!await(fd, POLLIN, peer, deadline_))
            continue;
        const ssize_t n =
            ::recv(fd, reinterpret_cast<char *>(&reply) + len, sizeof(reply) - len, 0);
        if (n > 0)
            len += static_cast<size_t>(n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return {0, 0};
    }
    return reply;
}

void mesh::knock_at(int peer)
{
    const uint64_t dial_until = std::min(deadline_, now_ns() + dial_patience);
    descriptor s;
    s.fd = dial(peer);
    while (link_to(peer) != joined && !await(s.fd, POLLOUT, peer, dial_until))
        continue;
    const int error = connect_error(s.fd);
    if (error != 0)
        throw unreachable(peer, error);
    const knock who = {cards_[static_cast<size_t>(peer)].password, static_cast<uint64_t>(rank)};
    if (::send(s.fd, &who, sizeof(who), MSG_NOSIGNAL) != sizeof(who))
        return;
    const answer reply = hear_answer(s.fd, peer);
    if (reply.word == answer::no)
        throw failure{COLLRUN_ERR_BACKEND, peer,
                      format("%s cannot take a connection: %s", name_of(peer).c_str(),
                             std::strerror(reply.error))};
    while (reply.word == answer::wait && link_to(peer) != joined)
        await(-1, 0, peer, deadline_);
    if (reply.word == answer::yes)
        take(peer, s);
}

/* A door that closes without a word may have had too many guests, or be gone: then the next attempt
 * is refused. */
void mesh::connect(int peer)
{
    uint8_t before = apart;
    link_to(peer).compare_exchange_strong(before, knocking);
    try {
        while (before == joining && link_to(peer) == joining)
            await(-1, 0, peer, deadline_);
        for (int dials = 1; link_to(peer) != joined; dials++) {
            knock_at(peer);
            if (link_to(peer) == joined)
                break;
            if (dials == most_dials)
                throw unreachable(peer, ECONNRESET);
            await(-1, 0, peer, now_ns() + redial_pause);
        }
    } catch (const failure &) {
        before = knocking;
        link_to(peer).compare_exchange_strong(before, apart);
        if (before != joined)
            throw;
    }
}

/* ---- joining, in the I/O thread ---- */

void mesh::join(int peer, int fd)
{
    context_->pair(peer).adopt(fd);
    link_to(peer).store(joined, std::memory_order_release);
    ring();
}

/* The door has said yes. */
void mesh::take(int peer, descriptor &s)
{
    std::string error;
    device_->run([&] {
        try {
            context_->createPair(peer);
            join(peer, s.fd);
            s.fd = -1;
        } catch (const std::exception &e) {
            error = e.what();
        }
    });
    if (!error.empty())
        throw failure{COLLRUN_ERR_BACKEND, peer,
                      format("connect to %s: Gloo: %s", name_of(peer).c_str(), error.c_str())};
}

bool mesh::admit(int fd, uint64_t who, answer *reply) noexcept
{
    const int peer = static_cast<int>(who);
    if (shut_ || who >= links_.size() || peer == rank)
        return false;
    reply->word = answer::wait;
    uint8_t before = apart;
    if (!link_to(peer).compare_exchange_strong(before, joining) &&
        (before != knocking || peer > rank ||
         !link_to(peer).compare_exchange_strong(before, joining)))
        return false;
    try {
        const answer yes = {answer::yes, 0};
        context_->createPair(peer);
        ::send(fd, &yes, sizeof(yes), MSG_NOSIGNAL);
        join(peer, fd);
        return true;
    } catch (const std::exception &) {
        *reply = {answer::no, EMFILE};
        link_to(peer).store(before);
        return false;
    }
}

void mesh::ring() noexcept
{
    eventfd_write(bell_.fd, 1); /* it cannot overflow */
}

/* ---- the end ---- */

void mesh::sever_all(bool reset) noexcept
{
    for (bool again = true; again;) {
        again = false;
        device_->run([&] {
            shut_ = true;
            if (door_)
                door_->shut();
            for (int peer = 0; peer < size; peer++)
                again |= context_->getPair(peer) && !context_->pair(peer).sever(reset);
        });
        if (again)
            sched_yield();
    }
}

} // namespace collrun_gloo

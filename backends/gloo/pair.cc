/* SPDX-License-Identifier: Apache-2.0
 *
 * The context, connecting and cutting, and grants.
 */
#include "pair.h"

#include <sched.h>
#include <unistd.h>

namespace collrun_gloo
{

own_context::own_context(const std::shared_ptr<gloo::transport::Device> &device, int self, int n)
    : tcp::Context(std::dynamic_pointer_cast<tcp::Device>(device), self, n)
{
    for (int peer = 0; peer < n; peer++)
        inboxes_.emplace_back(peer);
}

std::unique_ptr<gloo::transport::Pair> &own_context::createPair(int peer)
{
    auto &pair = pairs_[static_cast<size_t>(peer)];
    pair = std::make_unique<own_pair>(*this, device_.get(), peer, getTimeout());
    return pair;
}

std::unique_ptr<gloo::transport::UnboundBuffer> own_context::createUnboundBuffer(void *ptr,
                                                                                 size_t len)
{
    return std::make_unique<own_buffer>(shared_from_this(), ptr, len);
}

own_pair &own_context::pair(int peer)
{
    return static_cast<own_pair &>(*getPair(peer));
}

own_pair::own_pair(own_context &context, tcp::Device *device, int peer,
                   std::chrono::milliseconds timeout)
    : tcp::Pair(&context, device, peer, timeout), owner_(context), in_(context.from(peer))
{
}

/* ---- grants ---- */

void own_pair::post(const parcel &m, bool granted)
{
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    if (granted || owner_.take_grant(rank_, m.slot))
        sendUnboundBuffer(m.ref(), m.slot, m.offset, m.len);
    else
        localPendingSend_[m.slot].emplace_back(m.ref(), m.offset, m.len);
}

void own_pair::expect(const parcel &m, bool grant)
{
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    localPendingRecv_[m.slot].emplace_back(m.ref(), m.offset, m.len);
    if (grant)
        sendNotifyRecvReady(m.slot, m.len);
}

/* ---- connecting and cutting ---- */

/* In place of the listening socket that every pair begins with. */
void own_pair::adopt(int fd)
{
    std::lock_guard<std::mutex> guard(m_);
    device_->unregisterDescriptor(fd_, this);
    ::close(fd_);
    fd_ = fd;
    try {
        handleConnected();
    } catch (...) { /* it is gone already, and not registered: Gloo must not unregister it */
        fd_ = -1;
        state_ = CLOSED;
        severed_ = true;
        throw;
    }
}

bool own_pair::sever(bool reset)
{
    std::unique_lock<std::mutex> guard(m_, std::try_to_lock);
    if (!guard)
        return false;
    severed_ = true;
    if (state_ == CLOSED)
        return true;
    if (reset) {
        const struct linger at_once = {1, 0};
        setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    changeState(CLOSED);
    return true;
}

/* The loop may have an event of a severed pair in hand. While another thread writes, it would come
 * back at once, again and again. */
void own_pair::handleEvents(int events)
{
    if (severed_)
        return;
    if (m_.try_lock())
        m_.unlock();
    else
        sched_yield();
    tcp::Pair::handleEvents(events);
}

/* Gloo throws here when a message that the loop answers with cannot be written. */
void own_pair::handleReadWrite(int events)
{
    try {
        tcp::Pair::handleReadWrite(events);
    } catch (...) {
        if (!ex_)
            signalException(std::current_exception());
    }
    if (tx_.empty())
        departing_.clear();
}

/* Gloo tells those who wait for messages that have not begun. The others are the one that is being
 * written, here, and below the one that is being read and those that wait to be written. */
bool own_pair::write(tcp::Op &op)
{
    const bool done = tcp::Pair::write(op);
    if (!done && ex_)
        fail_buffer(op.ubuf, ex_);
    return done;
}

bool own_pair::is_over()
{
    std::lock_guard<std::mutex> guard(m_);
    return ex_ != nullptr;
}

void own_pair::changeState(state next) noexcept
{
    if (next == CLOSED && ex_) {
        in_.fail(ex_);
        fail_buffer(rx_.ubuf, ex_);
        for (const tcp::Op &op : tx_)
            fail_buffer(op.ubuf, ex_);
    }
    tcp::Pair::changeState(next);
}

} // namespace collrun_gloo

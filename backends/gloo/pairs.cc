/* SPDX-License-Identifier: Apache-2.0
 *
 * The three classes that Gloo's transport consists of, each with what its base keeps protected.
 */
#include "pairs.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include <sched.h>
#include <unistd.h>

namespace collrun_gloo
{

namespace tcp = gloo::transport::tcp;

namespace
{

class own_buffer : public tcp::UnboundBuffer
{
  public:
    using tcp::UnboundBuffer::getWeakNonOwningPtr;
    using tcp::UnboundBuffer::UnboundBuffer;
};

class own_context : public tcp::Context
{
  public:
    using tcp::Context::Context;
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr,
                                                                        size_t len) override
    {
        return std::make_unique<own_buffer>(shared_from_this(), ptr, len);
    }
    /* The peer has granted a receive that no send has used yet. */
    bool take_grant(int peer, uint64_t slot)
    {
        return Mutator(*this, slot, peer).shiftRemotePendingRecv();
    }
};

class own_pair : public tcp::Pair
{
  public:
    own_pair(own_context &context, tcp::Device *device, int peer, std::chrono::milliseconds timeout)
        : tcp::Pair(&context, device, peer, timeout), owner(context)
    {
    }
    void post(const parcel &m, bool granted);
    void expect(const parcel &m, bool grant);
    void adopt(int fd);
    bool sever(bool reset);
    void handleEvents(int events) override;

  private:
    own_context &owner;
    bool severed = false;
};

std::unique_ptr<gloo::transport::Pair> &own_context::createPair(int peer)
{
    auto &pair = pairs_[static_cast<size_t>(peer)];
    pair = std::make_unique<own_pair>(*this, device_.get(), peer, getTimeout());
    return pair;
}

void own_pair::post(const parcel &m, bool granted)
{
    const auto weak = static_cast<own_buffer &>(m.buffer).getWeakNonOwningPtr();
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    if (granted || owner.take_grant(rank_, m.slot))
        sendUnboundBuffer(weak, m.slot, m.offset, m.len);
    else
        localPendingSend_[m.slot].emplace_back(weak, m.offset, m.len);
}

void own_pair::expect(const parcel &m, bool grant)
{
    const auto weak = static_cast<own_buffer &>(m.buffer).getWeakNonOwningPtr();
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    localPendingRecv_[m.slot].emplace_back(weak, m.offset, m.len);
    if (grant)
        sendNotifyRecvReady(m.slot, m.len);
}

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
        severed = true;
        throw;
    }
}

bool own_pair::sever(bool reset)
{
    std::unique_lock<std::mutex> guard(m_, std::try_to_lock);
    if (!guard)
        return false;
    severed = true;
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
    if (severed)
        return;
    if (m_.try_lock())
        m_.unlock();
    else
        sched_yield();
    tcp::Pair::handleEvents(events);
}

own_pair &pair_of(gloo::transport::Context &context, int peer)
{
    return static_cast<own_pair &>(*context.getPair(peer));
}

} // namespace

std::shared_ptr<gloo::transport::Context>
make_context(const std::shared_ptr<gloo::transport::Device> &device, int rank, int size)
{
    return std::make_shared<own_context>(std::dynamic_pointer_cast<tcp::Device>(device), rank,
                                         size);
}

void post(gloo::transport::Context &context, int peer, const parcel &m, bool granted)
{
    pair_of(context, peer).post(m, granted);
}

void expect(gloo::transport::Context &context, int peer, const parcel &m, bool grant)
{
    pair_of(context, peer).expect(m, grant);
}

void adopt(gloo::transport::Context &context, int peer, int fd)
{
    pair_of(context, peer).adopt(fd);
}

bool sever(gloo::transport::Context &context, int peer, bool reset)
{
    return !context.getPair(peer) || pair_of(context, peer).sever(reset);
}

} // namespace collrun_gloo

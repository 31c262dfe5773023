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
    void handleEvents(int events) override;

  private:
    own_context &owner;
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

/* While another thread writes, Gloo's loop would come back at once, again and again. */
void own_pair::handleEvents(int events)
{
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

} // namespace collrun_gloo

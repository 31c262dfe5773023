/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's sends, receives and waits, as those of one collective of backends/net.
 */
#include "transport.h"

#include <algorithm>
#include <stdexcept>

namespace collrun_gloo
{

namespace
{

/* The bits of a slot of Gloo's that differ within an algorithm. */
constexpr uint64_t delta_mask = 0xff;
constexpr unsigned used_shift = 8;

class operation_buffer final : public gloo::transport::UnboundBuffer
{
  public:
    operation_buffer(operation_context &context, void *start, size_t len)
        : UnboundBuffer(start, len), context_(context)
    {
    }
    ~operation_buffer() override;

    void send(int peer, uint64_t slot, size_t offset, size_t len) override;
    void recv(int peer, uint64_t slot, size_t offset, size_t len) override;
    void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t len) override;
    bool waitSend(int *peer, std::chrono::milliseconds) override
    {
        return wait(sends_, peer);
    }
    bool waitRecv(int *peer, std::chrono::milliseconds) override
    {
        return wait(receives_, peer);
    }
    /* net_group_abort ends all waits of the group. */
    void abortWaitSend() override
    {
    }
    void abortWaitRecv() override
    {
    }

  private:
    /* Requests that the algorithm has not waited for, oldest first from `waited` on. */
    struct queue {
        std::vector<net_request *> all;
        size_t waited = 0;
    };
    bool wait(queue &requests, int *peer);
    static bool is_done(const queue &requests);
    char *at(size_t offset) const
    {
        return static_cast<char *>(ptr) + offset;
    }
    size_t length(size_t offset, size_t len) const
    {
        return len == kUnspecifiedByteCount ? size - offset : len;
    }

    operation_context &context_;
    queue sends_, receives_;
};

bool operation_buffer::is_done(const queue &requests)
{
    return std::all_of(requests.all.begin(), requests.all.end(),
                       [](const net_request *q) { return q->done; });
}

/* With requests that are not done, an exception leaves the algorithm, which frees the memory next.
 * The link must not use it then. */
operation_buffer::~operation_buffer()
{
    if (!is_done(sends_) || !is_done(receives_))
        net_op_abandon(context_.operation());
}

void operation_buffer::send(int peer, uint64_t slot, size_t offset, size_t len)
{
    sends_.all.push_back(context_.request());
    check(net_op_send(context_.operation(), sends_.all.back(), static_cast<uint32_t>(peer),
                      context_.next_slot(false, peer, slot), at(offset), length(offset, len)));
}

void operation_buffer::recv(int peer, uint64_t slot, size_t offset, size_t len)
{
    receives_.all.push_back(context_.request());
    check(net_op_recv(context_.operation(), receives_.all.back(), static_cast<uint32_t>(peer),
                      context_.next_slot(true, peer, slot), at(offset), length(offset, len)));
}

/* No collective of Gloo's receives from any of several peers. */
void operation_buffer::recv(std::vector<int>, uint64_t, size_t, size_t)
{
    throw std::logic_error("receive from several ranks");
}

bool operation_buffer::wait(queue &requests, int *peer)
{
    if (requests.waited == requests.all.size())
        throw std::logic_error("wait without a message");
    net_request *oldest = requests.all[requests.waited++];
    check(net_op_wait(context_.operation(), oldest));
    if (peer)
        *peer = static_cast<int>(oldest->peer);
    return true;
}

/* An algorithm looks whether there is a connection to its peers, and makes no other use of it. */
class operation_pair final : public gloo::transport::Pair
{
  public:
    const gloo::transport::Address &address() const override
    {
        throw unused();
    }
    void connect(const std::vector<char> &) override
    {
        throw unused();
    }
    void close() override
    {
    }
    void setSync(bool, bool) override
    {
        throw unused();
    }
    std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void *, size_t) override
    {
        throw unused();
    }
    std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void *, size_t) override
    {
        throw unused();
    }
    void send(gloo::transport::UnboundBuffer *, uint64_t, size_t, size_t) override
    {
        throw unused();
    }
    void recv(gloo::transport::UnboundBuffer *, uint64_t, size_t, size_t) override
    {
        throw unused();
    }
#if GLOO_YEAR >= 2025
    bool isConnected() override
    {
        return true;
    }
#endif

  private:
    static std::logic_error unused()
    {
        return std::logic_error("use of a pair");
    }
};

} // namespace

operation_context::operation_context(net_op *op)
    : Context(static_cast<int>(net_op_rank(op)), static_cast<int>(net_op_size(op))), op_(op),
      pair_(new operation_pair)
{
}

uint32_t operation_context::next_slot(bool receives, int peer, uint64_t slot)
{
    auto found = std::find_if(uses_.begin(), uses_.end(), [&](const slot_use &u) {
        return u.slot == slot && u.peer == peer && u.receives == receives;
    });
    if (found == uses_.end())
        found = uses_.insert(found, {slot, peer, receives, 0});
    return found->used++ << used_shift | static_cast<uint32_t>(slot & delta_mask);
}

std::unique_ptr<gloo::transport::UnboundBuffer> operation_context::createUnboundBuffer(void *start,
                                                                                       size_t len)
{
    return std::unique_ptr<gloo::transport::UnboundBuffer>(new operation_buffer(*this, start, len));
}

std::unique_ptr<gloo::transport::Pair> &operation_context::getPair(int)
{
    return pair_;
}

std::unique_ptr<gloo::transport::Pair> &operation_context::createPair(int)
{
    return pair_;
}

} // namespace collrun_gloo

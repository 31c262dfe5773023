/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's transport, with waits that end. Device, context and buffers of Gloo's TCP transport behind
 * Gloo's own abstract classes, so that its algorithms use these unknowingly:
 *
 * - Each wait of an algorithm ends with the data, with interrupt(), or with a lost connection. The
 *   last two throw a failure through the algorithm. Gloo's own time-outs are never used: they
 *   close all connections.
 * - An algorithm that is left leaves buffers behind to which Gloo still owes data. What arrives for
 *   a buffer that is gone stays in the socket: Gloo's thread would spin. So the connections are
 *   closed, after a farewell to each peer. A peer that still waits is not told that this rank died:
 *   it waits on, as if the connection were open.
 * - The slot of each send and receive is a hash of Gloo's slot, the key of the call, and the number
 *   of bytes. Ranks that disagree about a call, or about one length in it, never meet: a message
 *   that is longer than its receive would end the process, on Gloo's own thread.
 */
#ifndef BACKENDS_GLOO_ABORTABLE_H
#define BACKENDS_GLOO_ABORTABLE_H

#include "api.h"
#include "common.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace collrun_gloo
{

/* What Gloo's waits are called with: longer than any operation. */
constexpr auto forever = std::chrono::hours(24 * 365);

class abortable_buffer;

/* The peers of what a buffer has begun, in any order; one of them twice, if it has two. Mostly few:
 * they need no memory of their own. */
class peer_list
{
  public:
    void add(int peer)
    {
        if (n_ < few_.size())
            few_[n_++] = peer;
        else
            more_.push_back(peer);
    }
    void remove(int peer)
    {
        const auto found = std::find(few_.begin(), few_.begin() + n_, peer);
        const auto other = std::find(more_.begin(), more_.end(), peer);
        if (found != few_.begin() + n_)
            *found = few_[--n_];
        else if (other != more_.end())
            more_.erase(other);
    }
    /* Each once, in order. */
    std::vector<uint32_t> ranks() const;

  private:
    std::array<int, 6> few_;
    uint32_t n_ = 0;
    std::vector<int> more_;
};

class abortable_context final : public gloo::transport::Context
{
  public:
    explicit abortable_context(std::shared_ptr<gloo::transport::Context> gloo);

    /* A collective begins. All members that agree about it pass the same key. */
    void begin(uint64_t key)
    {
        key_ = key;
    }
    /* From any thread: every wait, and every later one, throws a failure with this status. The
     * first status stays. */
    void interrupt(int status) noexcept;
    bool is_interrupted() const
    {
        return status_.load() != COLLRUN_OK;
    }

    /* Buffers of Gloo's own, for the transport of messages. */
    std::unique_ptr<gloo::transport::UnboundBuffer> plain_buffer(void *ptr, size_t len)
    {
        return gloo_->createUnboundBuffer(ptr, len);
    }
    /* All members have connected: from now on their farewells are taken. */
    void expect_farewells();
    /* To all members: this rank is about to close its connections. */
    void say_farewell() noexcept;
    /* Before close(): waits until Gloo's threads on all members have read what this rank has sent,
     * whatever their other threads do; or until the deadline. */
    void drain(uint64_t deadline_ns);
    /* Whether a member has closed its connection without a farewell; the first such one, or the
     * number of members. */
    bool is_lost(uint32_t peer);
    uint32_t lost();

    /* Resets the connections, or ends the waits for them, from any thread; all pairs are created.
     */
    void close() noexcept;

    std::unique_ptr<gloo::transport::Pair> &getPair(int peer) override;
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr,
                                                                        size_t len) override;
#if GLOO_API >= 2025
    void createAndConnectAllPairs(std::shared_ptr<gloo::IStore> store) override;
#elif GLOO_API >= 2023
    void createAndConnectAllPairs(gloo::IStore &store) override;
#endif

  private:
    friend class abortable_buffer;
    void throw_if_interrupted(const peer_list &waited_for) const
    {
        if (is_interrupted())
            throw_interrupted(waited_for);
    }
    [[noreturn]] void throw_interrupted(const peer_list &waited_for) const;
    void pause_if_left(const peer_list &senders, const peer_list &receivers);
    uint64_t slot(uint64_t slot, size_t bytes) const;

    const std::shared_ptr<gloo::transport::Context> gloo_;
    uint64_t key_ = 0;
    std::atomic<int> status_{COLLRUN_OK};
    std::mutex lock_; /* of the list of buffers */
    std::condition_variable interrupted_;
    abortable_buffer *first_ = nullptr;
    std::mutex farewell_lock_;
    std::unique_ptr<gloo::transport::UnboundBuffer> farewell_, drained_;     /* of this rank */
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> farewells_; /* of each peer */
};

class abortable_buffer final : public gloo::transport::UnboundBuffer
{
  public:
    abortable_buffer(abortable_context &context, void *memory, size_t len)
        : UnboundBuffer(memory, len), context_(context)
    {
    }
    ~abortable_buffer() override;

    bool waitRecv(int *rank, std::chrono::milliseconds timeout) override;
    bool waitSend(int *rank, std::chrono::milliseconds timeout) override;
    void abortWaitRecv() override
    {
        own().abortWaitRecv();
    }
    void abortWaitSend() override
    {
        own().abortWaitSend();
    }
    void send(int rank, uint64_t slot, size_t offset, size_t bytes) override;
    void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override;
    void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes) override;

  private:
    friend class abortable_context;
    using wait_function = bool (gloo::transport::UnboundBuffer::*)(int *,
                                                                   std::chrono::milliseconds);
    gloo::transport::UnboundBuffer &own()
    {
        return gloo_ ? *gloo_ : make();
    }
    gloo::transport::UnboundBuffer &make();
    bool wait(wait_function function, peer_list &peers, int *rank);
    template <typename F> void begin(int rank, F begin);
    size_t length(size_t offset, size_t bytes) const;

    abortable_context &context_;
    std::unique_ptr<gloo::transport::UnboundBuffer>
        gloo_;                      /* from its first use on: many have none */
    peer_list senders_, receivers_; /* of what has begun */
    /* In the context's list, under its lock; once `gloo_` is there. */
    abortable_buffer *next_ = nullptr, *before_ = nullptr;
};

/* Makes abortable contexts of another device's. */
class abortable_device final : public gloo::transport::Device
{
  public:
    explicit abortable_device(std::shared_ptr<gloo::transport::Device> gloo)
        : gloo_(std::move(gloo))
    {
    }
    /* The context that was created last. */
    const std::shared_ptr<abortable_context> &context() const
    {
        return context_;
    }
    std::string str() const override
    {
        return gloo_->str();
    }
    const std::string &getPCIBusID() const override
    {
        return gloo_->getPCIBusID();
    }
    std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override
    {
        return context_ = std::make_shared<abortable_context>(gloo_->createContext(rank, size));
    }

  private:
    const std::shared_ptr<gloo::transport::Device> gloo_;
    std::shared_ptr<abortable_context> context_;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits that end. A wait and interrupt() race: interrupt() sets the status before it visits the
 * buffers, and Gloo keeps the abort of a wait until there is one, so that none is missed. An abort
 * that was meant for an earlier wait only makes the loop look again.
 */
#include "abortable.h"

#include <algorithm>

namespace collrun_gloo
{

using gloo::transport::UnboundBuffer;

abortable_context::abortable_context(std::shared_ptr<gloo::transport::Context> gloo)
    : Context(gloo->rank, gloo->size), gloo_(std::move(gloo))
{
}

void abortable_context::interrupt(int status) noexcept
{
    int none = COLLRUN_OK;
    status_.compare_exchange_strong(none, status);
    std::lock_guard<std::mutex> guard(lock_);
    for (abortable_buffer *b : buffers_) {
        b->abortWaitRecv();
        b->abortWaitSend();
    }
}

void abortable_context::throw_if_interrupted(const std::vector<int> &waited_for) const
{
    const int status = status_.load();
    if (status == COLLRUN_OK)
        return;
    failure f = {status, status == COLLRUN_ERR_TIMEOUT ? "" : "the group was aborted"};
    const std::set<int> ranks(waited_for.begin(), waited_for.end());
    f.missing.assign(ranks.begin(), ranks.end());
    throw f;
}

/* The highest bit separates these slots from those of messages. */
uint64_t abortable_context::slot(uint64_t slot, size_t bytes) const
{
    return mix(mix(key_, slot), bytes) | 1ull << 63;
}

std::vector<uint32_t> abortable_context::lost()
{
    std::vector<uint32_t> ranks;
    const std::unique_ptr<UnboundBuffer> nothing = plain_buffer(nullptr, 0);
    for (int i = 0; i < size; i++)
        try {
            if (i != rank)
                nothing->send(i, slot(0, 0), 0, 0);
        } catch (const std::exception &) {
            ranks.push_back(static_cast<uint32_t>(i));
        }
    return ranks;
}

void abortable_context::close() noexcept
{
    for (int i = 0; i < size; i++)
        if (i != rank && gloo_->getPair(i))
            gloo_->getPair(i)->close();
}

std::unique_ptr<gloo::transport::Pair> &abortable_context::getPair(int peer)
{
    return gloo_->getPair(peer);
}

std::unique_ptr<gloo::transport::Pair> &abortable_context::createPair(int peer)
{
    gloo_->setTimeout(getTimeout());
    return gloo_->createPair(peer);
}

#if GLOO_API >= 2025
/* That of the base class: the one of Gloo's TCP transport writes to stderr, which has no switch. */
void abortable_context::createAndConnectAllPairs(std::shared_ptr<gloo::IStore> store)
{
    gloo_->setTimeout(getTimeout());
    gloo_->gloo::transport::Context::createAndConnectAllPairs(std::move(store));
}
#elif GLOO_API >= 2023
void abortable_context::createAndConnectAllPairs(gloo::IStore &store)
{
    gloo_->setTimeout(getTimeout());
    gloo_->createAndConnectAllPairs(store);
}
#endif

std::unique_ptr<UnboundBuffer> abortable_context::createUnboundBuffer(void *ptr, size_t len)
{
    return std::unique_ptr<UnboundBuffer>(new abortable_buffer(*this, plain_buffer(ptr, len)));
}

abortable_buffer::abortable_buffer(abortable_context &context, std::unique_ptr<UnboundBuffer> gloo)
    : UnboundBuffer(gloo->ptr, gloo->size), context_(context), gloo_(std::move(gloo))
{
    std::lock_guard<std::mutex> guard(context_.lock_);
    context_.buffers_.insert(this);
}

abortable_buffer::~abortable_buffer()
{
    std::lock_guard<std::mutex> guard(context_.lock_);
    context_.buffers_.erase(this);
}

bool abortable_buffer::wait(wait_function function, std::vector<int> &peers, int *rank)
{
    int peer = -1;
    do {
        context_.throw_if_interrupted(peers);
    } while (!((*gloo_).*function)(&peer, forever));
    const auto found = std::find(peers.begin(), peers.end(), peer);
    if (found != peers.end())
        peers.erase(found);
    if (rank)
        *rank = peer;
    return true;
}

bool abortable_buffer::waitRecv(int *rank, std::chrono::milliseconds)
{
    return wait(&UnboundBuffer::waitRecv, senders_, rank);
}

bool abortable_buffer::waitSend(int *rank, std::chrono::milliseconds)
{
    return wait(&UnboundBuffer::waitSend, receivers_, rank);
}

size_t abortable_buffer::length(size_t offset, size_t bytes) const
{
    return bytes == kUnspecifiedByteCount ? size - offset : bytes;
}

void abortable_buffer::send(int rank, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    receivers_.push_back(rank);
    gloo_->send(rank, context_.slot(slot, bytes), offset, bytes);
}

void abortable_buffer::recv(int rank, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    senders_.push_back(rank);
    gloo_->recv(rank, context_.slot(slot, bytes), offset, bytes);
}

void abortable_buffer::recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    senders_.insert(senders_.end(), ranks.begin(), ranks.end());
    gloo_->recv(std::move(ranks), context_.slot(slot, bytes), offset, bytes);
}

} // namespace collrun_gloo

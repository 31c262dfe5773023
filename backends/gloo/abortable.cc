/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits that end. A wait and interrupt() race: interrupt() sets the status before it visits the
 * buffers, and Gloo keeps the abort of a wait until there is one, so that none is missed. An abort
 * that was meant for an earlier wait only makes the loop look again.
 *
 * A farewell is a message without data, whose receive is posted when the connection is made. A
 * connection that ends before it is lost: Gloo tells the buffer of that receive.
 *
 * The kernel forgets what is on its way if a connection is closed on which something arrives. So
 * each rank has begun a send to each peer, whose receive the peer posts before it closes: Gloo's
 * thread here answers in the order of the connection, when it has read all that came before.
 */
#include "abortable.h"

namespace collrun_gloo
{

using gloo::transport::UnboundBuffer;

/* No slots of messages (transport.cc) or of collectives. */
static constexpr uint64_t farewell_slot = 1ull << 62, drained_slot = farewell_slot + 1;
/* How soon a wait that goes on after a farewell sees that another connection is lost. */
static constexpr auto lost_period = std::chrono::milliseconds(10);

std::vector<uint32_t> peer_list::ranks() const
{
    std::vector<uint32_t> all(few_.begin(), few_.begin() + n_);
    all.insert(all.end(), more_.begin(), more_.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

abortable_context::abortable_context(std::shared_ptr<gloo::transport::Context> gloo)
    : Context(gloo->rank, gloo->size), gloo_(std::move(gloo))
{
}

void abortable_context::interrupt(int status) noexcept
{
    int none = COLLRUN_OK;
    status_.compare_exchange_strong(none, status);
    std::lock_guard<std::mutex> guard(lock_);
    interrupted_.notify_all();
    for (abortable_buffer *b = first_; b; b = b->next_) {
        b->abortWaitRecv();
        b->abortWaitSend();
    }
}

void abortable_context::throw_interrupted(const peer_list &waited_for) const
{
    const int status = status_.load();
    failure f = {status, status == COLLRUN_ERR_TIMEOUT ? "" : "the group was aborted"};
    f.missing = waited_for.ranks();
    throw f;
}

/* The highest bit separates these slots from those of messages. */
uint64_t abortable_context::slot(uint64_t slot, size_t bytes) const
{
    return mix(mix(key_, slot), bytes) | 1ull << 63;
}

void abortable_context::expect_farewells()
{
    farewell_ = plain_buffer(nullptr, 0);
    drained_ = plain_buffer(nullptr, 0);
    farewells_.resize(static_cast<size_t>(size));
    for (int i = 0; i < size; i++) {
        if (i == rank)
            continue;
        farewells_[static_cast<size_t>(i)] = plain_buffer(nullptr, 0);
        farewells_[static_cast<size_t>(i)]->recv(i, farewell_slot);
        drained_->send(i, drained_slot);
    }
}

void abortable_context::say_farewell() noexcept
{
    for (int i = 0; i < size; i++)
        try {
            if (i != rank)
                farewell_->send(i, farewell_slot);
        } catch (const std::exception &) { /* that peer is gone */
        }
}

/* A lost peer needs nothing. At a time-out Gloo closes all connections, as the caller is about to.
 */
void abortable_context::drain(uint64_t deadline_ns)
{
    std::vector<std::unique_ptr<UnboundBuffer>> answers;
    for (int i = 0; i < size; i++)
        try {
            if (i == rank)
                continue;
            answers.push_back(plain_buffer(nullptr, 0));
            answers.back()->recv(i, drained_slot);
        } catch (const gloo::IoException &) {
            answers.pop_back();
        }
    for (const std::unique_ptr<UnboundBuffer> &answer : answers)
        try {
            const uint64_t now = now_ns();
            const uint64_t left_ns = deadline_ns > now ? deadline_ns - now : 0;
            answer->waitRecv(nullptr, std::chrono::milliseconds(1 + left_ns / 1000000));
        } catch (const gloo::IoException &) {
        }
}

/* A wait that is aborted in advance returns at once; Gloo looks for a loss first. */
bool abortable_context::is_lost(uint32_t peer)
{
    std::lock_guard<std::mutex> guard(farewell_lock_);
    try {
        if (peer < farewells_.size() && farewells_[peer]) {
            farewells_[peer]->abortWaitRecv();
            farewells_[peer]->waitRecv(nullptr, forever);
        }
        return false;
    } catch (const std::exception &) {
        return true;
    }
}

uint32_t abortable_context::lost()
{
    uint32_t i = 0;
    while (i < static_cast<uint32_t>(size) && !is_lost(i))
        i++;
    return i;
}

/* That this member is lost, so that no other one that has left before is named. */
static failure lost_failure(uint32_t peer)
{
    failure f = {COLLRUN_ERR_PEER_FAILED, ""};
    f.missing = {peer};
    return f;
}

/* In a handler, after Gloo has said that a connection is lost, which it tells one buffer after the
 * other. Without a loss, a peer has said farewell, and the wait goes on. */
void abortable_context::pause_if_left(const peer_list &senders, const peer_list &receivers)
{
    for (unsigned turn = 0; turn < 2; turn++) {
        for (const peer_list *peers : {&senders, &receivers})
            for (const uint32_t peer : peers->ranks())
                if (is_lost(peer))
                    throw lost_failure(peer);
        std::unique_lock<std::mutex> guard(lock_);
        if (turn == 0) /* until Gloo has told the buffer of its farewell, too */
            interrupted_.wait_for(guard, lost_period, [this] { return is_interrupted(); });
    }
    if (lost() < static_cast<uint32_t>(size))
        throw;
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
    return std::unique_ptr<UnboundBuffer>(new abortable_buffer(*this, ptr, len));
}

UnboundBuffer &abortable_buffer::make()
{
    gloo_ = context_.plain_buffer(ptr, size);
    std::lock_guard<std::mutex> guard(context_.lock_);
    next_ = context_.first_;
    if (next_)
        next_->before_ = this;
    context_.first_ = this;
    return *gloo_;
}

abortable_buffer::~abortable_buffer()
{
    if (!gloo_)
        return;
    std::lock_guard<std::mutex> guard(context_.lock_);
    if (next_)
        next_->before_ = before_;
    (before_ ? before_->next_ : context_.first_) = next_;
}

bool abortable_buffer::wait(wait_function function, peer_list &peers, int *rank)
{
    int peer = -1;
    for (bool done = false; !done;) {
        context_.throw_if_interrupted(peers);
        try {
            done = (own().*function)(&peer, forever);
        } catch (const std::exception &) {
            context_.pause_if_left(senders_, receivers_);
        }
    }
    peers.remove(peer);
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

/* A peer that has said farewell is waited for, so that the other peers get what is theirs. */
template <typename F> void abortable_buffer::begin(int rank, F begin)
{
    try {
        begin();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        if (context_.is_lost(static_cast<uint32_t>(rank)))
            throw lost_failure(static_cast<uint32_t>(rank));
    }
}

size_t abortable_buffer::length(size_t offset, size_t bytes) const
{
    return bytes == kUnspecifiedByteCount ? size - offset : bytes;
}

void abortable_buffer::send(int rank, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    receivers_.add(rank);
    begin(rank, [&] { own().send(rank, context_.slot(slot, bytes), offset, bytes); });
}

void abortable_buffer::recv(int rank, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    senders_.add(rank);
    begin(rank, [&] { own().recv(rank, context_.slot(slot, bytes), offset, bytes); });
}

void abortable_buffer::recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes)
{
    bytes = length(offset, bytes);
    for (const int rank : ranks)
        senders_.add(rank);
    own().recv(std::move(ranks), context_.slot(slot, bytes), offset, bytes);
}

} // namespace collrun_gloo

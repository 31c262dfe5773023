/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of long messages.
 */
#include "bulk.h"

#include <cstring>
#include <utility>

namespace collrun_gloo
{

/* Gloo holds a buffer while it moves one of these: memory can be taken back in between. */
static constexpr size_t piece_bytes = 2u << 20;

static char *last_bytes(const p2p_message *m)
{
    return static_cast<char *>(m->shared.data) + m->shared.len - sizeof m->mark;
}

/* Another thread may revoke the memory between two pieces: a piece waits while Gloo's thread reads
 * or writes, and the first ones are on their way by then. */
template <typename F> void bulk::give(p2p_message *m, F move)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        buffers_[m] = context_.plain_buffer(m->shared.data, m->shared.len);
    }
    /* All of them, also if the connection is lost before Gloo has them: what was not moved is not
     * taken for moved. */
    m->pieces = static_cast<uint32_t>((m->shared.len + piece_bytes - 1) / piece_bytes);
    for (size_t at = 0; at < m->shared.len; at += piece_bytes) {
        std::lock_guard<std::mutex> guard(lock_);
        if (revoked_)
            throw failure{COLLRUN_ERR_ABORTED, "the group was aborted"};
        move(*buffers_.at(m), at, std::min(piece_bytes, m->shared.len - at));
    }
}

void bulk::send(p2p_message *m, uint64_t slot)
{
    const auto to = static_cast<int>(m->shared.peer);
    m->receives = false;
    give(m, [&](UnboundBuffer &b, size_t at, size_t bytes) { b.send(to, slot, at, bytes); });
}

void bulk::recv(p2p_message *m, uint64_t slot)
{
    const auto from = static_cast<int>(m->shared.peer);
    m->receives = true;
    m->mark = mix(mix(now_ns(), slot), reinterpret_cast<uintptr_t>(m));
    std::memcpy(last_bytes(m), &m->mark, sizeof m->mark);
    give(m, [&](UnboundBuffer &b, size_t at, size_t bytes) { b.recv(from, slot, at, bytes); });
}

/* Gloo's thread writes them in a system call, which no tool can follow. */
__attribute__((no_sanitize("thread"))) bulk::arrival bulk::has_arrived(const p2p_message *m) const
{
    const volatile char *last = last_bytes(m);
    const auto *mark = reinterpret_cast<const char *>(&m->mark);
    arrival found = arrival::no;
    for (size_t i = 0; i < sizeof m->mark; i++)
        if (last[i] != mark[i])
            found = i + 1 == sizeof m->mark ? arrival::yes : arrival::maybe;
    return found;
}

static bool take_report(gloo::transport::UnboundBuffer &b, p2p_message *m)
{
    const bool moved = m->receives ? b.waitRecv(nullptr, forever) : b.waitSend(nullptr, forever);
    m->pieces -= moved;
    return moved;
}

void bulk::end(p2p_message *m)
{
    while (m->pieces > 0)
        wait(m);
    std::lock_guard<std::mutex> guard(lock_);
    buffers_.erase(m);
}

/* ---- waiting ---- */

/* NULL: it has been poked before. */
gloo::transport::UnboundBuffer *bulk::begin_wait(const p2p_message *m)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (revoked_)
        throw failure{COLLRUN_ERR_ABORTED, "the group was aborted"};
    std::lock_guard<std::mutex> wait_guard(wait_lock_);
    if (!poked_)
        waited_for_ = buffers_.at(m).get();
    poked_ = false;
    return waited_for_;
}

void bulk::end_wait() noexcept
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    waited_for_ = nullptr;
    ended_.notify_all();
}

bool bulk::wait(p2p_message *m)
{
    UnboundBuffer *b = begin_wait(m);
    const auto end = [this](void *) { end_wait(); };
    const std::unique_ptr<UnboundBuffer, decltype(end)> guard(b, end);
    while (b && m->pieces > 0 && take_report(*b, m))
        ;
    return m->pieces == 0;
}

void bulk::poke_locked() noexcept
{
    if (!waited_for_)
        return;
    waited_for_->abortWaitRecv();
    waited_for_->abortWaitSend();
}

void bulk::poke() noexcept
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    poked_ = !waited_for_;
    poke_locked();
}

bool bulk::take_poke() noexcept
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    return std::exchange(poked_, false);
}

/* The wait in progress uses its buffer until it ends, which is soon. */
void bulk::revoke() noexcept
{
    std::lock_guard<std::mutex> guard(lock_);
    revoked_ = true;
    std::unique_lock<std::mutex> wait_guard(wait_lock_);
    poke_locked();
    ended_.wait(wait_guard, [this] { return !waited_for_; });
    buffers_.clear();
}

} // namespace collrun_gloo

/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of messages.
 *
 * - A packet that finds no place in the receiver's ring waits here, in order.
 * - A lost connection ends the group if a message waits for that peer. If the peer has left the
 *   group before (LEFT), only such messages fail; others go on, by looking every 0.2 ms: Gloo does
 *   not wait for a buffer that has to do with a lost connection.
 */
#include "transport.h"

#include <algorithm>
#include <cstring>
#include <time.h>

namespace collrun_gloo
{

using gloo::transport::UnboundBuffer;

enum packet_type : uint32_t { EAGER, RTS, CONTROL, FAILED, LEFT };

/* Gloo holds a buffer while it moves one of these: memory can be taken back in between. */
static constexpr size_t piece_bytes = 2u << 20;
static constexpr uint64_t lost_pause_ns = 200000, lost_period_ns = 5000000;
static constexpr uint64_t flush_ns = 1000000000, flush_period_ns = 10000000;
static constexpr size_t most_acks = 64;
/* Slots of one transport of a mesh; the first ones are those of its rings. */
static constexpr uint64_t slots = 1ull << 60, ring_slots = 16;

/* Calls move(offset, bytes) for each piece. */
template <typename F> static void for_each_piece(size_t len, F move)
{
    for (size_t at = 0; at < len; at += piece_bytes)
        move(at, std::min(piece_bytes, len - at));
}

transport::transport(mesh &owner, unsigned number, timer_thread &timers)
    : mesh_(owner), first_slot_(number * slots),
      rings_(*owner.abortable, owner.rank, owner.size, first_slot_), peers_(owner.size),
      timer_(timers, [this] {
          rings_.poke();
          rings_.poke_flush();
      })
{
}

/* What has been sent leaves the process, even if it ends; unless a connection is lost, whose sends
 * may never end. */
transport::~transport()
{
    revoke();
    if (mesh_.failed)
        return;
    const uint64_t deadline_ns = deadline_after(flush_ns);
    bool lost = false;
    while (!lost && now_ns() < deadline_ns) {
        timer_.start(deadline_after(flush_period_ns));
        const bool all_left = rings_.flush();
        timer_.stop();
        if (all_left)
            return;
        for (uint32_t i = 0; i < mesh_.size; i++)
            lost = lost || mesh_.abortable->is_lost(i);
    }
}

/* ---- groups ---- */

void transport::attach(const collrun_p2p *engine)
{
    engine_ = engine;
    any_left_ = false;
    for (peer_state &p : peers_)
        p.left = false;
}

bool transport::detach() noexcept
{
    bool idle = !aborted_ && !revoked_ && waiting_.empty() && by_notice_.empty();
    for (uint32_t i = 0; i < peers_.size(); i++)
        idle = idle && peers_[i].queue.empty() && peers_[i].acks.empty() && peers_[i].sends == 0;
    for (uint32_t i = 0; i < peers_.size() && !aborted_ && !revoked_; i++)
        try {
            if (i != mesh_.rank && !rings_.send(i, head(LEFT), nullptr, true))
                idle = false;
        } catch (...) { /* it has left before */
            idle = false;
        }
    revoke();
    if (idle)
        revoked_ = false;
    engine_ = nullptr;
    any_receives_ = 0;
    for (peer_state &p : peers_)
        p.receives = 0;
    return idle;
}

void transport::abort() noexcept
{
    aborted_ = true;
    wake();
    revoke();
}

void transport::throw_if_aborted() const
{
    if (aborted_)
        throw failure{COLLRUN_ERR_ABORTED, "the group was aborted"};
}

void transport::revoke() noexcept
{
    std::lock_guard<std::mutex> guard(lock_);
    revoked_ = true;
    buffers_.clear();
}

/* Calls move(buffer, offset, bytes) for each piece of a long message. Another thread may revoke the
 * memory between two pieces: a piece waits while Gloo's thread reads or writes, and the first ones
 * are on their way by then. */
template <typename F> void transport::give_memory(p2p_message *m, F move)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        buffers_[m] = mesh_.abortable->plain_buffer(m->shared.data, m->shared.len);
    }
    for_each_piece(m->shared.len, [&](size_t at, size_t bytes) {
        std::lock_guard<std::mutex> guard(lock_);
        if (revoked_)
            throw failure{COLLRUN_ERR_ABORTED, "the group was aborted"};
        move(*buffers_.at(m), at, bytes);
    });
}

/* All that Gloo did with the memory has completed. */
void transport::release(p2p_message *m, bool received)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto found = buffers_.find(m);
    if (found == buffers_.end())
        throw failure{COLLRUN_ERR_ABORTED, "the group was aborted"};
    UnboundBuffer &b = *found->second;
    for_each_piece(m->shared.len, [&](size_t, size_t) {
        if (received)
            b.waitRecv(nullptr, forever);
        else
            b.waitSend(nullptr, forever);
    });
    buffers_.erase(found);
}

/* What Gloo throws says that the connection is lost, or that the peer has said farewell: then it is
 * waited for. */
template <typename F> void transport::with_gloo(uint32_t peer, F f)
{
    try {
        f();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        if (!peers_[peer].left && !mesh_.abortable->is_lost(peer))
            return;
        take_arrivals(); /* it may have said why */
        throw failure{COLLRUN_ERR_PEER_FAILED, end_of(peer)};
    }
}

std::string transport::end_of(uint32_t peer) const
{
    return mesh_.name_of(peer) +
           (peers_[peer].left ? " has left the group" : " closed its connection");
}

/* ---- sends ---- */

packet transport::head(uint32_t type) const
{
    packet p = {};
    p.type = type;
    p.use = static_cast<uint32_t>(mesh_.use);
    return p;
}

void transport::send(p2p_message *m)
{
    throw_if_aborted();
    peer_state &p = peers_[m->shared.peer];
    if (rings_.has_arrival(m->shared.peer)) /* it may have left, or failed */
        take_arrivals();
    if (p.left)
        throw failure{COLLRUN_ERR_PEER_FAILED, end_of(m->shared.peer)};
    if (!p.queue.empty() || !start(m))
        p.queue.push_back(m);
}

/* False: there is no place for the packet. */
bool transport::start(p2p_message *m)
{
    const collrun_message &shared = m->shared;
    const bool eager = shared.len <= eager_limit;
    packet p = head(eager ? EAGER : RTS);
    p.message = shared.id;
    p.envelope = shared.envelope;
    p.len = shared.len;
    p.slot = first_slot_ + ring_slots + 2 * peers_[shared.peer].next_slot;
    bool sent = false;
    with_gloo(shared.peer, [&] {
        const void *data = eager && shared.len > 0 ? shared.data : nullptr;
        sent = rings_.send(shared.peer, p, data, false);
        if (sent && !eager)
            start_long_send(m, p.slot);
    });
    if (sent && eager)
        engine_->done(engine_->ctx, &m->shared);
    return sent;
}

void transport::start_long_send(p2p_message *m, uint64_t slot)
{
    const auto to = static_cast<int>(m->shared.peer);
    peers_[m->shared.peer].next_slot++;
    peers_[m->shared.peer].sends++;
    give_memory(
        m, [&](UnboundBuffer &data, size_t at, size_t bytes) { data.send(to, slot, at, bytes); });
    rings_.send_notice(m->shared.peer, slot + 1);
}

void transport::end_send(uint32_t id)
{
    collrun_message *shared = engine_->find(engine_->ctx, id);
    if (!shared)
        throw failure{COLLRUN_ERR_BACKEND, format("a message %u is not known", id)};
    auto *m = reinterpret_cast<p2p_message *>(shared);
    release(m, false);
    rings_.take_sent();
    peers_[shared->peer].sends--;
    engine_->done(engine_->ctx, shared);
}

/* ---- receives ---- */

void transport::post(p2p_message *m)
{
    throw_if_aborted();
    m->posted_for = m->shared.peer;
    (m->posted_for == COLLRUN_ANY_SOURCE ? any_receives_ : peers_[m->posted_for].receives)++;
}

void transport::unpost(p2p_message *m)
{
    (m->posted_for == COLLRUN_ANY_SOURCE ? any_receives_ : peers_[m->posted_for].receives)--;
}

void transport::recv(p2p_message *m, const void *data, size_t len)
{
    throw_if_aborted();
    unpost(m);
    packet p;
    std::memcpy(&p, data, sizeof p);
    if (p.type == EAGER) {
        if (len > sizeof p)
            std::memcpy(m->shared.data, static_cast<const char *>(data) + sizeof p, len - sizeof p);
        engine_->done(engine_->ctx, &m->shared);
        return;
    }
    m->posted_for = m->shared.peer;
    peers_[m->shared.peer].receives++;
    m->slot = p.slot;
    m->sender_id = p.message;
    if (!waiting_.empty() || !start_long_receive(m))
        waiting_.push_back(m);
}

/* False: there is no place for its notice. */
bool transport::start_long_receive(p2p_message *m)
{
    if (!rings_.has_notice_place())
        return false;
    with_gloo(m->shared.peer, [&] {
        const auto from = static_cast<int>(m->shared.peer);
        give_memory(m, [&](UnboundBuffer &data, size_t at, size_t bytes) {
            data.recv(from, m->slot, at, bytes);
        });
        by_notice_[rings_.post_notice(m->shared.peer, m->slot + 1)] = m;
    });
    return true;
}

void transport::end_receive(int notice)
{
    p2p_message *m = by_notice_.at(notice);
    by_notice_.erase(notice);
    rings_.free_notice(notice);
    release(m, true);
    unpost(m);
    peers_[m->shared.peer].acks.push_back(m->sender_id);
    engine_->done(engine_->ctx, &m->shared);
}

/* ---- packets ---- */

bool transport::take_arrivals()
{
    if (!rings_.collect())
        return false;
    const std::vector<rings::arrival> packets = rings_.packets();
    const std::vector<int> notices = rings_.notices();
    bool taken = !notices.empty();
    for (const rings::arrival &a : packets)
        for (uint32_t i = 0; i < a.count && take_packet(a.peer); i++)
            taken = true;
    for (const int notice : notices)
        end_receive(notice);
    return taken;
}

bool transport::take_packet(uint32_t from)
{
    const packet *p = rings_.front(from);
    if (!p)
        return false;
    const bool current = p->use == static_cast<uint32_t>(mesh_.use);
    const int status = current ? handle(from, *p) : COLLRUN_OK;
    rings_.pop(from);
    check_stored(status);
    return true;
}

int transport::handle(uint32_t from, const packet &p)
{
    switch (p.type) {
    case EAGER:
    case RTS:
        return engine_->arrived(engine_->ctx, from, &p.envelope, &p,
                                sizeof p + (p.type == EAGER ? p.len : 0));
    case CONTROL:
        handle_acks(p);
        return COLLRUN_OK;
    case FAILED:
        throw failure{static_cast<int>(p.envelope.tag),
                      std::string(reinterpret_cast<const char *>(&p + 1), p.len)};
    default:
        any_left_ = peers_[from].left = true;
        return COLLRUN_OK;
    }
}

void transport::handle_acks(const packet &p)
{
    uint32_t ids[most_acks];
    const size_t n = std::min<size_t>(p.len / sizeof ids[0], most_acks);
    std::memcpy(ids, &p + 1, n * sizeof ids[0]);
    for (size_t i = 0; i < n; i++)
        end_send(ids[i]);
}

/* Acknowledgements and credits. */
bool transport::push_acks(uint32_t to)
{
    std::vector<uint32_t> &acks = peers_[to].acks;
    const bool owes = rings_.owes(to);
    if (acks.empty() && !owes)
        return false;
    const size_t n = std::min(acks.size(), most_acks);
    packet p = head(CONTROL);
    p.len = n * sizeof acks[0];
    bool sent = false;
    try {
        sent = rings_.send(to, p, n > 0 ? acks.data() : nullptr, owes);
    } catch (const std::exception &) { /* a lost peer needs none */
        sent = true;
    }
    if (sent)
        acks.erase(acks.begin(), acks.begin() + static_cast<std::ptrdiff_t>(n));
    return sent;
}

bool transport::push()
{
    bool moved = false;
    while (!waiting_.empty() && start_long_receive(waiting_.front())) {
        waiting_.pop_front();
        moved = true;
    }
    for (uint32_t i = 0; i < mesh_.size; i++) {
        if (i == mesh_.rank)
            continue;
        while (push_acks(i))
            ;
        std::deque<p2p_message *> &queue = peers_[i].queue;
        while (!queue.empty() && start(queue.front())) {
            queue.pop_front();
            moved = true;
        }
    }
    return moved;
}

/* ---- progress ---- */

bool transport::progress(uint64_t wait_ns)
{
    for (unsigned turn = 0;; turn++) {
        throw_if_aborted();
        const bool arrived = take_arrivals();
        if (push() || arrived)
            return true;
        if (any_left_)
            check_left();
        if (wait_ns == 0 || turn > 0)
            return false;
        wait(wait_ns);
    }
}

void transport::wait(uint64_t wait_ns)
{
    timer_.start(deadline_after(wait_ns));
    const bool waited = rings_.wait();
    timer_.stop();
    if (waited)
        return;
    const struct timespec pause = {0, static_cast<long>(std::min(wait_ns, lost_pause_ns))};
    nanosleep(&pause, nullptr);
    check_lost();
}

/* All that a lost peer has sent has been taken before. */
void transport::check_lost()
{
    const uint64_t now = now_ns();
    if (now - last_check_ns_ < lost_period_ns)
        return;
    last_check_ns_ = now;
    for (uint32_t i = 0; i < mesh_.size; i++)
        if (mesh_.abortable->is_lost(i) && !take_arrivals())
            throw_if_waiting_for(i, !peers_[i].left);
}

void transport::check_left() const
{
    for (uint32_t i = 0; i < mesh_.size; i++)
        if (peers_[i].left)
            throw_if_waiting_for(i, false);
}

void transport::throw_if_waiting_for(uint32_t peer, bool any) const
{
    const auto &p = peers_[peer];
    if (p.receives > 0 || p.sends > 0 || !p.queue.empty() || (any && any_receives_ > 0))
        throw failure{COLLRUN_ERR_PEER_FAILED, end_of(peer)};
}

void transport::fail(uint32_t peer, int status, const char *text)
{
    packet p = head(FAILED);
    p.envelope.tag = static_cast<uint32_t>(status);
    p.len = std::min<size_t>(std::strlen(text), 1024);
    for (uint32_t i = 0; i < mesh_.size; i++)
        try {
            if (i != mesh_.rank && (peer == COLLRUN_ANY_SOURCE || peer == i))
                rings_.send(i, p, text, true);
        } catch (const std::exception &) { /* it is gone */
        }
    throw failure{status, text};
}

} // namespace collrun_gloo

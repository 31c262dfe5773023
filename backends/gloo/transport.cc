/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of messages. A packet that finds no place in the receiver's ring waits here, in
 * order.
 */
#include "transport.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

enum packet_type : uint32_t { EAGER, RTS, RTS_ASK, ASK, CONTROL, FAILED, LEFT };

static constexpr uint64_t flush_period_ns = 10000000;
static constexpr size_t most_acks = 64;
/* Slots of one transport of a mesh; the first ones are those of its rings. */
static constexpr uint64_t slots = 1ull << 60, ring_slots = 16;

transport::transport(mesh &owner, unsigned number, timer_thread &timers)
    : mesh_(owner), first_slot_(number * slots),
      rings_(*owner.abortable, owner.rank, owner.size, first_slot_), peers_(owner.size),
      bulk_(*owner.abortable), timer_(timers, [this] {
          wake();
          rings_.poke_flush();
      })
{
}

transport::~transport()
{
    revoke();
}

/* Unless a connection is lost, whose sends may never end. */
void transport::flush(uint64_t deadline_ns)
{
    bool lost = false;
    while (!lost && now_ns() < deadline_ns) {
        timer_.start(deadline_after(flush_period_ns));
        const bool all_left = rings_.flush();
        timer_.stop();
        if (all_left)
            return;
        lost = mesh_.abortable->lost() < mesh_.size;
    }
}

/* ---- groups ---- */

/* To all peers, also if one of them has left before: the others would take this rank for dead.
 * False: not all can be told. */
bool transport::say_left() noexcept
{
    bool told = true;
    try {
        drop_earlier();
    } catch (...) { /* the peers' packets stay */
    }
    for (uint32_t i = 0; i < peers_.size(); i++)
        try {
            if (i != mesh_.rank)
                told = rings_.send(i, head(LEFT), nullptr, true) && told;
        } catch (...) { /* it has left before */
            told = false;
        }
    return told;
}

/* The packets of earlier groups: if no group has messages, nothing else takes them, and the peers
 * find no place any more. */
void transport::drop_earlier()
{
    if (!rings_.collect())
        return;
    for (const rings::arrival &a : rings_.packets())
        for (uint32_t i = 0; i < a.count; i++) {
            const packet *p = rings_.front(a.peer);
            if (!p || p->use == static_cast<uint32_t>(mesh_.use))
                break;
            rings_.pop(a.peer);
        }
}

void transport::attach(const collrun_p2p *engine)
{
    engine_ = engine;
    any_left_ = false;
    for (peer_state &p : peers_)
        p.left = false;
}

bool transport::detach() noexcept
{
    bool idle = !aborted_ && sends_.empty() && receives_.empty();
    for (uint32_t i = 0; i < peers_.size() && idle; i++) {
        while (push_acks(i)) /* of receives that have ended since the last progress */
            ;
        idle = peers_[i].queue.empty() && peers_[i].acks.empty();
    }
    if (idle)
        idle = say_left();
    revoke();
    if (idle)
        bulk_.resume();
    engine_ = nullptr;
    any_receives_ = unmatched_ = 0;
    for (peer_state &p : peers_) {
        p.receives = 0;
        p.announced.clear();
    }
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

void transport::wake() noexcept
{
    rings_.poke();
    bulk_.poke();
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
    peer_state &to = peers_[shared.peer];
    packet p = head(eager ? EAGER : to.wants_acks ? RTS_ASK : RTS);
    p.message = m->number = to.long_messages;
    p.envelope = shared.envelope;
    p.len = shared.len;
    bool sent = false;
    with_gloo(shared.peer, [&] {
        sent = rings_.send(shared.peer, p, eager && p.len > 0 ? shared.data : nullptr, false);
        if (!sent || eager)
            return;
        to.long_messages++;
        to.sends++;
        begin_long(sends_, m);
        m->ask_ns = to.wants_acks ? 0 : now_ns() + ask_age_ns;
        bulk_.send(m, slot_of(m->number));
    });
    if (sent && eager)
        engine_->done(engine_->ctx, &m->shared);
    return sent;
}

uint64_t transport::slot_of(uint32_t number) const
{
    return first_slot_ + ring_slots + number;
}

/* Its data may have been seen to leave meanwhile. */
void transport::end_send(uint32_t to, uint32_t number)
{
    for (p2p_message *m : sends_)
        if (m->shared.peer == to && m->number == number) {
            peers_[to].wants_acks = unmatched_ > 0 || polls_ || has_queued_ || sends_.size() > 1;
            has_needed_acks_ |= peers_[to].wants_acks;
            end_long(m);
            return;
        }
}

void transport::begin_long(std::deque<p2p_message *> &queue, p2p_message *m)
{
    if (sends_.empty() && receives_.empty())
        next_look_ns_ = now_ns() + look_period_ns;
    queue.push_back(m);
}

void transport::end_long(p2p_message *m)
{
    bulk_.end(m);
    std::deque<p2p_message *> &queue = m->receives ? receives_ : sends_;
    queue.erase(std::find(queue.begin(), queue.end(), m));
    if (m->receives) {
        uncount(m);
        end_announced(peers_[m->shared.peer], m->number);
    } else {
        peers_[m->shared.peer].sends--;
    }
    engine_->done(engine_->ctx, &m->shared);
}

void transport::end_announced(peer_state &p, uint32_t number)
{
    const auto found = std::find_if(p.announced.begin(), p.announced.end(),
                                    [number](const announcement &a) { return a.number == number; });
    if (found->ack_wanted)
        p.acks.push_back(number);
    p.announced.erase(found);
}

/* A sender that waits for packets does not see whether its data leaves. */
void transport::ask_for_acks()
{
    const uint64_t now = sends_.empty() ? 0 : now_ns();
    for (p2p_message *m : sends_) {
        if (m->ask_ns == 0 || now < m->ask_ns)
            continue;
        packet p = head(ASK);
        p.message = m->number;
        try {
            if (rings_.send(m->shared.peer, p, nullptr, false))
                m->ask_ns = 0;
        } catch (const std::exception &) { /* it is gone, and may have the data: progress looks */
            m->ask_ns = 0;
        }
    }
}

/* An ACK that is asked for after the end of the receive. */
void transport::handle_ask(peer_state &p, uint32_t number)
{
    for (announcement &a : p.announced)
        if (a.number == number) {
            a.ack_wanted = true;
            return;
        }
    p.acks.push_back(number);
}

/* ---- receives ---- */

void transport::post(p2p_message *m)
{
    throw_if_aborted();
    m->posted_for = m->shared.peer;
    (m->posted_for == COLLRUN_ANY_SOURCE ? any_receives_ : peers_[m->posted_for].receives)++;
    unmatched_++;
}

void transport::unpost(p2p_message *m)
{
    uncount(m);
    unmatched_--;
}

void transport::uncount(const p2p_message *m)
{
    (m->posted_for == COLLRUN_ANY_SOURCE ? any_receives_ : peers_[m->posted_for].receives)--;
}

void transport::recv(p2p_message *m, const void *data, size_t len)
{
    throw_if_aborted();
    unpost(m);
    packet p;
    std::memcpy(&p, data, sizeof p);
    if (p.len != m->shared.len)
        throw malformed(m->shared.peer);
    if (p.type == EAGER) {
        if (len > sizeof p)
            std::memcpy(m->shared.data, static_cast<const char *>(data) + sizeof p, len - sizeof p);
        engine_->done(engine_->ctx, &m->shared);
        return;
    }
    m->posted_for = m->shared.peer;
    peers_[m->shared.peer].receives++;
    m->number = p.message;
    begin_long(receives_, m);
    try {
        bulk_.recv(m, slot_of(m->number));
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) { /* the peer is gone: progress says so, if it has not */
    }
}

/* ---- packets ---- */

bool transport::take_arrivals()
{
    bool taken = false;
    if (rings_.collect()) {
        const std::vector<rings::arrival> packets = rings_.packets();
        for (const rings::arrival &a : packets)
            for (uint32_t i = 0; i < a.count && take_packet(a.peer); i++)
                taken = true;
    }
    for (size_t i = 0; i < receives_.size();) {
        const bulk::arrival found = bulk_.has_arrived(receives_[i]);
        looks_now_ |= found == bulk::arrival::maybe;
        if (found == bulk::arrival::yes)
            end_long(receives_[i]);
        else
            i++;
        taken |= found == bulk::arrival::yes;
    }
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

/* Its lengths agree: nothing reads or writes past a place. */
static bool is_well_formed(const packet &p)
{
    const bool announces = p.type == RTS || p.type == RTS_ASK;
    return announces ? p.len > eager_limit && p.data_len == 0 : p.len == p.data_len;
}

int transport::handle(uint32_t from, const packet &p)
{
    if (!is_well_formed(p) || !rings_.has_sent(from, p))
        throw malformed(from);
    switch (p.type) {
    case RTS:
    case RTS_ASK:
        peers_[from].announced.push_back({p.message, p.type == RTS_ASK});
        [[fallthrough]];
    case EAGER:
        return engine_->arrived(engine_->ctx, from, &p.envelope, &p,
                                sizeof p + (p.type == EAGER ? p.len : 0));
    case ASK:
        handle_ask(peers_[from], p.message);
        return COLLRUN_OK;
    case CONTROL:
        handle_acks(from, p);
        return COLLRUN_OK;
    case FAILED:
        throw failure{static_cast<int>(p.envelope.tag),
                      std::string(reinterpret_cast<const char *>(&p + 1), p.len)};
    default:
        any_left_ = peers_[from].left = true;
        return COLLRUN_OK;
    }
}

void transport::handle_acks(uint32_t from, const packet &p)
{
    uint32_t ids[most_acks];
    const size_t n = std::min<size_t>(p.len / sizeof ids[0], most_acks);
    std::memcpy(ids, &p + 1, n * sizeof ids[0]);
    for (size_t i = 0; i < n; i++)
        end_send(from, ids[i]);
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
    has_queued_ = false;
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
        has_queued_ |= !queue.empty();
    }
    return moved;
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of posted receives, and credits.
 */
#include "rings.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sched.h>
#include <sys/mman.h>

namespace collrun_gloo
{

using gloo::transport::UnboundBuffer;

/* Places of each size, and the least first window. */
struct ring_size {
    size_t bytes;
    uint32_t places, least_window;
};
static constexpr ring_size sizes[ring_sizes] = {{512, 48, 6}, {eager_limit + 128, 16, 1}};
static constexpr uint32_t first_windows = 512; /* of the first size, to all peers together */

/* Of the packets in a ring: they soon pass 2^32, so each use shows that this harms nothing. */
static constexpr uint64_t first_number = (1ull << 32) - 100;

static uint32_t first_window(unsigned size, uint32_t nranks)
{
    const uint32_t share = first_windows / nranks * sizes[size].places / sizes[0].places;
    return std::min(std::max(share, sizes[size].least_window), sizes[size].places);
}

static uint32_t grown(uint32_t window, unsigned size)
{
    return std::min(window + 1, sizes[size].places);
}

/* Of a window of the first size: less than half of it, so that data in the others makes credits
 * due. */
static constexpr uint32_t reserved_places(uint32_t window)
{
    return std::max(2u, window / 6);
}
static_assert(reserved_places(sizes[0].least_window) < sizes[0].least_window / 2, "credits flow");

/* Turns, for a packet whose mark is there. */
static constexpr unsigned patience = 1000;

static constexpr size_t peer_bytes()
{
    size_t bytes = 0;
    for (const ring_size &s : sizes)
        bytes += s.bytes * s.places;
    return bytes;
}

/* Gloo's thread writes into places in a system call, which no tool can follow. */
__attribute__((no_sanitize("thread"))) static uint64_t word_at(const char *p)
{
    return *reinterpret_cast<const volatile uint64_t *>(p);
}

static size_t mark_offset(size_t data_len)
{
    return sizeof(packet) + (data_len + mark_bytes - 1) / mark_bytes * mark_bytes;
}

/* No data is likely to look like it. */
static uint64_t mark_of(uint64_t sequence)
{
    return mix(sequence, sizeof(packet));
}

/* The packet may be there in part. */
static bool is_marked(const char *place, size_t bytes)
{
    const uint64_t sequence = word_at(place + offsetof(packet, sequence));
    const size_t at =
        mark_offset(static_cast<uint32_t>(word_at(place + offsetof(packet, message)) >> 32));
    return sequence != 0 && at + mark_bytes <= bytes && word_at(place + at) == mark_of(sequence);
}

static char *map(size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        throw std::bad_alloc();
    return static_cast<char *>(p);
}

rings::rings(abortable_context &context, uint32_t rank, uint32_t size, uint64_t first_slot)
    : rank_(rank), size_(size), first_slot_(first_slot), region_(size * peer_bytes()),
      in_memory_(map(region_)), out_memory_(map(region_)),
      in_(context.plain_buffer(in_memory_, region_)),
      out_(context.plain_buffer(out_memory_, region_)), peers_(size)
{
    for (uint32_t p = 0; p < size; p++) {
        peers_[p].next_sequence = 0;
        if (p != rank)
            open(p);
    }
}

void rings::open(uint32_t peer)
{
    peer_state &p = peers_[peer];
    for (unsigned s = 0; s < ring_sizes; s++) {
        p.out_window[s] = p.in_window[s] = p.told_window[s] = first_window(s, size_);
        p.sent[s] = p.acked[s] = p.taken[s] = p.told[s] = first_number;
        for (uint32_t i = 0; i < p.in_window[s]; i++)
            repost(peer, s, first_number + i);
    }
}

rings::~rings()
{
    in_.reset();
    out_.reset();
    munmap(in_memory_, region_);
    munmap(out_memory_, region_);
}

size_t rings::offset(uint32_t peer, unsigned size, uint64_t number) const
{
    size_t at = peer * peer_bytes();
    for (unsigned s = 0; s < size; s++)
        at += sizes[s].bytes * sizes[s].places;
    return at + number % sizes[size].places * sizes[size].bytes;
}

char *rings::in_place(uint32_t peer, unsigned size, uint64_t number) const
{
    return in_memory_ + offset(peer, size, number);
}

void rings::post(uint32_t peer, unsigned size, uint64_t number)
{
    in_->recv(static_cast<int>(peer), first_slot_ + size, offset(peer, size, number),
              sizes[size].bytes);
}

/* A peer whose connection is lost sends no more. */
void rings::repost(uint32_t peer, unsigned size, uint64_t number)
{
    try {
        post(peer, size, number);
    } catch (const std::exception &) {
        lost_ = true;
    }
}

/* ---- sending ---- */

/* The smallest size with a place for a packet; -1: none. */
int rings::fitting(const peer_state &p, size_t len, bool reserved) const
{
    for (unsigned s = 0; s < ring_sizes; s++) {
        const uint32_t window = p.out_window[s];
        const uint32_t places = window - (s > 0 || reserved ? 0 : reserved_places(window));
        if (sizeof(packet) + len + mark_bytes <= sizes[s].bytes && p.sent[s] - p.acked[s] < places)
            return static_cast<int>(s);
    }
    return -1;
}

bool rings::send(uint32_t to, const packet &what, const void *data, bool reserved)
{
    peer_state &p = peers_[to];
    const size_t len = data ? what.len : 0;
    const int found = fitting(p, len, reserved);
    if (found < 0)
        return false;
    const auto size = static_cast<unsigned>(found);
    const size_t at = offset(to, size, p.sent[size]);
    packet head = what;
    head.sequence = ++p.sent_sequence;
    head.data_len = static_cast<uint32_t>(len);
    for (unsigned s = 0; s < ring_sizes; s++) {
        p.told[s] = p.taken[s];
        head.taken[s] = static_cast<uint32_t>(p.taken[s]);
        p.told_window[s] = p.in_window[s];
    }
    std::memcpy(out_memory_ + at, &head, sizeof head);
    if (len > 0)
        std::memcpy(out_memory_ + at + sizeof head, data, len);
    *reinterpret_cast<uint64_t *>(out_memory_ + at + mark_offset(len)) = mark_of(head.sequence);
    p.sent[size]++;
    out_->send(static_cast<int>(to), first_slot_ + size, at, mark_offset(len) + mark_bytes);
    unfinished_++;
    return true;
}

bool rings::owes(uint32_t to) const
{
    const peer_state &p = peers_[to];
    for (unsigned s = 0; s < ring_sizes; s++)
        if (p.taken[s] - p.told[s] >= std::max(1u, p.told_window[s] / 2))
            return true;
    return false;
}

/* ---- receiving ---- */

uint32_t rings::marks(uint32_t from, unsigned s) const
{
    uint32_t n = 0;
    while (n < sizes[s].places &&
           is_marked(in_place(from, s, peers_[from].taken[s] + n), sizes[s].bytes))
        n++;
    return n;
}

bool rings::has_arrival(uint32_t from) const
{
    bool any = false;
    for (unsigned s = 0; s < ring_sizes; s++)
        any |= marks(from, s) > 0;
    return any;
}

size_t rings::look()
{
    size_t n = 0;
    packets_.clear();
    for (uint32_t p = 0; p < size_; p++) {
        uint32_t count = 0;
        for (unsigned s = 0; p != rank_ && s < ring_sizes; s++)
            count += peers_[p].seen[s] = marks(p, s);
        if (count > 0)
            packets_.push_back({p, count});
        n += count;
    }
    return n;
}

/* Takes a completion from Gloo. `lost`: there is none yet, and Gloo does not wait any more. */
rings::outcome rings::take_completion()
{
    try {
        if (!in_->waitRecv(nullptr, forever))
            return outcome::poked;
        completions_++;
        return outcome::completed;
    } catch (const std::exception &) {
        lost_ = true;
        return outcome::lost;
    }
}

/* All that has completed is marked. If as many are marked as have completed, they are the same.
 * Gloo's thread may have read a packet, and have no core to report it: the caller comes again. */
bool rings::collect()
{
    for (unsigned turn = 0;; turn++) {
        const size_t marked = look();
        if (marked == completions_)
            return marked > 0;
        const outcome taken = take_completion();
        poked_ |= taken == outcome::poked;
        if (taken == outcome::poked)
            return false;
        if (taken == outcome::completed)
            continue;
        if (turn == patience) {
            poked_ = true;
            return false;
        }
        sched_yield();
    }
}

const packet *rings::front(uint32_t from) const
{
    const peer_state &p = peers_[from];
    for (unsigned s = 0; s < ring_sizes; s++) {
        const char *place = in_place(from, s, p.taken[s]);
        const auto *head = reinterpret_cast<const packet *>(place);
        if (p.seen[s] > 0 && head->sequence == p.next_sequence + 1)
            return head;
    }
    return nullptr;
}

bool rings::has_sent(uint32_t peer, const packet &from) const
{
    const peer_state &p = peers_[peer];
    for (unsigned s = 0; s < ring_sizes; s++)
        if (from.taken[s] - static_cast<uint32_t>(p.acked[s]) > p.sent[s] - p.acked[s])
            return false;
    return true;
}

void rings::credit(peer_state &p, const packet &from)
{
    for (unsigned s = 0; s < ring_sizes; s++)
        while (static_cast<uint32_t>(p.acked[s]) != from.taken[s]) {
            p.acked[s]++;
            p.out_window[s] = grown(p.out_window[s], s);
            take_sent();
        }
}

/* Of a send that has arrived: Gloo reports it now, or any moment. A poke that came too late for
 * flush() ends one wait: it must not be taken for the report, which flush() would count then. */
void rings::take_sent()
{
    unfinished_--;
    try {
        while (!out_->waitSend(nullptr, forever))
            ;
    } catch (const std::exception &) { /* another connection is lost */
    }
}

void rings::pop(uint32_t from)
{
    peer_state &p = peers_[from];
    const packet *head = front(from);
    for (unsigned s = 0; s < ring_sizes; s++) {
        char *place = in_place(from, s, p.taken[s]);
        if (reinterpret_cast<const char *>(head) != place)
            continue;
        credit(p, *head);
        /* Of the next packet here, a part may look as if it were of this one. */
        *reinterpret_cast<uint64_t *>(place + mark_offset(head->data_len)) = 0;
        *reinterpret_cast<uint64_t *>(place + offsetof(packet, sequence)) = 0;
        completions_--;
        p.seen[s]--;
        p.next_sequence++;
        repost(from, s, p.taken[s] + p.in_window[s]);
        const uint32_t window = grown(p.in_window[s], s);
        p.taken[s]++;
        if (window > p.in_window[s])
            repost(from, s, p.taken[s] + window - 1);
        p.in_window[s] = window;
        return;
    }
}

/* ---- waiting ---- */

/* A poke may have ended a wait of collect(), for which it was not meant. */
bool rings::wait()
{
    return take_poke() || (!lost_ && take_completion() != outcome::lost);
}

bool rings::flush()
{
    try {
        while (unfinished_ > 0 && out_->waitSend(nullptr, forever))
            unfinished_--;
    } catch (const std::exception &) { /* a peer is gone, and the others cannot be waited for */
        return true;
    }
    return unfinished_ == 0;
}

} // namespace collrun_gloo

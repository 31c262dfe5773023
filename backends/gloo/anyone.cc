/* SPDX-License-Identifier: Apache-2.0
 *
 * Crowds. All receives of a crowd share one Gloo buffer, so that one wait is for all of them. Gloo
 * does not say reliably which of them has completed; every message starts with a word that is not
 * 0, and its place is cleared before, so those that have begun to arrive can be seen, and when
 * there are as many of these as completions, they are the ones.
 *
 * When a rank leaves in the wrong moment the shared buffer carries its exception for good; then the
 * crowd looks every few milliseconds instead of waiting.
 */
#include "anyone.h"

#include "group.h"

#include <algorithm>

namespace collrun_gloo
{

crowd::crowd(mesh &net, const signature &what, size_t first_bytes)
    : shape(what), net_(net), len_((first_bytes + 7) / 8 * 8),
      memory_(new char[len_ * static_cast<size_t>(net.size)]()),
      in_(net.make_buffer(memory_.get(), len_ * static_cast<size_t>(net.size))),
      idle_(net.make_buffer(&idle_memory_, 1)), guests_(static_cast<size_t>(net.size)),
      owed_(guests_.size())
{
}

uint64_t *crowd::word(int from) const
{
    return reinterpret_cast<uint64_t *>(memory_.get() + static_cast<size_t>(from) * len_);
}

bool crowd::reserve(int from, uint64_t slot)
{
    guest &g = guests_[static_cast<size_t>(from)];
    if (g.slot != slot || g.struck)
        return false;
    return g.reserved = true;
}

/* A receive that was posted for a message of another shape than came in its place is lost; its
 * memory is used again, since nothing can meet it any more. */
void crowd::expect(int from, uint64_t slot)
{
    guest &g = guests_[static_cast<size_t>(from)];
    if (g.slot == slot || g.reserved)
        return;
    g = guest();
    g.slot = slot;
    owed_[static_cast<size_t>(from)] = 1;
    *word(from) = 0;
    net_.recv_any(*in_, {from}, slot, static_cast<size_t>(from) * len_, len_);
}

const char *crowd::part(int from) const
{
    return reinterpret_cast<const char *>(word(from));
}

void crowd::remove(int from)
{
    guests_[static_cast<size_t>(from)] = guest();
    owed_[static_cast<size_t>(from)] = 0;
}

/* One that has begun to arrive still completes, and must then be told from others. */
void crowd::strike(int from)
{
    guest &g = guests_[static_cast<size_t>(from)];
    owed_[static_cast<size_t>(from)] = 0;
    g.struck = true;
}

/* Attributes completions. */
void crowd::look()
{
    std::vector<guest *> begun;
    for (size_t i = 0; i < guests_.size(); i++) {
        guest &g = guests_[i];
        if (g.slot != 0 && !g.here &&
            __atomic_load_n(word(static_cast<int>(i)), __ATOMIC_ACQUIRE) != 0)
            begun.push_back(&g);
    }
    if (begun.size() != completed_)
        return;
    for (guest *g : begun)
        g->here = true;
    completed_ = 0;
}

/* Takes turns, so that nobody is overlooked for long. */
int crowd::find(int from)
{
    for (int k = 1; k <= net_.size; k++) {
        const int i = (last_ + k) % net_.size;
        const guest &g = guests_[static_cast<size_t>(i)];
        if (g.here && !g.struck && (from == no_peer ? !g.reserved : i == from))
            return last_ = i;
    }
    return no_peer;
}

bool crowd::wait_once(uint64_t until)
{
    try {
        return net_.wait(*in_, mesh::receiving, {no_peer, &owed_}, until);
    } catch (const failure &f) {
        if (f.status == COLLRUN_ERR_ABORTED || !broken_)
            throw;
        net_.wait(*idle_, mesh::receiving, {}, 1); /* to the next turn of the watch */
        return false;
    }
}

int crowd::wait(int from, uint64_t until)
{
    try {
        while (find(from) == no_peer) {
            const uint64_t start = now_ns();
            if (wait_once(until)) {
                completed_++;
                look();
            } else if (!broken_ || start >= until) {
                return no_peer;
            }
        }
        return last_;
    } catch (const failure &) {
        broken_ = true;
        throw;
    }
}

/* ---- p2p's side of it ---- */

crowd &p2p::crowd_of(const signature &shape, size_t first_bytes)
{
    for (const auto &c : crowds_)
        if (same_call(c->shape, shape))
            return *c;
    crowds_.push_back(std::make_unique<crowd>(group_.net(), shape, first_bytes));
    return *crowds_.back();
}

/* Expects the next message of everyone who has not left. */
void p2p::invite(crowd &c, const signature &shape)
{
    bool someone = false;
    for (int r = 0; r < group_.size(); r++) {
        if (r == group_.rank())
            continue;
        read_will(r);
        if (of(r).will_read) {
            c.strike(r);
            continue;
        }
        signature what = shape;
        what.sequence = of(r).next_in[shape.tag];
        try {
            c.expect(r, slot_of(what));
            someone = true;
        } catch (const failure &f) {
            if (f.status == COLLRUN_ERR_ABORTED)
                throw;
            c.strike(r); /* it is gone; what it left, if anything, comes by its will */
        }
    }
    if (!someone)
        throw failure{COLLRUN_ERR_PEER_FAILED, no_peer, "every other rank has left the group"};
}

} // namespace collrun_gloo

/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines. Gloo has no way to ask whether a receive has completed, so the buffer is cleared
 * before it is posted, and a nonzero first word means that the message has begun to arrive; its
 * completion is then a matter of microseconds, and waiting for it is what makes the rest safe to
 * read.
 */
#include "control.h"

namespace collrun_gloo
{

static constexpr uint64_t soon = 5 * millisecond;

control::control(mesh &net) : net_(net), lines_(static_cast<size_t>(net.size))
{
}

control::line &control::of(int peer)
{
    auto &l = lines_[static_cast<size_t>(peer)];
    if (!l)
        l = std::make_unique<line>();
    return *l;
}

void control::listen(int peer) noexcept
{
    try {
        line &l = of(peer);
        if (l.receiver)
            return;
        l.receiver = net_.make_buffer(&l.in, sizeof(l.in));
        net_.await_letter(peer, {*l.receiver, slot_control, 0, sizeof(l.in)}, mesh::peer_connects);
    } catch (...) { /* a broken connection shows where it is needed */
    }
}

bool control::read(int peer, word *out) noexcept
{
    try {
        line &l = of(peer);
        if (!l.receiver || __atomic_load_n(&l.in.call.magic, __ATOMIC_ACQUIRE) == 0)
            return false;
        if (!net_.wait(*l.receiver, mesh::receiving, {peer, nullptr}, now_ns() + soon))
            return false;
        *out = l.in;
        l.in = word();
        try {
            net_.await_letter(peer, {*l.receiver, slot_control, 0, sizeof(l.in)},
                              mesh::peer_connects);
        } catch (const failure &) { /* it has left: these were its last words */
        }
        return out->call.magic == signature_magic;
    } catch (...) {
        return false;
    }
}

bool control::taken(int peer, line &l, uint64_t until)
{
    if (l.telling && net_.wait(*l.sender, mesh::sending, {peer, nullptr}, until))
        l.telling = false;
    return !l.telling;
}

void control::tell(int peer, const word &w) noexcept
{
    try {
        line &l = of(peer);
        if (!l.sender)
            l.sender = net_.make_buffer(&l.out, sizeof(l.out));
        if (!taken(peer, l, now_ns() + soon))
            return;
        l.out = w;
        net_.offer(peer, {*l.sender, slot_control, 0, sizeof(l.out)});
        l.telling = true;
    } catch (...) { /* as above */
    }
}

void control::settle(uint64_t until) noexcept
{
    for (size_t i = 0; i < lines_.size(); i++) {
        try {
            if (lines_[i] && !taken(static_cast<int>(i), *lines_[i], until))
                return;
        } catch (...) { /* this peer is gone; the others may still listen */
        }
    }
}

} // namespace collrun_gloo

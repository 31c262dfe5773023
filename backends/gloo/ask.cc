/* SPDX-License-Identifier: Apache-2.0
 *
 * Why does nobody take or send this message? Both ends tell each other the shape of what they are
 * stuck with. Messages of a pair and tag are numbered, so two ends of the same number with
 * different shapes are a mismatch, whatever else is under way.
 */
#include "group.h"
#include "p2p.h"

namespace collrun_gloo
{

static constexpr size_t asked_at_once = 8;

static bool same_message(const signature &a, const signature &b)
{
    return a.tag == b.tag && a.sequence == b.sequence;
}

static bool same_shape(const signature &a, const signature &b)
{
    return a.dtype == b.dtype && a.count == b.count;
}

void p2p::mismatch(int with, bool sending, const signature &mine, const signature &theirs)
{
    signature own = mine, other = theirs;
    own.kind = sending ? COLLRUN_SEND : COLLRUN_RECV;
    other.kind = sending ? COLLRUN_RECV : COLLRUN_SEND;
    throw failure{COLLRUN_ERR_MISMATCH, with,
                  format("this rank called %s, %s called %s", describe(own).c_str(),
                         group_.net().name_of(with).c_str(), describe(other).c_str())};
}

const signature *p2p::sent_to(const batch &b, int to, const signature &number) const
{
    for (const auto &i : b)
        if (i->sending && !i->done && i->peer == to && same_message(i->what, number))
            return &i->what;
    return nullptr;
}

/* By name, or with the help of `anyone` by a receive from anyone. */
const signature *p2p::awaited_from(const batch &b, int from, const signature &number,
                                   signature *anyone)
{
    for (const auto &i : b)
        if (!i->sending && !i->done && !i->waiting && i->peer == from &&
            same_message(i->what, number))
            return &i->what;
    return awaited_from_anyone(b, from, number, anyone) ? anyone : nullptr;
}

/* The next message of `from` with this number's tag is what a receive from anyone waits for: fills
 * in the shape that it expects. False as well if another one expects this very shape. */
bool p2p::awaited_from_anyone(const batch &b, int from, const signature &theirs, signature *out)
{
    bool any = false;
    if (theirs.sequence != of(from).next_in[theirs.tag])
        return false;
    for (const auto &i : b) {
        if (i->peer != no_peer || i->done || i->what.tag != theirs.tag)
            continue;
        if (same_shape(i->what, theirs))
            return false;
        *out = i->what;
        out->sequence = theirs.sequence;
        any = true;
    }
    return any;
}

void p2p::hear_verdict(int from, const word &theirs)
{
    signature wanted = theirs.call;
    wanted.kind = COLLRUN_SEND;
    mismatch(from, true, theirs.other, wanted);
}

/* Letters that no call has asked for, but one has that should have met them: the sender has gone on
 * and is told in its next call. */
void p2p::look_at_letters(batch &b, int from)
{
    for (const signature &theirs : group_.net().unasked_letters(from)) {
        signature anyone;
        const signature *mine = awaited_from(b, from, theirs, &anyone);
        if (!mine || same_call(*mine, theirs))
            continue;
        signature call = *mine;
        call.kind = COLLRUN_RECV;
        group_.lines().tell(from, {call, theirs, group_.rank(), from});
        mismatch(from, false, *mine, theirs);
    }
}

void p2p::hear(batch &b, int from)
{
    word theirs;
    look_at_letters(b, from);
    while (group_.lines().read(from, &theirs)) {
        const bool sending = theirs.call.kind == COLLRUN_RECV; /* this rank, of that message */
        if (theirs.is_verdict() && theirs.call.kind >= COLLRUN_SEND)
            hear_verdict(from, theirs);
        if (!sending && theirs.call.kind != COLLRUN_SEND)
            continue;
        signature anyone;
        const signature *mine =
            sending ? sent_to(b, from, theirs.call) : awaited_from(b, from, theirs.call, &anyone);
        signature shape = theirs.call;
        shape.kind = COLLRUN_SEND;
        if (!mine || same_call(*mine, shape))
            continue;
        signature answer = *mine;
        answer.kind = sending ? COLLRUN_SEND : COLLRUN_RECV;
        group_.lines().tell(from, {answer, {}, no_peer, no_peer});
        mismatch(from, sending, *mine, shape);
    }
}

/* Whoever has sent something that a receive from anyone does not take says so. */
void p2p::hear_everyone(batch &b)
{
    for (int r = 0; r < group_.size(); r++) {
        if (r == group_.rank())
            continue;
        group_.lines().listen(r);
        hear(b, r);
    }
}

void p2p::ask(batch &b)
{
    size_t asked = 0;
    for (const auto &i : b) {
        if (i->done || i->waiting)
            continue;
        if (asked++ == asked_at_once)
            return;
        signature mine = i->what;
        mine.kind = i->sending ? COLLRUN_SEND : COLLRUN_RECV;
        group_.lines().listen(i->peer);
        hear(b, i->peer);
        group_.lines().tell(i->peer, {mine, {}, no_peer, no_peer});
    }
}

} // namespace collrun_gloo

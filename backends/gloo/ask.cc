/* SPDX-License-Identifier: Apache-2.0
 *
 * Why does nobody take or send this message? Both ends tell each other the shape of what they are
 * stuck with. That another message is in the way, or has just come through, is normal; it is a
 * mismatch only if the peer's word is not stale. Every word carries how many messages the pair had
 * finished in that direction: if that is still so, nothing has moved since.
 */
#include "group.h"
#include "p2p.h"

#include <algorithm>

namespace collrun_gloo
{

static constexpr size_t asked_at_once = 8;

/* What the peer of `i` should know. */
signature p2p::announcement(const item &i)
{
    signature s = i.what;
    s.kind = i.sending ? COLLRUN_SEND : COLLRUN_RECV;
    s.sequence = i.sending ? of(i.peer).sent : of(i.peer).got;
    return s;
}

void p2p::mismatch(int with, const signature &theirs, const signature &mine)
{
    const bool sends = mine.kind == COLLRUN_SEND;
    signature other = theirs;
    other.kind = sends ? COLLRUN_RECV : COLLRUN_SEND;
    throw failure{COLLRUN_ERR_MISMATCH, with,
                  format("this rank called %s, %s called %s", describe(mine).c_str(),
                         group_.net().name_of(with).c_str(), describe(other).c_str())};
}

/* Copies that have been taken count as sent. */
void p2p::settle_copies(int to)
{
    while (!of(to).copies.empty())
        if (!reclaim(to, 0, 0))
            return;
}

/* The peer waits for a message of this rank: is it the oldest one of that tag? */
void p2p::hear_receiver(batch &b, int from, const signature &theirs)
{
    settle_copies(from);
    if (theirs.sequence != of(from).sent)
        return;
    const signature *oldest = nullptr;
    for (const auto &c : of(from).copies)
        if (!oldest && c->what.tag == theirs.tag)
            oldest = &c->what;
    for (const auto &i : b)
        if (!oldest && i->sending && !i->done && i->peer == from && i->what.tag == theirs.tag)
            oldest = &i->what;
    signature wanted = theirs;
    wanted.kind = COLLRUN_SEND;
    if (!oldest || same_call(*oldest, wanted))
        return;
    signature mine = *oldest;
    mine.sequence = of(from).sent;
    group_.lines().tell(from, mine);
    mismatch(from, theirs, mine);
}

/* The peer has a message for this rank that nobody takes: is another one expected? */
void p2p::hear_sender(batch &b, int from, const signature &theirs)
{
    if (theirs.sequence != of(from).got)
        return;
    for (const auto &i : b) {
        if (i->sending || i->done || i->peer != from || i->what.tag != theirs.tag)
            continue;
        if (same_call(i->what, theirs))
            return;
        signature mine = announcement(*i);
        group_.lines().tell(from, mine);
        mismatch(from, theirs, mine);
    }
}

void p2p::hear(batch &b, int from)
{
    signature theirs;
    while (group_.lines().read(from, &theirs)) {
        if (theirs.kind == COLLRUN_RECV)
            hear_receiver(b, from, theirs);
        else if (theirs.kind == COLLRUN_SEND)
            hear_sender(b, from, theirs);
    }
}

void p2p::ask(batch &b)
{
    size_t asked = 0;
    for (const auto &i : b) {
        if (i->done || i->peer == no_peer || asked++ == asked_at_once)
            continue;
        if (i->sending)
            settle_copies(i->peer);
        group_.lines().listen(i->peer);
        hear(b, i->peer);
        group_.lines().tell(i->peer, announcement(*i));
    }
}

} // namespace collrun_gloo

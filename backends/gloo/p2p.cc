/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of one batch: planned, posted, waited for until all are done. Gloo moves what is posted
 * by itself, so this thread waits for one call after the other; only the rest of a large message
 * from anyone is posted when its sender is known, and then the calls take turns of 10 ms.
 */
#include "p2p.h"

#include "group.h"
#include "transfer.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

static constexpr size_t most_copies = 64, most_copied = 48u << 10; /* per peer, not yet taken */
static constexpr uint64_t turn = 10 * millisecond, longest_turn = 100 * millisecond;
static constexpr uint64_t longest_silence = 1000 * millisecond;
static constexpr unsigned most_patience = 4, step_rest = 1;

static signature shape_of(const collrun_call &call)
{
    signature s = {};
    s.magic = signature_magic;
    s.kind = COLLRUN_SEND;
    s.dtype = static_cast<uint8_t>(call.dtype);
    s.root = no_peer;
    s.tag = call.tag;
    s.count = call.count;
    return s;
}

/* A message that is not small but not long either has no rest: a second part would cost more than
 * its copy does. */
static size_t in_first(size_t bytes)
{
    return bytes <= most_in_first ? bytes : first_payload;
}

/* ---- messages to oneself ---- */

/* True if the call is one, and then it is done. */
bool p2p::local(const collrun_call &call)
{
    const signature what = shape_of(call);
    const size_t bytes = call.count * group_.net().services->dtype_size(call.dtype);
    const bool any = call.kind == COLLRUN_RECV_ANY;
    if (!any && call.peer != group_.rank())
        return false;
    if (call.kind == COLLRUN_SEND) {
        const char *data = static_cast<const char *>(call.send);
        notes_.push_back({what, {data, data + bytes}});
        return true;
    }
    const auto n = std::find_if(notes_.begin(), notes_.end(),
                                [&](const note &o) { return o.what.tag == what.tag; });
    if (n == notes_.end() && any && group_.size() > 1)
        return false;
    if (n == notes_.end())
        throw failure{COLLRUN_ERR_INVALID, no_peer,
                      "a receive from this rank itself, which has sent nothing to itself"};
    if (!same_call(n->what, what))
        mismatch(group_.rank(), false, what, n->what);
    if (bytes > 0)
        std::memcpy(call.recv, n->bytes.data(), bytes);
    if (any && call.source)
        *call.source = group_.rank();
    notes_.erase(n);
    return true;
}

/* ---- posting ---- */

void p2p::plan(batch &b, const collrun_call &call)
{
    auto i = std::make_unique<item>();
    i->call = &call;
    i->what = shape_of(call);
    i->bytes = call.count * group_.net().services->dtype_size(call.dtype);
    i->sending = call.kind == COLLRUN_SEND;
    if (call.kind != COLLRUN_RECV_ANY) {
        i->peer = call.peer;
        peer &p = of(i->peer);
        i->what.sequence = (i->sending ? p.next_out : p.next_in)[call.tag]++;
    }
    b.push_back(std::move(i));
}

void p2p::forget(peer &p, size_t k)
{
    p.copied -= p.copies[k]->len;
    p.copies.erase(p.copies.begin() + static_cast<std::ptrdiff_t>(k));
}

/* Room for one more copy that the sender need not wait for. A peer that is gone takes no room. To
 * look whether the oldest has been taken is to wait for it for a moment; one that has not been
 * taken is not looked at again in this batch. */
bool p2p::make_room(int to, size_t bytes)
{
    peer &p = of(to);
    while (!p.crowded && !p.copies.empty() &&
           (p.copied + bytes > most_copied || p.copies.size() == most_copies)) {
        try {
            p.crowded = !group_.net().wait(*p.copies[0]->out, mesh::sending, {to, nullptr}, 0);
        } catch (const failure &f) {
            if (f.status == COLLRUN_ERR_ABORTED)
                throw;
        }
        if (!p.crowded)
            forget(p, 0);
    }
    return !p.crowded;
}

void p2p::post_small_send(item &i)
{
    auto c = std::make_unique<copy>();
    c->what = i.what;
    c->len = i.bytes;
    c->bytes = std::move(i.space);
    c->out = std::move(i.first);
    i.out = c.get();
    peer &p = of(i.peer);
    p.copied += c->len;
    p.copies.push_back(std::move(c));
    group_.net().send(*i.out->out, i.peer, slot_of(i.what), 0, first_word_bytes + i.bytes);
}

void p2p::post_send(item &i)
{
    const size_t first = in_first(i.bytes), len = first_word_bytes + first;
    const bool small = i.bytes <= first_payload;
    i.space.reset(new char[len]);
    std::memcpy(i.space.get(), &first_word, first_word_bytes);
    if (first > 0)
        std::memcpy(i.space.get() + first_word_bytes, i.call->send, first);
    i.first = group_.net().make_buffer(i.space.get(), len);
    if (small && make_room(i.peer, i.bytes))
        return post_small_send(i);
    group_.net().send(*i.first, i.peer, slot_of(i.what), 0, len);
    i.parts = 1;
    post_rest(i);
}

void p2p::post_recv(item &i)
{
    const size_t len = first_word_bytes + in_first(i.bytes);
    if (i.peer == no_peer) {
        i.any = &crowd_of(i.what, len);
        return invite(*i.any, i.what);
    }
    const uint64_t slot = slot_of(i.what);
    for (const auto &c : crowds_)
        if (same_call(c->shape, i.what) && c->reserve(i.peer, slot))
            i.any = c.get();
    if (!i.any) {
        i.space.reset(new char[len]);
        i.first = group_.net().make_buffer(i.space.get(), len);
        group_.net().recv(*i.first, i.peer, slot, 0, len);
        i.parts = 1;
    }
    post_rest(i);
}

void p2p::post_or_inherit(item &i)
{
    if (i.peer == no_peer && inherit(i))
        return;
    try {
        post_recv(i);
    } catch (const failure &f) {
        if (f.status != COLLRUN_ERR_PEER_FAILED || !inherit(i))
            throw;
    }
}

/* If there is one. Its receiver knows from whom it comes, so it goes by grants. */
void p2p::post_rest(item &i)
{
    const size_t first = in_first(i.bytes), len = i.bytes - first;
    if (len == 0)
        return;
    const void *memory = i.sending ? i.call->send : i.call->recv;
    i.rest = group_.net().make_buffer(const_cast<char *>(static_cast<const char *>(memory)) + first,
                                      len);
    const uint64_t slot = slot_of(at_step(i.what, step_rest, 0));
    for (size_t at = 0; at < len; at += long_piece) {
        const parcel m = {*i.rest, slot, at, std::min(long_piece, len - at)};
        if (i.sending)
            group_.net().post(i.peer, m, false);
        else
            group_.net().expect(i.peer, m, true);
        i.parts++;
    }
}

/* ---- advancing ---- */

void p2p::first_arrived(item &i, const char *part)
{
    if (i.bytes > 0)
        std::memcpy(i.call->recv, part + first_word_bytes, in_first(i.bytes));
}

/* True when the first part is here. */
bool p2p::advance_first_of_any(item &i, uint64_t until)
{
    const int from = i.any->wait(i.peer, until);
    if (from == no_peer)
        return false;
    first_arrived(i, i.any->part(from));
    i.any->remove(from);
    i.any = nullptr;
    if (i.peer != no_peer)
        return true;
    i.peer = from;
    i.what.sequence = of(from).next_in[i.what.tag]++;
    if (i.call->source)
        *i.call->source = from;
    post_rest(i);
    return true;
}

/* True when the call is done, or a small send is on its way. */
bool p2p::advance(item &i, uint64_t until)
{
    if (i.any && !advance_first_of_any(i, until))
        return false;
    const mesh::direction d = i.sending ? mesh::sending : mesh::receiving;
    for (; i.parts > 0; i.parts--) {
        buffer &b = i.first ? *i.first : *i.rest;
        if (!group_.net().wait(b, d, {i.peer, nullptr}, until))
            return false;
        if (i.first && !i.sending)
            first_arrived(i, i.space.get());
        i.first.reset();
    }
    return i.done = true;
}

/* When the connection breaks: perhaps the peer has said why, or left the message. A receive from
 * anyone goes on with the others, if whoever broke has left in an orderly way. */
bool p2p::advance_or_inherit(batch &b, item &i, uint64_t until)
{
    try {
        return advance(i, until);
    } catch (const failure &f) {
        if (f.status != COLLRUN_ERR_PEER_FAILED)
            throw;
        if (f.peer != no_peer)
            hear(b, f.peer);
        if (i.sending)
            throw;
        if (inherit(i))
            return true;
        if (!i.any || i.peer != no_peer || f.peer == no_peer || !of(f.peer).will_read)
            throw;
        i.any->strike(f.peer);
        return false;
    }
}

void p2p::progress(batch &b)
{
    uint64_t pause = turn, silence = turn, ask_at = now_ns() + turn;
    for (size_t at = 0, finished = 0; finished < b.size(); at = (at + 1) % b.size()) {
        item &i = *b[at];
        if (i.done || i.out) {
            finished++;
            continue;
        }
        finished = 0;
        if (advance_or_inherit(b, i, std::min(now_ns() + pause, group_.deadline())))
            continue;
        if (now_ns() >= group_.deadline())
            group_.time_out(i.sending ? mesh::sending : mesh::receiving, {i.peer, nullptr});
        if (i.any && i.peer == no_peer)
            hear_everyone(b);
        if (now_ns() >= ask_at) {
            ask(b);
            silence = std::min(2 * silence, longest_silence);
            ask_at = now_ns() + silence;
        }
        const bool in_turns =
            std::any_of(b.begin(), b.end(), [](const auto &o) { return o->any != nullptr; });
        pause = in_turns ? turn : std::min(2 * pause, longest_turn);
    }
}

/* Has the copy been neither taken nor forgotten? */
bool p2p::still_there(const item &i)
{
    const auto &copies = of(i.peer).copies;
    return std::any_of(copies.begin(), copies.end(),
                       [&](const auto &c) { return c.get() == i.out; });
}

/* Waits for the receiver as long as the pair's patience says. One that receives from anyone only
 * learns from this rank that it is waiting for something else. */
void p2p::finish_small_send(batch &b, item &i)
{
    peer &p = of(i.peer);
    for (unsigned pauses = 0; pauses < p.patience && still_there(i); pauses++) {
        const uint64_t until = std::min(now_ns() + turn, group_.deadline());
        try {
            if (group_.net().wait(*i.out->out, mesh::sending, {i.peer, nullptr}, until)) {
                size_t k = 0;
                while (p.copies[k].get() != i.out)
                    k++;
                forget(p, k);
                p.patience = std::min(p.patience + 1, most_patience);
                return;
            }
        } catch (const failure &f) {
            if (f.status == COLLRUN_ERR_PEER_FAILED)
                hear(b, i.peer);
            throw;
        }
        group_.lines().listen(i.peer);
        hear(b, i.peer);
        if (pauses == 0)
            group_.lines().tell(i.peer, {i.what, {}, no_peer, no_peer});
    }
    if (p.patience > 0)
        p.patience--;
}

/* Receives are posted first: a send that finds its receiver ready needs no notice. */
void p2p::run(const collrun_call *calls, uint32_t ncalls)
{
    batch b;
    for (const bool sends : {true, false})
        for (uint32_t k = 0; k < ncalls; k++)
            if ((calls[k].kind == COLLRUN_SEND) == sends && !local(calls[k]))
                plan(b, calls[k]);
    for (const auto &i : b) {
        if (i->peer == no_peer)
            continue;
        of(i->peer).crowded = false;
        if (!of(i->peer).copies.empty())
            hear(b, i->peer);
    }
    for (const auto &i : b)
        if (!i->sending)
            post_or_inherit(*i);
    for (const auto &i : b)
        if (i->sending)
            post_send(*i);
    progress(b);
    for (const auto &i : b)
        if (i->out)
            finish_small_send(b, *i);
}

} // namespace collrun_gloo

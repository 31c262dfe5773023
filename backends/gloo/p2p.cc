/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of one batch: planned, posted, advanced until all are done. Gloo moves what is posted
 * by itself; this thread is needed again only to post what has to come later, so it waits for one
 * call after the other, 10 ms at a time while something is left to post.
 */
#include "p2p.h"

#include "group.h"
#include "transfer.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

static constexpr size_t small_bytes = 8192, number_bytes = sizeof(uint64_t);
static constexpr size_t most_copies = 64, most_copied = 48u << 10; /* per peer, not yet taken */
static constexpr uint64_t unnumbered = UINT64_MAX;
static constexpr uint64_t slice = 10 * millisecond, longest_slice = 100 * millisecond;
static constexpr uint64_t longest_silence = 1000 * millisecond;
static constexpr unsigned step_first = 0, step_rest = 1;

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
        mismatch(group_.rank(), n->what, what);
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
    i->small = i->bytes <= small_bytes;
    i->sending = call.kind == COLLRUN_SEND;
    i->peer = call.kind == COLLRUN_RECV_ANY ? no_peer : call.peer;
    for (const auto &o : b) {
        const bool same_peer = o->peer == i->peer || o->peer == no_peer || i->peer == no_peer;
        if (o->sending == i->sending && same_peer && o->what.tag == i->what.tag &&
            !same_call(o->what, i->what))
            i->before = o.get();
    }
    b.push_back(std::move(i));
}

/* May it be posted without overtaking another message of its tag? */
bool p2p::ready(item &i, uint64_t until)
{
    if (i.before && !i.before->done)
        return false;
    for (size_t k = 0; i.sending && k < of(i.peer).copies.size();) {
        const signature &earlier = of(i.peer).copies[k]->what;
        if (earlier.tag != i.what.tag || same_call(earlier, i.what))
            k++;
        else if (!reclaim(i.peer, k, until))
            return false;
    }
    return true;
}

/* Forgets the k-th copy if the peer has taken it, or is gone. */
bool p2p::reclaim(int to, size_t k, uint64_t until)
{
    peer &p = of(to);
    copy &c = *p.copies[k];
    try {
        if (!group_.net().wait(*c.out, mesh::sending, {to, nullptr}, until))
            return false;
    } catch (const failure &f) {
        if (f.status == COLLRUN_ERR_ABORTED)
            throw;
    }
    p.sent++;
    p.copied -= c.len;
    p.copies.erase(p.copies.begin() + static_cast<std::ptrdiff_t>(k));
    return true;
}

/* Room for one more copy that the sender need not wait for. */
bool p2p::make_room(int to, size_t bytes)
{
    peer &p = of(to);
    while (!p.copies.empty() &&
           (p.copied + bytes > most_copied || p.next_number - p.copies[0]->number >= most_copies))
        if (!reclaim(to, 0, 0))
            return false;
    return true;
}

void p2p::post_small_send(item &i)
{
    const size_t len = number_bytes + i.bytes;
    const bool kept = make_room(i.peer, i.bytes);
    peer &p = of(i.peer);
    const uint64_t number = kept ? p.next_number++ : unnumbered;
    std::unique_ptr<char[]> bytes(new char[len]);
    std::memcpy(bytes.get(), &number, number_bytes);
    if (i.bytes > 0)
        std::memcpy(bytes.get() + number_bytes, i.call->send, i.bytes);
    auto out = group_.net().make_buffer(bytes.get(), len);
    buffer &posted = *out;
    if (kept) {
        auto c = std::make_unique<copy>();
        *c = {i.what, number, i.bytes, std::move(bytes), std::move(out)};
        i.out = c.get();
        p.copies.push_back(std::move(c));
        p.copied += i.bytes;
    } else {
        i.space = std::move(bytes);
        i.b = std::move(out);
        i.pieces = 1;
    }
    group_.net().send(posted, i.peer, slot_of(i.what), 0, len);
}

/* Bytes from..to of a large message: its first piece has the slot of the message, so that recv_any
 * can find it; the rest has another. */
void p2p::post_large(item &i, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += piece_bytes) {
        const uint64_t slot = slot_of(at_step(i.what, at == 0 ? step_first : step_rest, 0));
        const size_t len = std::min(piece_bytes, i.bytes - at);
        if (i.sending)
            group_.net().send(*i.b, i.peer, slot, at, len);
        else
            group_.net().recv(*i.b, i.peer, slot, at, len);
        i.pieces++;
    }
}

void p2p::post(item &i)
{
    mesh &net = group_.net();
    i.posted = true;
    if (i.sending && i.small)
        return post_small_send(i);
    if (i.sending) {
        i.b = net.make_buffer(const_cast<void *>(i.call->send), i.bytes);
        return post_large(i, 0, i.bytes);
    }
    const size_t first = i.small ? number_bytes + i.bytes : std::min(piece_bytes, i.bytes);
    if (i.small)
        i.space.reset(new char[first]);
    i.b = net.make_buffer(i.small ? i.space.get() : i.call->recv, i.small ? first : i.bytes);
    if (i.peer != no_peer && !i.small)
        return post_large(i, 0, i.bytes);
    i.pieces = 1;
    if (i.peer != no_peer)
        return net.recv(*i.b, i.peer, slot_of(i.what), 0, first);
    std::vector<int> candidates;
    for (int r = 0; r < group_.size(); r++)
        if (r != group_.rank() && !of(r).will_read)
            candidates.push_back(r);
    if (candidates.empty())
        throw failure{COLLRUN_ERR_PEER_FAILED, no_peer, "every other rank has left the group"};
    net.recv_any(*i.b, candidates, slot_of(i.what), 0, first);
}

/* ---- advancing ---- */

/* All pieces of a receive are here. */
void p2p::arrived(item &i)
{
    peer &p = of(i.peer);
    if (i.small) {
        uint64_t number;
        std::memcpy(&number, i.space.get(), number_bytes);
        if (number != unnumbered)
            is_new(p, number);
        if (i.bytes > 0)
            std::memcpy(i.call->recv, i.space.get() + number_bytes, i.bytes);
    }
    p.got++;
    if (i.call->kind == COLLRUN_RECV_ANY && i.call->source)
        *i.call->source = i.peer;
    i.done = true;
}

bool p2p::advance_recv(item &i, uint64_t until)
{
    while (i.pieces > 0) {
        std::vector<uint32_t> all;
        if (i.peer == no_peer)
            all.assign(peers_.size(), 1), all[static_cast<size_t>(group_.rank())] = 0;
        int from = i.peer;
        const awaited who = {i.peer, i.peer == no_peer ? &all : nullptr};
        if (!group_.net().wait(*i.b, mesh::receiving, who, until, &from))
            return false;
        i.pieces--;
        if (i.peer != no_peer)
            continue;
        i.peer = from;
        if (!i.small)
            post_large(i, piece_bytes, i.bytes);
    }
    arrived(i);
    return true;
}

/* True when the call is done, or a small send is on its way. */
bool p2p::advance(item &i, uint64_t until)
{
    try {
        if (!i.posted) {
            if (!i.sending && i.peer == no_peer && inherit(i))
                return true;
            if (!ready(i, until))
                return false;
            post(i);
        }
        if (!i.sending)
            return advance_recv(i, until);
        while (i.pieces > 0) {
            if (!group_.net().wait(*i.b, mesh::sending, {i.peer, nullptr}, until))
                return false;
            i.pieces--;
        }
        if (!i.out)
            of(i.peer).sent++;
        i.done = true;
        return true;
    } catch (const failure &f) {
        if (i.sending || f.status != COLLRUN_ERR_PEER_FAILED || !inherit(i))
            throw;
        return true;
    }
}

void p2p::progress(batch &b)
{
    uint64_t pause = slice, silence = slice, ask_at = now_ns() + slice;
    for (size_t at = 0, finished = 0; finished < b.size(); at = (at + 1) % b.size()) {
        item &i = *b[at];
        if (i.done) {
            finished++;
            continue;
        }
        finished = 0;
        if (advance(i, std::min(now_ns() + pause, group_.deadline())))
            continue;
        if (now_ns() >= group_.deadline())
            group_.time_out(i.sending ? mesh::sending : mesh::receiving, {i.peer, nullptr});
        if (now_ns() >= ask_at) {
            ask(b);
            silence = std::min(2 * silence, longest_silence);
            ask_at = now_ns() + silence;
        }
        const bool settled =
            std::all_of(b.begin(), b.end(), [](const auto &o) { return o->posted; });
        pause = settled && b.size() == 1 ? std::min(2 * pause, longest_slice) : slice;
    }
}

/* Waits for the receiver as long as the pair's patience says. */
void p2p::finish_small_send(batch &b, item &i)
{
    const int to = i.peer;
    peer &p = of(to);
    const auto find = [&] {
        return std::find_if(p.copies.begin(), p.copies.end(),
                            [&](const auto &c) { return c.get() == i.out; });
    };
    const unsigned most = 4;
    for (unsigned pauses = 0; pauses < p.patience; pauses++) {
        if (find() == p.copies.end()) /* taken meanwhile, as hear() or ask() noticed */
            return;
        const uint64_t until = std::min(now_ns() + slice, group_.deadline());
        if (group_.net().wait(*i.out->out, mesh::sending, {to, nullptr}, until)) {
            p.sent++;
            p.copied -= i.out->len;
            p.copies.erase(find());
            p.patience = std::min(p.patience + 1, most);
            return;
        }
        group_.lines().listen(to);
        hear(b, to);
    }
    if (p.patience > 0) {
        group_.lines().tell(to, announcement(i));
        p.patience--;
    }
}

void p2p::run(const collrun_call *calls, uint32_t ncalls)
{
    batch b;
    for (const bool sends : {true, false})
        for (uint32_t k = 0; k < ncalls; k++)
            if ((calls[k].kind == COLLRUN_SEND) == sends && !local(calls[k]))
                plan(b, calls[k]);
    for (const auto &i : b)
        if (i->peer != no_peer && !of(i->peer).copies.empty())
            hear(b, i->peer);
    for (const auto &i : b)
        if (!i->before && i->sending && ready(*i, 0))
            post(*i);
    for (const auto &i : b)
        if (!i->before && !i->sending && i->peer != no_peer)
            try {
                post(*i);
            } catch (const failure &f) {
                if (f.status != COLLRUN_ERR_PEER_FAILED || !inherit(*i))
                    throw;
            }
    progress(b);
    for (const auto &i : b)
        if (i->out)
            finish_small_send(b, *i);
}

} // namespace collrun_gloo

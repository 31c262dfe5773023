/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of one batch: planned, posted, waited for until all are done. Gloo moves what is posted
 * by itself, so this thread waits for one call after the other; but a receive from anyone is posted
 * when its sender is known, and as long as there is one without the calls take turns of 10 ms.
 */
#include "p2p.h"

#include "group.h"
#include "transfer.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace collrun_gloo
{

static constexpr size_t start_of_long = 8192;
static constexpr uint64_t turn = 10 * millisecond, longest_turn = 100 * millisecond;
static constexpr uint64_t longest_silence = 1000 * millisecond;
static constexpr unsigned step_rest = 1;

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

static size_t in_first(size_t bytes)
{
    return bytes <= most_in_first ? bytes : start_of_long;
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
    if (call.kind != COLLRUN_RECV_ANY)
        i->peer = call.peer;
    i->waiting = i->peer == no_peer || (!i->sending && from_anyone_.count(call.tag) > 0);
    if (i->waiting)
        from_anyone_[call.tag].push_back(i.get());
    else
        number(*i);
    b.push_back(std::move(i));
}

void p2p::number(item &i)
{
    peer &p = of(i.peer);
    i.what.sequence = (i.sending ? p.next_out : p.next_in)[i.what.tag]++;
}

void p2p::post_send(item &i)
{
    const size_t first = in_first(i.bytes);
    const uint64_t slot = slot_of(i.what);
    inbox::letter l = {std::unique_ptr<char[]>(new char[sizeof(signature) + first]),
                       sizeof(signature) + first};
    std::memcpy(l.bytes.get(), &i.what, sizeof(signature));
    if (first > 0)
        std::memcpy(l.bytes.get() + sizeof(signature), i.call->send, first);
    if (group_.net().send_letter(i.peer, slot, l)) {
        group_.lines().listen(i.peer);
        of(i.peer).may_complain = true;
    } else {
        i.space = std::move(l.bytes);
        i.first = group_.net().make_buffer(i.space.get(), l.len);
        group_.net().offer(i.peer, {*i.first, slot, 0, l.len});
        i.parts = 1;
    }
    post_rest(i);
    i.done = i.parts == 0;
}

void p2p::post_recv(item &i)
{
    const size_t len = sizeof(signature) + in_first(i.bytes);
    i.space.reset(new char[len]);
    i.first = group_.net().make_buffer(i.space.get(), len);
    group_.net().await_letter(i.peer, {*i.first, slot_of(i.what), 0, len}, mesh::connect_first);
    i.parts = 1;
    post_rest(i);
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
        std::memcpy(i.call->recv, part + sizeof(signature), in_first(i.bytes));
}

/* True when there is a message for the receive from anyone; its sender is known then. */
bool p2p::find_sender(item &i)
{
    bool someone = false;
    for (int k = 1; k <= group_.size(); k++) {
        const int r = (last_sender_ + k) % group_.size();
        if (r == group_.rank())
            continue;
        signature what = i.what;
        what.sequence = of(r).next_in[what.tag];
        inbox::letter l;
        const auto found = group_.net().look_for_letter(r, slot_of(what), &l, *bell_);
        if (found == inbox::lost)
            throw failure{COLLRUN_ERR_PEER_FAILED, r,
                          format("%s closed its connection", group_.net().name_of(r).c_str())};
        someone |= found == inbox::awaited;
        if (found == inbox::awaited || found == inbox::left)
            continue;
        i.what = what;
        i.peer = last_sender_ = r;
        of(r).next_in[what.tag]++;
        if (i.call->source)
            *i.call->source = r;
        if (found == inbox::offered) {
            post_recv(i);
            return true;
        }
        first_arrived(i, l.bytes.get());
        post_rest(i);
        return true;
    }
    if (!someone)
        throw failure{COLLRUN_ERR_PEER_FAILED, no_peer, "every other rank has left the group"};
    return false;
}

/* What comes first is for whoever has asked first; a receive by name behind one from anyone is
 * posted when that has its message. True if one of the queue waits no more. */
bool p2p::find_one(std::deque<item *> &queue)
{
    std::vector<uint64_t> in_vain; /* shapes that nobody has sent */
    for (auto at = queue.begin(); at != queue.end(); ++at) {
        item &i = **at;
        const bool named = i.peer != no_peer;
        const uint64_t shape = slot_of(i.what);
        if (named && at != queue.begin())
            return false;
        if (std::count(in_vain.begin(), in_vain.end(), shape) > 0)
            continue;
        if (named) {
            number(i);
            post_recv(i);
        } else if (!find_sender(i)) {
            in_vain.push_back(shape);
            continue;
        }
        i.waiting = false;
        queue.erase(at);
        return true;
    }
    return false;
}

void p2p::find_senders()
{
    for (auto &queue : from_anyone_)
        while (find_one(queue.second))
            continue;
}

/* True when the call is done. */
bool p2p::advance(item &i, uint64_t until)
{
    for (find_senders(); i.waiting; find_senders())
        if (!group_.net().wait(*bell_, mesh::receiving, {}, until))
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

void p2p::progress(batch &b)
{
    uint64_t pause = turn, silence = turn, ask_at = now_ns() + turn;
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
        if (i.waiting)
            hear_everyone(b);
        if (now_ns() >= ask_at) {
            ask(b);
            silence = std::min(2 * silence, longest_silence);
            ask_at = now_ns() + silence;
        }
        const bool in_turns =
            std::any_of(b.begin(), b.end(), [](const auto &o) { return o->waiting; });
        pause = in_turns ? turn : std::min(2 * pause, longest_turn);
    }
}

/* Receives are posted first: what comes then goes to its place at once. */
void p2p::post_all(batch &b)
{
    std::set<int> heard;
    for (const auto &i : b)
        if (i->peer != no_peer && of(i->peer).may_complain && heard.insert(i->peer).second)
            hear(b, i->peer);
    for (const auto &i : b)
        if (!i->sending && !i->waiting)
            post_recv(*i);
    for (const auto &i : b)
        if (i->sending)
            post_send(*i);
}

void p2p::run(const collrun_call *calls, uint32_t ncalls)
{
    batch b;
    std::vector<const collrun_call *> abroad;
    for (const bool sends : {true, false}) /* to this rank itself: in this order */
        for (uint32_t k = 0; k < ncalls; k++)
            if ((calls[k].kind == COLLRUN_SEND) == sends && !local(calls[k]))
                abroad.push_back(&calls[k]);
    from_anyone_.clear();
    for (const collrun_call *call : abroad) /* none is numbered if one above is refused */
        plan(b, *call);
    try {
        post_all(b);
        progress(b);
    } catch (const failure &f) {
        if (f.status == COLLRUN_ERR_PEER_FAILED && f.peer != no_peer)
            hear(b, f.peer); /* perhaps the peer has said why */
        throw;
    }
}

} // namespace collrun_gloo

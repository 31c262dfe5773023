/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a group on one rank. Its peers may still be in their last operation, so before the
 * connections close, a farewell goes to every peer that was sent anything: Gloo completes it when
 * the peer's I/O thread has answered, and by then that thread has read all that came before. The
 * receives for it are posted when the group opens, in a form that costs no traffic (Gloo answers a
 * sender only when it comes). The farewell carries the small messages that nobody has taken yet;
 * they wait in the receiver's memory until it asks for them and finds the sender gone.
 */
#include "group.h"
#include "p2p.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace collrun_gloo
{

static constexpr size_t will_bytes = 64u << 10;
static constexpr uint64_t farewell_patience = 1000 * millisecond;

struct will_head {
    uint32_t magic, count;
};
struct will_entry {
    signature what;
    uint64_t len; /* of the payload, which follows, padded to 8 bytes */
};

static size_t padded(size_t len)
{
    return (len + 7) / 8 * 8;
}

p2p::p2p(group &g) : group_(g), peers_(static_cast<size_t>(g.size()))
{
    if (g.size() > 1)
        expect_wills();
}

p2p::~p2p()
{
    for (peer &p : peers_) {
        p.will.reset();
        p.copies.clear();
    }
    farewell_.reset();
    if (wills_)
        munmap(wills_, wills_len_);
}

/* The memory is reserved only; pages come into being when a will arrives. */
void p2p::expect_wills()
{
    mesh &net = group_.net();
    wills_len_ = will_bytes * peers_.size();
    void *m = mmap(nullptr, wills_len_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED)
        throw std::bad_alloc();
    wills_ = static_cast<char *>(m);
    farewell_ = net.make_buffer(farewells_, sizeof(farewells_));
    for (int r = 0; r < group_.size(); r++) {
        if (r == group_.rank())
            continue;
        of(r).will = net.make_buffer(wills_ + static_cast<size_t>(r) * will_bytes, will_bytes);
        net.recv_any(*of(r).will, {r}, slot_farewell, 0, will_bytes);
        net.recv_any(*farewell_, {r}, slot_farewell, 0, sizeof(farewells_));
    }
}

/* ---- leaving ---- */

std::vector<char> p2p::last_will(const peer &p) const
{
    std::vector<char> text(sizeof(will_head));
    will_head head = {signature_magic, 0};
    for (const auto &c : p.copies) {
        const will_entry e = {c->what, c->len};
        const size_t at = text.size();
        text.resize(at + sizeof(e) + padded(c->len));
        std::memcpy(&text[at], &e, sizeof(e));
        if (c->len > 0)
            std::memcpy(&text[at + sizeof(e)], c->bytes.get() + first_word_bytes, c->len);
        head.count++;
    }
    std::memcpy(text.data(), &head, sizeof(head));
    return text;
}

/* A will is followed by a second farewell: what was last in the socket could otherwise be lost. */
void p2p::farewell() noexcept
{
    struct parting {
        int to;
        std::vector<char> text;
        std::unique_ptr<buffer> out;
        int sends;
    };
    mesh &net = group_.net();
    const uint64_t until = now_ns() + farewell_patience;
    try {
        std::vector<parting> all;
        all.reserve(peers_.size());
        for (int r = 0; r < group_.size(); r++) {
            if (r == group_.rank() || !net.has_sent_to(r))
                continue;
            all.push_back({r, last_will(of(r)), nullptr, 0});
            parting &p = all.back();
            const bool will = p.text.size() > sizeof(will_head);
            try {
                p.out = net.make_buffer(p.text.data(), p.text.size());
                net.send(*p.out, r, slot_farewell, 0, p.text.size());
                p.sends++;
                if (will) {
                    net.send(*p.out, r, slot_farewell, 0, sizeof(will_head));
                    p.sends++;
                }
            } catch (const failure &) { /* it has left already */
            }
        }
        for (parting &p : all) {
            try {
                while (p.sends > 0 && net.wait(*p.out, mesh::sending, {p.to, nullptr}, until))
                    p.sends--;
            } catch (const failure &) { /* likewise */
            }
        }
    } catch (...) { /* no memory for it: peers find the connections closed */
    }
}

/* ---- inheriting ---- */

void p2p::read_will(int from)
{
    peer &p = of(from);
    const char *at = wills_ + static_cast<size_t>(from) * will_bytes;
    const auto *first = reinterpret_cast<const uint32_t *>(at);
    if (p.will_read || __atomic_load_n(first, __ATOMIC_ACQUIRE) != signature_magic)
        return;
    if (!group_.net().wait(*p.will, mesh::receiving, {from, nullptr}, now_ns() + 100 * millisecond))
        return;
    p.will_read = true;
    will_head head;
    std::memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    for (uint32_t i = 0; i < head.count; i++) {
        will_entry e;
        std::memcpy(&e, at, sizeof(e));
        at += sizeof(e);
        p.left.push_back({e.what, at});
        at += padded(e.len);
    }
}

/* A message in a will may have come after all; then its number is of the past. */
bool p2p::inherit_from(item &i, int from)
{
    read_will(from);
    peer &p = of(from);
    const bool any = i.call->kind == COLLRUN_RECV_ANY;
    signature wanted = i.what;
    if (any)
        wanted.sequence = p.next_in[wanted.tag];
    const auto l = std::find_if(p.left.begin(), p.left.end(), [&](const legacy &o) {
        return o.what.tag == wanted.tag && o.what.sequence == wanted.sequence;
    });
    if (l == p.left.end() || (any && !same_call(l->what, wanted)))
        return false;
    if (!same_call(l->what, wanted))
        mismatch(from, false, wanted, l->what);
    if (i.bytes > 0)
        std::memcpy(i.call->recv, l->payload, i.bytes);
    p.left.erase(l);
    for (const auto &c : crowds_)
        if (c->reserve(from, slot_of(wanted)))
            c->strike(from);
    if (any) {
        p.next_in[wanted.tag]++;
        if (i.call->source)
            *i.call->source = from;
    }
    i.peer = from;
    i.done = true;
    return true;
}

/* Takes the message from what its sender left, if it did. */
bool p2p::inherit(item &i)
{
    if (i.peer != no_peer)
        return inherit_from(i, i.peer);
    for (int r = 0; r < group_.size(); r++)
        if (r != group_.rank() && inherit_from(i, r))
            return true;
    return false;
}

} // namespace collrun_gloo

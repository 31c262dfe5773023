/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of little data. Two ranks exchange; more ranks use a tree of radix 8 over the ranks
 * in host order, up and then down: 2(n-1) messages, the fewest there are, since on busy cores a
 * message costs more than a step. Subtrees are contiguous in that order, so ranks of one host meet
 * below the hosts, and gathered blocks are one run of memory. What does not fit into mailbox
 * messages but is still little for so many ranks goes the same way in transfers.
 *
 * Sums are combined at every node, all children at once. Half precision must be rounded only once:
 * there the vectors themselves travel up, and the root sums them.
 */
#include "group.h"
#include "transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace collrun_gloo
{

namespace
{

constexpr int radix = 8;
constexpr int most_children = 7 * 8; /* levels enough for 8^8 ranks */

enum step { step_up = 1, step_down, step_across };

struct child {
    int rank, first, last; /* virtual ranks of its subtree: first .. last-1 */
};

/* The place of one rank in the tree of a root. */
struct tree {
    tree(group &g, int root);
    int rank_at(int v) const;

    group &g;
    int root_place, self, last, parent = no_peer; /* own subtree: self .. last-1 */
    std::array<child, most_children> children;
    int nchildren = 0;
};

tree::tree(group &owner, int root) : g(owner)
{
    const int n = g.size();
    const auto &place = g.net().place();
    root_place = place[static_cast<size_t>(root)];
    self = (place[static_cast<size_t>(g.rank())] - root_place + n) % n;
    last = n;
    for (int width = 1; width < n; width *= radix) {
        const int digit = self % (width * radix);
        if (digit != 0) {
            parent = rank_at(self - digit);
            last = std::min(self + width, n);
            return;
        }
        for (int v = self + width; v < std::min(self + width * radix, n); v += width)
            children[static_cast<size_t>(nchildren++)] = {rank_at(v), v, std::min(v + width, n)};
    }
}

int tree::rank_at(int v) const
{
    return g.net().order()[static_cast<size_t>((v + root_place) % g.size())];
}

signature message(group &g, unsigned step, size_t bytes)
{
    return at_step(g.current(), step, bytes);
}

/* A message on its way here. */
class letter
{
  public:
    /* `space` for a large one; a small one stays where it arrives. */
    letter(group &g, int from, const signature &head, char *space);
    const char *open();
    void close();

  private:
    group &g;
    int from;
    signature head;
    char *space;
    std::unique_ptr<transfer> large;
};

letter::letter(group &owner, int sender, const signature &s, char *memory)
    : g(owner), from(sender), head(s), space(memory)
{
    if (head.bytes <= g.mail().capacity)
        return;
    large = std::make_unique<transfer>(g, space, head.bytes);
    large->recv(from, head, 0, head.bytes);
}

const char *letter::open()
{
    if (!large)
        return g.mail().take(from, head);
    large->await_arrivals();
    return space;
}

void letter::close()
{
    if (!large)
        g.mail().drop(from);
}

void send_letter(group &g, int to, const signature &head, const char *data)
{
    if (head.bytes <= g.mail().capacity)
        return g.mail().post(to, head, data);
    transfer t(g, data, head.bytes);
    t.send(to, head, 0, head.bytes);
    t.await_departures();
}

/* Sends the same bytes down the whole tree. The farthest subtrees are the largest: they go first.
 */
void spread(tree &t, void *data, size_t bytes)
{
    mailbox &mail = t.g.mail();
    if (bytes > mail.capacity)
        return stream_broadcast(t.g, data, bytes, t.rank_at(0));
    const signature head = message(t.g, step_down, bytes);
    if (t.parent != no_peer) {
        const char *from = mail.take(t.parent, head);
        if (bytes > 0)
            std::memcpy(data, from, bytes);
        mail.drop(t.parent);
    }
    for (int i = t.nchildren - 1; i >= 0; i--)
        mail.post(t.children[static_cast<size_t>(i)].rank, head, data);
}

/* Combines the vectors of the subtree into `result`, which the root gets complete. */
void combine_up(tree &t, const void *own, void *result, size_t count)
{
    const size_t bytes = count * t.g.element();
    const bool small = bytes <= t.g.mail().capacity;
    const signature head = message(t.g, step_up, bytes);
    const std::unique_ptr<char[]> space(
        small ? nullptr : new char[(static_cast<size_t>(t.nchildren) + 1) * bytes]);
    std::vector<letter> letters;
    letters.reserve(static_cast<size_t>(t.nchildren));
    std::array<const void *, most_children + 1> srcs;
    uint32_t nsrcs = 0;
    srcs[nsrcs++] = own;
    for (int i = 0; i < t.nchildren; i++)
        letters.emplace_back(t.g, t.children[static_cast<size_t>(i)].rank, head,
                             small ? nullptr : &space[(static_cast<size_t>(i) + 1) * bytes]);
    for (letter &l : letters)
        srcs[nsrcs++] = l.open();
    if (t.parent == no_peer) {
        t.g.reduce(result, srcs.data(), nsrcs, count, true);
    } else if (small) {
        t.g.reduce(t.g.mail().prepare(t.parent), srcs.data(), nsrcs, count, false);
        t.g.mail().post_prepared(t.parent, head);
    } else {
        t.g.reduce(space.get(), srcs.data(), nsrcs, count, false);
        send_letter(t.g, t.parent, head, space.get());
    }
    for (letter &l : letters)
        l.close();
}

/* Brings a block of every rank of the subtree to `blocks`, in virtual order; with a parent, passes
 * them on. */
void gather_up(tree &t, const void *own, char *blocks, size_t block)
{
    std::vector<letter> letters;
    for (int i = 0; i < t.nchildren; i++) {
        const child &c = t.children[static_cast<size_t>(i)];
        letters.emplace_back(t.g, c.rank,
                             message(t.g, step_up, static_cast<size_t>(c.last - c.first) * block),
                             blocks + static_cast<size_t>(c.first - t.self) * block);
    }
    if (block > 0)
        std::memcpy(blocks, own, block);
    for (int i = 0; i < t.nchildren; i++) {
        const child &c = t.children[static_cast<size_t>(i)];
        char *at = blocks + static_cast<size_t>(c.first - t.self) * block;
        const char *from = letters[static_cast<size_t>(i)].open();
        if (from != at)
            std::memcpy(at, from, static_cast<size_t>(c.last - c.first) * block);
        letters[static_cast<size_t>(i)].close();
    }
    if (t.parent != no_peer)
        send_letter(t.g, t.parent,
                    message(t.g, step_up, static_cast<size_t>(t.last - t.self) * block), blocks);
}

/* The reverse: `blocks` holds those of the subtree at the root, the first of them is this rank's.
 */
void scatter_down(tree &t, char *blocks, size_t block)
{
    if (t.parent != no_peer) {
        const size_t bytes = static_cast<size_t>(t.last - t.self) * block;
        letter l(t.g, t.parent, message(t.g, step_down, bytes), blocks);
        const char *from = l.open();
        if (from != blocks)
            std::memcpy(blocks, from, bytes);
        l.close();
    }
    for (int i = t.nchildren - 1; i >= 0; i--) {
        const child &c = t.children[static_cast<size_t>(i)];
        const size_t bytes = static_cast<size_t>(c.last - c.first) * block;
        send_letter(t.g, c.rank, message(t.g, step_down, bytes),
                    blocks + static_cast<size_t>(c.first - t.self) * block);
    }
}

/* All vectors to the root, summed there at once, in the order of the tree. */
void gather_and_combine(tree &t, const void *own, void *result, size_t count)
{
    const size_t bytes = count * t.g.element();
    const auto n = static_cast<size_t>(t.last - t.self);
    char *blocks = t.g.scratch(n * bytes + 1);
    gather_up(t, own, blocks, bytes);
    if (t.parent != no_peer)
        return;
    std::vector<const void *> srcs;
    for (size_t i = 0; i < n; i++)
        srcs.push_back(blocks + i * bytes);
    t.g.reduce(result, srcs.data(), static_cast<uint32_t>(n), count, true);
}

/* Both ranks of a pair combine in the same order, so they get the same bits. */
void exchange_pair(group &g, const void *own, void *result, size_t count)
{
    const int peer = 1 - g.rank();
    const signature head = message(g, step_across, count * g.element());
    g.mail().post(peer, head, own);
    const void *theirs = g.mail().take(peer, head);
    const void *const srcs[2] = {g.rank() == 0 ? own : theirs, g.rank() == 0 ? theirs : own};
    g.reduce(result, srcs, 2, count, true);
    g.mail().drop(peer);
}

/* Little enough for the tree: with many ranks, straight exchange means very many small messages.
 * Where ranks share cores a message costs more, so the tree pays for longer. */
bool fits(group &g, size_t bytes, bool all_at_root)
{
    const size_t n = static_cast<size_t>(g.size()), vectors = all_at_root ? n : 1;
    const size_t little = n * (g.net().busy_cores() ? 8192 : 1024);
    return bytes <= std::max(g.mail().capacity, little) / vectors;
}

} // namespace

void tree_barrier(group &g)
{
    if (g.size() == 1)
        return;
    if (g.size() == 2) {
        const signature head = message(g, step_across, 0);
        g.mail().post(1 - g.rank(), head, nullptr);
        g.mail().take(1 - g.rank(), head);
        g.mail().drop(1 - g.rank());
        return;
    }
    tree t(g, g.net().order()[0]);
    char nothing = 0;
    gather_up(t, &nothing, &nothing, 0);
    spread(t, &nothing, 0);
}

bool tree_allreduce(group &g, const collrun_call &call)
{
    const size_t bytes = call.count * g.element();
    const bool half = is_half(call.dtype) && g.size() > 2;
    if (g.size() == 1 || !fits(g, bytes, half))
        return false;
    if (g.size() == 2 && bytes > g.mail().capacity)
        return false;
    if (g.size() == 2) {
        exchange_pair(g, call.send, call.recv, call.count);
        return true;
    }
    tree t(g, g.net().order()[0]);
    if (half)
        gather_and_combine(t, call.send, call.recv, call.count);
    else
        combine_up(t, call.send, call.recv, call.count);
    spread(t, call.recv, bytes);
    return true;
}

bool tree_reduce(group &g, const collrun_call &call)
{
    const bool half = is_half(call.dtype) && g.size() > 2;
    if (g.size() == 1 || !fits(g, call.count * g.element(), half))
        return false;
    tree t(g, call.root);
    if (half)
        gather_and_combine(t, call.send, call.recv, call.count);
    else
        combine_up(t, call.send, call.recv, call.count);
    return true;
}

bool tree_broadcast(group &g, const collrun_call &call)
{
    const size_t bytes = call.count * g.element();
    if (g.size() == 1 || bytes > g.mail().capacity)
        return false;
    tree t(g, call.root);
    spread(t, call.recv, bytes);
    return true;
}

/* Up, put into the order of ranks at the root, and down again. Few ranks do better in one step. */
bool tree_allgather(group &g, const collrun_call &call)
{
    const size_t block = call.count * g.element(), n = static_cast<size_t>(g.size());
    if (g.size() <= 2 || !fits(g, block, true))
        return false;
    tree t(g, g.net().order()[0]);
    char *const out = static_cast<char *>(call.recv);
    char *blocks = g.scratch(n * block + 1);
    gather_up(t, call.send, blocks, block);
    for (int v = 0; t.parent == no_peer && block > 0 && v < g.size(); v++)
        std::memcpy(out + static_cast<size_t>(t.rank_at(v)) * block,
                    blocks + static_cast<size_t>(v) * block, block);
    spread(t, out, n * block);
    return true;
}

/* A sum of the whole at the root, and each rank's block back. */
bool tree_reduce_scatter(group &g, const collrun_call &call)
{
    const size_t block = call.count * g.element(), n = static_cast<size_t>(g.size());
    if (g.size() <= 2 || is_half(call.dtype) || !fits(g, block, true))
        return false;
    tree t(g, g.net().order()[0]);
    char *sum = g.scratch(2 * n * block + 1), *blocks = sum + n * block;
    combine_up(t, call.send, sum, n * call.count);
    for (int v = 0; t.parent == no_peer && block > 0 && v < g.size(); v++)
        std::memcpy(blocks + static_cast<size_t>(v) * block,
                    sum + static_cast<size_t>(t.rank_at(v)) * block, block);
    scatter_down(t, blocks, block);
    if (block > 0)
        std::memcpy(call.recv, blocks, block);
    return true;
}

} // namespace collrun_gloo

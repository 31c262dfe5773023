/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast of large messages, in pieces that every rank passes on as they come. A chain in host
 * order loads every link once and is the fastest when there are more pieces than ranks; shorter
 * messages go down a binary tree of the same order. Small pieces let ranks work at the same time,
 * but each costs a wake-up: between two ranks, where nobody passes anything on, and where ranks
 * share cores, they are as long as an abort can wait.
 */
#include "combine.h"

#include <algorithm>

namespace collrun_gloo
{

namespace
{

constexpr unsigned step_piece = 32;
constexpr size_t stream_piece = 256u << 10;

/* Who sends to this rank, and to whom it sends. */
struct course {
    int parent = no_peer;
    std::vector<int> children;
};

course course_of(group &g, int root, bool chain)
{
    course c;
    const int n = g.size(), root_place = g.net().place()[static_cast<size_t>(root)];
    const int self = (g.net().place()[static_cast<size_t>(g.rank())] - root_place + n) % n;
    const auto rank_at = [&](int v) {
        return g.net().order()[static_cast<size_t>((v + root_place) % n)];
    };
    if (chain) {
        if (self > 0)
            c.parent = rank_at(self - 1);
        if (self + 1 < n)
            c.children.push_back(rank_at(self + 1));
        return c;
    }
    int width = 1;
    for (; width < n && self % (2 * width) == 0; width *= 2)
        if (self + width < n)
            c.children.insert(c.children.begin(), rank_at(self + width));
    if (self > 0)
        c.parent = rank_at(self - width);
    return c;
}

} // namespace

void stream_broadcast(group &g, void *data, size_t bytes, int root)
{
    if (g.size() == 1 || bytes == 0)
        return;
    const bool overlap = g.size() > 2 && !g.net().busy_cores();
    const size_t piece = overlap ? stream_piece : long_piece;
    const course c = course_of(g, root, bytes / piece >= static_cast<size_t>(g.size()));
    const signature head = at_step(g.current(), step_piece, 0);
    transfer t(g, data, bytes);
    if (c.parent != no_peer)
        t.recv(c.parent, head, 0, bytes, piece);
    for (size_t done = 0; done < bytes; done += piece) {
        if (c.parent != no_peer)
            t.await_piece();
        for (int child : c.children)
            t.send(child, head, done, std::min(piece, bytes - done), piece);
    }
    t.await_departures();
}

} // namespace collrun_gloo

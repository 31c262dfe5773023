/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that only move blocks: at step k a rank sends to the k-th rank after it and receives
 * from the k-th before it, in host order. Blocks that fit travel as mailbox messages, others as
 * transfers; both sides know the size. A window of steps is in flight: all ranks go through the
 * steps in the same order, so step k never waits for a later one of anybody.
 */
#include "combine.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace collrun_gloo
{

namespace
{

constexpr size_t window = 16;
constexpr unsigned step_block = 8;

struct move {
    int to = no_peer, from = no_peer;
    const char *src = nullptr;
    char *dst = nullptr;
    size_t out = 0, in = 0; /* bytes */
};

/* A move in flight. */
struct flight {
    move m;
    std::unique_ptr<char[]> copy; /* of src, where the caller has no other */
    std::unique_ptr<transfer> sending, receiving;
};

class exchange
{
  public:
    explicit exchange(group &owner) : g(owner)
    {
    }
    void add(const move &m, std::unique_ptr<char[]> copy = nullptr);
    void finish();

  private:
    void land();
    signature head(size_t bytes) const
    {
        return at_step(g.current(), step_block, bytes);
    }
    bool small(size_t bytes) const
    {
        return bytes <= g.mail().capacity;
    }

    group &g;
    std::deque<flight> flights;
};

void exchange::add(const move &m, std::unique_ptr<char[]> copy)
{
    if (flights.size() == window)
        land();
    flights.push_back({m, std::move(copy), nullptr, nullptr});
    flight &f = flights.back();
    if (m.from != no_peer && !small(m.in)) {
        f.receiving = std::make_unique<transfer>(g, m.dst, m.in);
        f.receiving->recv(m.from, head(m.in), 0, m.in, long_piece);
    }
    if (m.to == no_peer)
        return;
    if (small(m.out)) {
        g.mail().post(m.to, head(m.out), m.src);
    } else {
        f.sending = std::make_unique<transfer>(g, m.src, m.out);
        f.sending->send(m.to, head(m.out), 0, m.out, long_piece);
    }
}

void exchange::land()
{
    flight &f = flights.front();
    if (f.receiving) {
        f.receiving->await_arrivals();
    } else if (f.m.from != no_peer) {
        const char *data = g.mail().take(f.m.from, head(f.m.in));
        if (f.m.in > 0)
            std::memcpy(f.m.dst, data, f.m.in);
        g.mail().drop(f.m.from);
    }
    if (f.sending)
        f.sending->await_departures();
    flights.pop_front();
}

void exchange::finish()
{
    while (!flights.empty())
        land();
}

/* Where a rank's block lies, in bytes. v-forms without displacements are packed. */
struct layout {
    layout(group &g, size_t count, const size_t *counts, const size_t *displs);
    size_t offset(int rank) const
    {
        return offsets[static_cast<size_t>(rank)];
    }
    size_t bytes(int rank) const
    {
        return lengths[static_cast<size_t>(rank)];
    }
    std::vector<size_t> offsets, lengths;
};

layout::layout(group &g, size_t count, const size_t *counts, const size_t *displs)
{
    size_t packed = 0;
    for (size_t i = 0; i < static_cast<size_t>(g.size()); i++) {
        const size_t elements = counts ? counts[i] : count;
        lengths.push_back(elements * g.element());
        offsets.push_back((displs ? displs[i] : packed) * g.element());
        packed += elements;
    }
}

/* The own block, while the others are on their way. */
void copy_own(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && dst != src)
        std::memcpy(dst, src, bytes);
}

const char *bytes_at(const void *base, size_t offset)
{
    return base ? static_cast<const char *>(base) + offset : nullptr;
}

char *bytes_at(void *base, size_t offset)
{
    return base ? static_cast<char *>(base) + offset : nullptr;
}

} // namespace

void v_form_bytes(const group &g, const collrun_call &call, int peer, size_t *out, size_t *in)
{
    const auto p = static_cast<size_t>(peer), self = static_cast<size_t>(g.rank());
    const bool root = call.root == g.rank(), to_root = call.root == peer;
    switch (call.kind) {
    case COLLRUN_ALLGATHERV:
        *out = call.count;
        *in = call.recvcounts[p];
        break;
    case COLLRUN_GATHERV:
        *out = to_root ? call.count : 0;
        *in = root ? call.recvcounts[p] : 0;
        break;
    case COLLRUN_SCATTERV:
        *out = root ? call.sendcounts[p] : 0;
        *in = to_root ? call.recvcount : 0;
        break;
    case COLLRUN_REDUCE_SCATTERV:
        *out = call.recvcounts[p];
        *in = call.recvcounts[self];
        break;
    case COLLRUN_ALLTOALLV:
        *out = call.sendcounts[p];
        *in = call.recvcounts[p];
        break;
    default:
        *out = *in = 0;
    }
    *out *= g.element();
    *in *= g.element();
}

void exchange_allgather(group &g, const collrun_call &call)
{
    const bool v = call.kind == COLLRUN_ALLGATHERV;
    const layout at(g, call.count, v ? call.recvcounts : nullptr, v ? call.recvdispls : nullptr);
    char *recv = static_cast<char *>(call.recv);
    const size_t own = call.count * g.element();
    if (g.net().crowded_hosts() && !v && own > g.mail().capacity) {
        copy_own(bytes_at(recv, at.offset(g.rank())), call.send, own);
        return ring_allgather(g, recv, blocks::uniform(g, call.count));
    }
    exchange all(g);
    for (int k = 1; k < g.size(); k++) {
        const int to = neighbour(g, k), from = neighbour(g, -k);
        all.add({to, from, static_cast<const char *>(call.send), bytes_at(recv, at.offset(from)),
                 own, at.bytes(from)});
    }
    copy_own(bytes_at(recv, at.offset(g.rank())), call.send, own);
    all.finish();
}

void exchange_gather(group &g, const collrun_call &call)
{
    const bool v = call.kind == COLLRUN_GATHERV;
    const size_t own = call.count * g.element();
    exchange all(g);
    if (g.rank() != call.root) {
        all.add({call.root, no_peer, static_cast<const char *>(call.send), nullptr, own, 0});
        all.finish();
        return;
    }
    const layout at(g, call.count, v ? call.recvcounts : nullptr, v ? call.recvdispls : nullptr);
    for (int k = 1; k < g.size(); k++) {
        const int from = neighbour(g, k);
        all.add({no_peer, from, nullptr, bytes_at(call.recv, at.offset(from)), 0, at.bytes(from)});
    }
    copy_own(bytes_at(call.recv, at.offset(g.rank())), call.send, own);
    all.finish();
}

void exchange_scatter(group &g, const collrun_call &call)
{
    const bool v = call.kind == COLLRUN_SCATTERV;
    const size_t own = (v ? call.recvcount : call.count) * g.element();
    exchange all(g);
    if (g.rank() != call.root) {
        all.add({no_peer, call.root, nullptr, static_cast<char *>(call.recv), 0, own});
        all.finish();
        return;
    }
    const layout at(g, call.count, v ? call.sendcounts : nullptr, v ? call.senddispls : nullptr);
    for (int k = 1; k < g.size(); k++) {
        const int to = neighbour(g, k);
        all.add({to, no_peer, bytes_at(call.send, at.offset(to)), nullptr, at.bytes(to), 0});
    }
    copy_own(call.recv, bytes_at(call.send, at.offset(g.rank())), own);
    all.finish();
}

/* In place, step k pairs ranks whose places add up to k: each gives the block that it gets, from a
 * copy. */
static void alltoall_in_place(group &g, const collrun_call &call)
{
    const int n = g.size(), place = g.net().place()[static_cast<size_t>(g.rank())];
    const size_t block = call.count * g.element();
    exchange all(g);
    for (int k = 0; k < n; k++) {
        const int peer = g.net().order()[static_cast<size_t>((k - place + n) % n)];
        char *at = bytes_at(call.recv, static_cast<size_t>(peer) * block);
        if (peer == g.rank())
            continue;
        std::unique_ptr<char[]> copy(new char[block + 1]);
        copy_own(copy.get(), at, block);
        const move m = {peer, peer, copy.get(), at, block, block};
        all.add(m, std::move(copy));
    }
    all.finish();
}

void exchange_alltoall(group &g, const collrun_call &call)
{
    const bool v = call.kind == COLLRUN_ALLTOALLV;
    if (!v && call.send == call.recv)
        return alltoall_in_place(g, call);
    const layout out(g, call.count, v ? call.sendcounts : nullptr, v ? call.senddispls : nullptr);
    const layout in(g, call.count, v ? call.recvcounts : nullptr, v ? call.recvdispls : nullptr);
    exchange all(g);
    for (int k = 1; k < g.size(); k++) {
        const int to = neighbour(g, k), from = neighbour(g, -k);
        all.add({to, from, bytes_at(call.send, out.offset(to)),
                 bytes_at(call.recv, in.offset(from)), out.bytes(to), in.bytes(from)});
    }
    copy_own(bytes_at(call.recv, in.offset(g.rank())), bytes_at(call.send, out.offset(g.rank())),
             out.bytes(g.rank()));
    all.finish();
}

} // namespace collrun_gloo

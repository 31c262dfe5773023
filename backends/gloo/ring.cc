/* SPDX-License-Identifier: Apache-2.0
 *
 * Large blocks between hosts that hold several ranks each, round a ring in host order: every chunk
 * crosses each network link once, whatever the number of ranks on a host. In a reduction, chunk r
 * of a block starts at the rank after its owner and is combined at every stop; chunks of all blocks
 * and rounds are under way at the same time, in an order that all ranks share.
 */
#include "combine.h"

#include <algorithm>

namespace collrun_gloo
{

namespace
{

constexpr unsigned step_ring = 24, step_result = 25, step_blocks = 26;
constexpr size_t chunk_bytes = 256u << 10;
constexpr size_t slots = 8, ahead = 4; /* memory for chunks; receives posted in advance */

/* One stop of one chunk at this rank. */
struct stop {
    size_t at, bytes; /* in the vector */
    bool start, end;  /* begins its way here; belongs here */
};

std::vector<stop> itinerary(const combination &c)
{
    group &g = c.g;
    const size_t step = chunk_bytes / g.element() * g.element();
    const size_t largest = c.b.largest() * g.element();
    std::vector<stop> stops;
    for (size_t start = 0; start < largest; start += step) {
        for (int k = 0; k < g.size(); k++) {
            const int owner = neighbour(g, -1 - k);
            const size_t bytes = c.bytes(owner);
            if (start < bytes)
                stops.push_back({c.offset(owner) + start, std::min(step, bytes - start), k == 0,
                                 owner == g.rank()});
        }
    }
    return stops;
}

/* The travelling chunks that are received here. */
class belt
{
  public:
    belt(const combination &c, std::vector<stop> stops);
    void run();

  private:
    void post_ahead(size_t received);
    void pass(const stop &s, size_t i);

    const combination &c;
    group &g;
    std::vector<stop> all, incoming;
    signature head;
    char *memory;
    transfer own, chunks, results; /* sends of the caller's data; the rest is in `memory` */
    int left, right;
    size_t posted = 0;
    std::vector<size_t> sent; /* indices into incoming, oldest first: still in `memory` */
};

belt::belt(const combination &what, std::vector<stop> stops)
    : c(what), g(what.g), all(std::move(stops)), head(at_step(g.current(), step_ring, 0)),
      memory(g.scratch(slots * chunk_bytes)), own(g, what.send, what.b.total() * g.element()),
      chunks(g, memory, slots * chunk_bytes), results(g, memory, slots * chunk_bytes),
      left(neighbour(g, -1)), right(neighbour(g, 1))
{
    for (const stop &s : all)
        if (!s.start)
            incoming.push_back(s);
}

/* A slot is free when what was sent from it has left. */
void belt::post_ahead(size_t received)
{
    for (; posted < incoming.size() && posted < received + ahead; posted++) {
        while (!sent.empty() && posted >= slots && sent.front() <= posted - slots) {
            chunks.await_departure();
            sent.erase(sent.begin());
        }
        chunks.recv(left, head, (posted % slots) * chunk_bytes, incoming[posted].bytes);
    }
}

void belt::pass(const stop &s, size_t i)
{
    char *chunk = memory + (i % slots) * chunk_bytes;
    const void *const srcs[2] = {chunk, c.send + s.at};
    chunks.await_piece();
    const bool keep = s.end && c.result;
    char *dst = keep ? c.result + (s.at - c.offset(g.rank())) : chunk;
    g.reduce(dst, srcs, 2, s.bytes / g.element(), s.end);
    if (keep)
        return;
    if (s.end) { /* the gatherer has posted its receives: this does not wait for others */
        results.send(c.gatherer, at_step(head, step_result, 0), (i % slots) * chunk_bytes, s.bytes);
        results.await_departures();
        return;
    }
    chunks.send(right, head, (i % slots) * chunk_bytes, s.bytes);
    sent.push_back(i);
}

void belt::run()
{
    size_t received = 0;
    post_ahead(received);
    for (const stop &s : all) {
        if (s.start) {
            own.send(right, head, s.at, s.bytes);
            continue;
        }
        pass(s, received++);
        post_ahead(received);
    }
    chunks.await_departures();
    own.await_departures();
}

/* What the owners hand to the gatherer, in their chunks. */
void receive_results(const combination &c, transfer &results)
{
    const size_t step = chunk_bytes / c.g.element() * c.g.element();
    for (int k = 1; k < c.g.size(); k++) {
        const int from = neighbour(c.g, k);
        results.recv(from, at_step(c.g.current(), step_result, 0), c.offset(from), c.bytes(from),
                     step);
    }
}

} // namespace

void ring_combine(const combination &c)
{
    std::unique_ptr<transfer> results;
    if (c.how == gathered::by_one && c.g.rank() == c.gatherer) {
        results = std::make_unique<transfer>(c.g, c.all, c.b.total() * c.g.element());
        receive_results(c, *results);
    }
    belt(c, itinerary(c)).run();
    if (results)
        results->await_arrivals();
    if (c.how == gathered::by_all)
        ring_allgather(c.g, c.all, c.b);
}

void ring_allgather(group &g, char *all, const blocks &b)
{
    const int n = g.size(), left = neighbour(g, -1), right = neighbour(g, 1);
    const auto offset = [&](int r) { return b.first[static_cast<size_t>(r)] * g.element(); };
    const auto bytes = [&](int r) { return b.count[static_cast<size_t>(r)] * g.element(); };
    transfer t(g, all, b.total() * g.element());
    const signature head = at_step(g.current(), step_blocks, 0);
    for (int k = 1; k < n; k++)
        t.recv(left, head, offset(neighbour(g, -k)), bytes(neighbour(g, -k)));
    t.send(right, head, offset(g.rank()), bytes(g.rank()));
    for (int k = 1; k < n - 1; k++) {
        const int owner = neighbour(g, -k);
        for (size_t done = 0; done < bytes(owner); done += piece_bytes) {
            t.await_piece();
            t.send(right, head, offset(owner) + done, std::min(piece_bytes, bytes(owner) - done));
        }
    }
    t.await_arrivals();
    t.await_departures();
}

} // namespace collrun_gloo

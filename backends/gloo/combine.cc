/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions in which every rank sends its part of a block straight to the block's owner, who
 * combines all parts at once, in the order of ranks: every element is read once and rounded once,
 * and no step waits for an earlier one, which matters most where ranks share cores. Blocks that fit
 * travel as mailbox messages and are combined where they arrived. Larger ones go in rounds, one
 * chunk of every block at a time, two rounds in flight, so that the parts are still in cache when
 * they are combined.
 */
#include "combine.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace collrun_gloo
{

/* ---- blocks ---- */

blocks blocks::even(group &g, size_t count)
{
    blocks b;
    const auto n = static_cast<size_t>(g.size());
    for (size_t i = 0, at = 0; i < n; i++) {
        b.first.push_back(at);
        b.count.push_back(count / n + (i < count % n));
        at += b.count.back();
    }
    return b;
}

blocks blocks::all_of_one(group &g, size_t count, int owner)
{
    blocks b;
    b.first.assign(static_cast<size_t>(g.size()), 0);
    b.count.assign(static_cast<size_t>(g.size()), 0);
    b.count[static_cast<size_t>(owner)] = count;
    return b;
}

blocks blocks::uniform(group &g, size_t count)
{
    const std::vector<size_t> counts(static_cast<size_t>(g.size()), count);
    return of_counts(g, counts.data());
}

blocks blocks::of_counts(group &g, const size_t *counts)
{
    blocks b;
    for (size_t i = 0, at = 0; i < static_cast<size_t>(g.size()); i++) {
        b.first.push_back(at);
        b.count.push_back(counts[i]);
        at += counts[i];
    }
    return b;
}

size_t blocks::largest() const
{
    return *std::max_element(count.begin(), count.end());
}

size_t blocks::total() const
{
    size_t sum = 0;
    for (size_t c : count)
        sum += c;
    return sum;
}

int neighbour(group &g, int k)
{
    const int n = g.size(), place = g.net().place()[static_cast<size_t>(g.rank())];
    return g.net().order()[static_cast<size_t>(((place + k) % n + n) % n)];
}

namespace
{

constexpr unsigned step_part = 16, step_result = 17;
constexpr size_t depth = 2;                  /* rounds in flight */
constexpr size_t most_parts = 2u << 20;      /* bytes of others' parts in a round */
constexpr size_t largest_chunk = 512u << 10; /* bytes of one part */

/* ---- blocks that fit into messages ---- */

void combine_messages(const combination &c)
{
    group &g = c.g;
    mailbox &mail = g.mail();
    const int n = g.size(), self = g.rank();
    std::vector<const void *> srcs(static_cast<size_t>(n));
    const signature part = at_step(g.current(), step_part, c.bytes(self));
    const signature result = at_step(g.current(), step_result, c.bytes(self));
    for (int k = 1; k < n; k++) {
        const int to = neighbour(g, k);
        mail.post(to, at_step(part, step_part, c.bytes(to)), c.send + c.offset(to));
    }
    srcs[static_cast<size_t>(self)] = c.send + c.offset(self);
    for (int k = 1; k < n; k++) {
        const int from = neighbour(g, -k);
        srcs[static_cast<size_t>(from)] = mail.take(from, part);
    }
    char *dst = c.result ? c.result : mail.prepare(c.gatherer);
    g.reduce(dst, srcs.data(), static_cast<uint32_t>(n), c.b.count[static_cast<size_t>(self)],
             true);
    for (int k = 1; k < n; k++)
        mail.drop(neighbour(g, -k));
    if (!c.result)
        mail.post_prepared(c.gatherer, result);
    for (int k = 1; c.how == gathered::by_all && k < n; k++)
        mail.post(neighbour(g, k), result, dst);
    for (int k = 1; c.gathers(self) && k < n; k++) {
        const int from = neighbour(g, -k);
        const char *data = mail.take(from, at_step(result, step_result, c.bytes(from)));
        if (c.bytes(from) > 0)
            std::memcpy(c.all + c.offset(from), data, c.bytes(from));
        mail.drop(from);
    }
}

/* ---- larger ones ---- */

class rounds
{
  public:
    explicit rounds(const combination &c);
    void run();

  private:
    void post(size_t round);
    void combine(size_t round);
    size_t len(int rank, size_t round) const;
    char *part(size_t round, int k) const;

    const combination &c;
    group &g;
    const int n, self;
    size_t chunk, total; /* bytes of a chunk, rounds */
    signature part_head, result_head;
    char *memory;
    transfer parts_out;
    std::array<std::unique_ptr<transfer>, depth> parts_in;
    std::unique_ptr<transfer> results_out, results_in;
    std::vector<const void *> srcs;
};

rounds::rounds(const combination &what)
    : c(what), g(what.g), n(g.size()), self(g.rank()),
      parts_out(g, what.send, what.b.total() * g.element()), srcs(static_cast<size_t>(n))
{
    const size_t others = static_cast<size_t>(n) - 1, largest = c.b.largest() * g.element();
    const size_t fair = std::min(largest_chunk, std::max<size_t>(most_parts / others, 8192));
    chunk = std::min(largest, fair / g.element() * g.element());
    total = (largest + chunk - 1) / chunk;
    part_head = at_step(g.current(), step_part, 0);
    result_head = at_step(g.current(), step_result, 0);
    const size_t span = others * chunk;
    memory = g.scratch(depth * (span + chunk)); /* the parts, then results that pass through */
    for (size_t i = 0; i < depth; i++)
        parts_in[i] = std::make_unique<transfer>(g, memory + i * span, span);
    if (!c.result)
        results_out = std::make_unique<transfer>(g, memory + depth * span, depth * chunk);
    else if (c.how == gathered::by_all)
        results_out = std::make_unique<transfer>(g, c.result, c.bytes(self));
    if (c.gathers(self))
        results_in = std::make_unique<transfer>(g, c.all, c.b.total() * g.element());
}

size_t rounds::len(int rank, size_t round) const
{
    const size_t bytes = c.bytes(rank), start = round * chunk;
    return start < bytes ? std::min(chunk, bytes - start) : 0;
}

char *rounds::part(size_t round, int k) const
{
    const size_t others = static_cast<size_t>(n) - 1;
    return memory + ((round % depth) * others + static_cast<size_t>(k) - 1) * chunk;
}

void rounds::post(size_t round)
{
    for (int k = 1; round < total && k < n; k++) {
        const int to = neighbour(g, k), from = neighbour(g, -k);
        parts_in[round % depth]->recv(from, part_head, static_cast<size_t>(k - 1) * chunk,
                                      len(self, round));
        parts_out.send(to, part_head, c.offset(to) + round * chunk, len(to, round));
        if (results_in)
            results_in->recv(from, result_head, c.offset(from) + round * chunk, len(from, round));
    }
}

void rounds::combine(size_t round)
{
    const size_t bytes = len(self, round), start = round * chunk;
    if (bytes == 0)
        return;
    parts_in[round % depth]->await_arrivals();
    for (int k = 1; k < n; k++)
        srcs[static_cast<size_t>(neighbour(g, -k))] = part(round, k);
    srcs[static_cast<size_t>(self)] = c.send + c.offset(self) + start;
    size_t at = start;
    char *dst = nullptr;
    if (c.result) {
        dst = c.result + start;
    } else {
        while (results_out->departing() >= depth)
            results_out->await_departure();
        at = (round % depth) * chunk;
        dst = part(0, 1) + depth * (static_cast<size_t>(n) - 1) * chunk + at;
    }
    g.reduce(dst, srcs.data(), static_cast<uint32_t>(n), bytes / g.element(), true);
    if (!c.result)
        results_out->send(c.gatherer, result_head, at, bytes);
    for (int k = 1; c.how == gathered::by_all && k < n; k++)
        results_out->send(neighbour(g, k), result_head, at, bytes);
}

void rounds::run()
{
    for (size_t round = 0; round < depth; round++)
        post(round);
    for (size_t round = 0; round < total; round++) {
        combine(round);
        post(round + depth);
    }
    if (results_in)
        results_in->await_arrivals();
    parts_out.await_departures();
    if (results_out)
        results_out->await_departures();
}

void combine(const combination &c)
{
    group &g = c.g;
    const bool half = is_half(static_cast<enum collrun_dtype>(g.current().dtype));
    if (c.b.largest() * g.element() <= g.mail().capacity)
        combine_messages(c);
    else if (g.net().crowded_hosts() && !half)
        ring_combine(c);
    else
        rounds(c).run();
}

void combine_alone(group &g, const collrun_call &call, size_t count)
{
    const void *const src = call.send;
    g.reduce(call.recv, &src, 1, count, true);
}

} // namespace

void combine_allreduce(group &g, const collrun_call &call)
{
    if (g.size() == 1)
        return combine_alone(g, call, call.count);
    const blocks b = blocks::even(g, call.count);
    char *recv = static_cast<char *>(call.recv);
    const size_t own = b.first[static_cast<size_t>(g.rank())] * g.element();
    combine({g, static_cast<const char *>(call.send), recv + own, recv, gathered::by_all, 0, b});
}

/* With two ranks, half the vector need not come back. */
void combine_reduce(group &g, const collrun_call &call)
{
    if (g.size() == 1)
        return combine_alone(g, call, call.count);
    const bool root = g.rank() == call.root;
    const blocks b =
        g.size() == 2 ? blocks::all_of_one(g, call.count, call.root) : blocks::even(g, call.count);
    char *recv = root ? static_cast<char *>(call.recv) : nullptr;
    const size_t own = b.first[static_cast<size_t>(g.rank())] * g.element();
    combine({g, static_cast<const char *>(call.send), root ? recv + own : nullptr, recv,
             gathered::by_one, call.root, b});
}

void combine_reduce_scatter(group &g, const collrun_call &call)
{
    const bool v = call.kind == COLLRUN_REDUCE_SCATTERV;
    const blocks b = v ? blocks::of_counts(g, call.recvcounts) : blocks::uniform(g, call.count);
    if (g.size() == 1)
        return combine_alone(g, call, b.count[0]);
    combine({g, static_cast<const char *>(call.send), static_cast<char *>(call.recv), nullptr,
             gathered::by_nobody, 0, b});
}

} // namespace collrun_gloo

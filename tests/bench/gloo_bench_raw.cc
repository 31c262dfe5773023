/* SPDX-License-Identifier: Apache-2.0
 *
 * The peer of the Gloo backend's benchmark: Gloo's collectives, over Gloo's transport.
 */
#include "gloo_bench.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace
{

class raw_context : public gloo::Context
{
  public:
    raw_context(int rank, int nranks) : gloo::Context(rank, nranks)
    {
        gloo::transport::tcp::attr attr("127.0.0.1");
        device_ = gloo::transport::tcp::CreateDevice(attr);
        transportContext_ = device_->createContext(rank, nranks);
        transportContext_->setTimeout(std::chrono::seconds(60));
        setTimeout(std::chrono::seconds(60));
    }
    gloo::transport::Context &transport()
    {
        return *transportContext_;
    }
};

void sum(void *c, const void *a, const void *b, size_t n)
{
    gloo::sum<float>(c, a, b, n);
}

} // namespace

struct raw_gloo {
    std::shared_ptr<raw_context> context;
    std::function<void()> run;
    uint32_t tag = 0;
};

raw_gloo *raw_gloo_new(int rank, int nranks, char *addresses)
{
    auto *g = new raw_gloo;
    g->context = std::make_shared<raw_context>(rank, nranks);
    for (int i = 0; i < nranks; i++) {
        if (i == rank)
            continue;
        const auto bytes = g->context->transport().createPair(i)->address().bytes();
        std::memcpy(addresses + i * RAW_ADDRESS_BYTES, bytes.data(), bytes.size());
    }
    return g;
}

void raw_gloo_connect(raw_gloo *g, const char *addresses)
{
    auto &transport = g->context->transport();
    for (int i = 0; i < g->context->size; i++) {
        if (i == g->context->rank)
            continue;
        const auto &pair = transport.getPair(i);
        const char *at = addresses + i * RAW_ADDRESS_BYTES;
        pair->connect(std::vector<char>(at, at + pair->address().bytes().size()));
    }
}

namespace
{

using run = std::function<void()>;

run reduction(raw_gloo *g, const std::string &op, float *send, float *recv, size_t count)
{
    const auto context = g->context;
    if (op == "allreduce")
        return [=] {
            gloo::AllreduceOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count);
            o.setReduceFunction(sum);
            o.setTag(g->tag++);
            gloo::allreduce(o);
        };
    if (op == "reduce")
        return [=] {
            gloo::ReduceOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count);
            o.setReduceFunction(sum);
            o.setRoot(0);
            o.setTag(g->tag++);
            gloo::reduce(o);
        };
    return nullptr;
}

run from_or_to_root(raw_gloo *g, const std::string &op, float *send, float *recv, size_t count)
{
    const auto context = g->context;
    const auto n = static_cast<size_t>(context->size);
    if (op == "broadcast")
        return [=] {
            gloo::BroadcastOptions o(context);
            o.setOutput(recv, count);
            o.setRoot(0);
            o.setTag(g->tag++);
            gloo::broadcast(o);
        };
    if (op == "gather")
        return [=] {
            gloo::GatherOptions o(context);
            o.setInput(send, count);
            if (context->rank == 0)
                o.setOutput(recv, count * n);
            o.setRoot(0);
            o.setTag(g->tag++);
            gloo::gather(o);
        };
    if (op != "scatter")
        return nullptr;
    std::vector<float *> blocks;
    for (size_t i = 0; i < n; i++)
        blocks.push_back(send + i * count);
    return [=] {
        gloo::ScatterOptions o(context);
        if (context->rank == 0)
            o.setInputs(blocks, count);
        o.setOutput(recv, count);
        o.setRoot(0);
        o.setTag(g->tag++);
        gloo::scatter(o);
    };
}

run all_to_all(raw_gloo *g, const std::string &op, float *send, float *recv, size_t count)
{
    const auto context = g->context;
    const auto n = static_cast<size_t>(context->size);
    const auto self = static_cast<size_t>(context->rank);
    std::vector<size_t> by_rank;
    std::vector<int64_t> by_distance;
    for (size_t i = 0; i < n; i++) {
        by_rank.push_back(uneven_count(count, i));
        by_distance.push_back(static_cast<int64_t>(uneven_count(count, self + i)));
    }
    if (op == "allgather")
        return [=] {
            gloo::AllgatherOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count * n);
            o.setTag(g->tag++);
            gloo::allgather(o);
        };
    if (op == "allgatherv")
        return [=] {
            gloo::AllgathervOptions o(context);
            o.setInput(send, by_rank[self]);
            o.setOutput(recv, by_rank);
            o.setTag(g->tag++);
            gloo::allgatherv(o);
        };
    if (op == "alltoall")
        return [=] {
            gloo::AlltoallOptions o(context);
            o.setInput(send, count * n);
            o.setOutput(recv, count * n);
            o.setTag(g->tag++);
            gloo::alltoall(o);
        };
    if (op == "alltoallv")
        return [=] {
            gloo::AlltoallvOptions o(context);
            o.setInput(send, by_distance);
            o.setOutput(recv, by_distance);
            o.setTag(g->tag++);
            gloo::alltoallv(o);
        };
    return nullptr;
}

/* None of those of the collectives. */
constexpr uint64_t message_slots = 1ull << 59;

/* sendrecv: to the next rank, from the one before. exchange, pingpong: with the other rank of a
 * pair, at the same time, and there and back. */
run messages(raw_gloo *g, const std::string &op, float *send, float *recv, size_t count)
{
    const auto context = g->context;
    const int self = context->rank, n = context->size, pair = self ^ 1;
    const bool ring = op == "sendrecv", turns = op == "pingpong";
    if (!ring && !turns && op != "exchange")
        return nullptr;
    const int to = ring ? (self + 1) % n : pair, from = ring ? (self + n - 1) % n : pair;
    return [=] {
        const auto out = context->createUnboundBuffer(send, count * sizeof(float));
        const auto in = context->createUnboundBuffer(recv, count * sizeof(float));
        const uint64_t slot = message_slots + g->tag++;
        in->recv(from, slot);
        if (turns && self > pair)
            in->waitRecv();
        out->send(to, slot);
        if (!turns || self < pair)
            in->waitRecv();
        out->waitSend();
    };
}

run barrier(raw_gloo *g, const std::string &op, float *, float *, size_t)
{
    const auto context = g->context;
    if (op != "barrier")
        return nullptr;
    return [=] {
        gloo::BarrierOptions o(context);
        o.setTag(g->tag++);
        gloo::barrier(o);
    };
}

} // namespace

void raw_gloo_prepare(raw_gloo *g, const char *name, float *send, float *recv, size_t count)
{
    for (const auto kind : {barrier, reduction, from_or_to_root, all_to_all, messages})
        if (const run found = kind(g, name, send, recv, count))
            g->run = found;
}

void raw_gloo_run(raw_gloo *g)
{
    g->run();
}

void raw_gloo_free(raw_gloo *g)
{
    g->run = nullptr;
    delete g;
}

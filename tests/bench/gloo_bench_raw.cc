/* SPDX-License-Identifier: Apache-2.0
 *
 * The peer of the Gloo backend's benchmark: Gloo's own collectives on a context of its own.
 */
#include "gloo_bench.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <functional>
#include <string>

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

int raw_gloo_prepare(raw_gloo *g, const char *name, float *send, float *recv, size_t count)
{
    const std::string op = name;
    const auto context = g->context;
    const auto n = static_cast<size_t>(context->size);
    if (op == "barrier") {
        g->run = [=] {
            gloo::BarrierOptions o(context);
            o.setTag(g->tag++);
            gloo::barrier(o);
        };
    } else if (op == "allreduce") {
        g->run = [=] {
            gloo::AllreduceOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count);
            o.setReduceFunction(sum);
            o.setTag(g->tag++);
            gloo::allreduce(o);
        };
    } else if (op == "reduce") {
        g->run = [=] {
            gloo::ReduceOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count);
            o.setReduceFunction(sum);
            o.setRoot(0);
            o.setTag(g->tag++);
            gloo::reduce(o);
        };
    } else if (op == "broadcast") {
        g->run = [=] {
            gloo::BroadcastOptions o(context);
            o.setOutput(recv, count);
            o.setRoot(0);
            o.setTag(g->tag++);
            gloo::broadcast(o);
        };
    } else if (op == "allgather") {
        g->run = [=] {
            gloo::AllgatherOptions o(context);
            o.setInput(send, count);
            o.setOutput(recv, count * n);
            o.setTag(g->tag++);
            gloo::allgather(o);
        };
    } else if (op == "reduce_scatter") {
        /* It is in place: the input is copied first, as it must be kept. */
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
            context, std::vector<float *>{recv}, static_cast<int>(count * n),
            std::vector<int>(n, static_cast<int>(count)));
        g->run = [=] {
            std::memcpy(recv, send, count * n * sizeof(float));
            algorithm->run();
        };
    } else {
        return 1;
    }
    return 0;
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

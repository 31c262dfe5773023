/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's algorithms, called with the engine's arguments.
 *
 * - What moves bytes is bytes for Gloo. Reductions are elements of the right size, and a function
 *   that calls the engine's kernels: every type and operator works. AVG sums, and divides once.
 * - Gloo's algorithms return at once for a count of 0, which has to synchronise: that is a barrier.
 * - Gloo's v-forms are packed, and its alltoall is not in place: other blocks are copied.
 *
 * Failure modes: those of transport.h; anything else that Gloo throws fails the group.
 */
#include "collective.h"

#include "transport.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <cstring>
#include <new>

namespace collrun_gloo
{

namespace
{

using context_ref = const std::shared_ptr<gloo::Context> &;

/* Gloo takes inputs as pointers to what it does not write. */
uint8_t *bytes_of(const void *p)
{
    return static_cast<uint8_t *>(const_cast<void *>(p));
}

/* ---- v-forms ---- */

/* The blocks of a v-form, as they are in the arrays of the call. */
class blocks
{
  public:
    blocks(uint32_t nranks, size_t element, const size_t *counts, const size_t *displs)
        : n_(nranks), element_(element), counts_(counts), displs_(displs)
    {
        for (uint32_t i = 0; i < n_; total_ += bytes(i++))
            is_packed_ = is_packed_ && offset(i, total_) == total_;
    }
    /* In bytes. */
    template <typename T> std::vector<T> lengths() const
    {
        std::vector<T> all(n_);
        for (uint32_t i = 0; i < n_; i++)
            all[i] = static_cast<T>(bytes(i));
        return all;
    }
    bool is_block(int rank, const void *start, const void *user) const
    {
        size_t at = 0;
        for (int i = 0; i < rank; i++)
            at += bytes(static_cast<uint32_t>(i));
        return user && start == bytes_of(user) + offset(static_cast<uint32_t>(rank), at);
    }
    /* `user` itself if it is packed and `other` is another buffer; else a copy, or the place for
     * one. */
    uint8_t *packed(const void *user, bool copies, const void *other = nullptr)
    {
        if (is_packed_ && (!user || user != other))
            return bytes_of(user);
        copy_.reset(new uint8_t[total_]);
        size_t at = 0;
        for (uint32_t i = 0; copies && i < n_; at += bytes(i++))
            if (counts_[i] > 0)
                std::memcpy(&copy_[at], bytes_of(user) + offset(i, at), bytes(i));
        return copy_.get();
    }
    void unpack(void *user) const
    {
        size_t at = 0;
        for (uint32_t i = 0; copy_ && i < n_; at += bytes(i++))
            if (counts_[i] > 0)
                std::memcpy(bytes_of(user) + offset(i, at), &copy_[at], bytes(i));
    }

  private:
    size_t bytes(uint32_t i) const
    {
        return counts_[i] * element_;
    }
    /* `packed`: where block i is if it follows the one before. */
    size_t offset(uint32_t i, size_t packed) const
    {
        return displs_ ? displs_[i] * element_ : packed;
    }

    const uint32_t n_;
    const size_t element_, *const counts_, *const displs_;
    size_t total_ = 0;
    bool is_packed_ = true;
    std::unique_ptr<uint8_t[]> copy_;
};

/* What a rank sends to itself passes no transport that would compare the lengths. */
void check_own(net_op *op, const collrun_call &call, size_t sent)
{
    const collrun_services &services = *net_op_services(op);
    const uint32_t rank = net_op_rank(op);
    const collrun_count_mismatch counts = {&call, sent, call.recvcounts[rank], rank, rank};
    char text[256];
    if (counts.sent == counts.received)
        return;
    services.count_mismatch_text(services.ctx, &counts, text, sizeof text);
    throw failed{net_op_fail(op, COLLRUN_ERR_MISMATCH, text)};
}

void allgatherv(net_op *op, context_ref context, const collrun_call &call)
{
    const auto n = static_cast<uint32_t>(context->size);
    const size_t element = net_op_services(op)->dtype_size(call.dtype);
    check_own(op, call, call.count);
    blocks b(n, element, call.recvcounts, call.recvdispls);
    const bool in_place = b.is_block(context->rank, call.send, call.recv);
    gloo::AllgathervOptions opts(context);
    uint8_t *out = b.packed(call.recv, in_place);
    if (!in_place || out != call.recv)
        opts.setInput(bytes_of(call.send), call.count * element);
    opts.setOutput(out, b.lengths<size_t>());
    gloo::allgatherv(opts);
    b.unpack(call.recv);
}

void alltoallv(net_op *op, context_ref context, const collrun_call &call)
{
    const auto n = static_cast<uint32_t>(context->size);
    const size_t element = net_op_services(op)->dtype_size(call.dtype);
    check_own(op, call, call.sendcounts[context->rank]);
    blocks in(n, element, call.sendcounts, call.senddispls);
    blocks out(n, element, call.recvcounts, call.recvdispls);
    gloo::AlltoallvOptions opts(context);
    opts.setInput(in.packed(call.send, true, call.recv), in.lengths<int64_t>());
    opts.setOutput(out.packed(call.recv, false), out.lengths<int64_t>());
    gloo::alltoallv(opts);
    out.unpack(call.recv);
}

/* ---- equal blocks ---- */

void barrier(context_ref context)
{
    gloo::BarrierOptions opts(context);
    gloo::barrier(opts);
}

void broadcast(context_ref context, const collrun_call &call, size_t bytes)
{
    gloo::BroadcastOptions opts(context);
    opts.setOutput(bytes_of(call.recv), bytes);
    opts.setRoot(call.root);
    gloo::broadcast(opts);
}

void allgather(context_ref context, const collrun_call &call, size_t bytes)
{
    uint8_t *out = bytes_of(call.recv);
    gloo::AllgatherOptions opts(context);
    if (call.send != out + static_cast<size_t>(context->rank) * bytes)
        opts.setInput(bytes_of(call.send), bytes);
    opts.setOutput(out, bytes * static_cast<size_t>(context->size));
    gloo::allgather(opts);
}

void gather(context_ref context, const collrun_call &call, size_t bytes)
{
    gloo::GatherOptions opts(context);
    opts.setInput(bytes_of(call.send), bytes);
    if (context->rank == call.root)
        opts.setOutput(bytes_of(call.recv), bytes * static_cast<size_t>(context->size));
    opts.setRoot(call.root);
    gloo::gather(opts);
}

void scatter(context_ref context, const collrun_call &call, size_t bytes)
{
    gloo::ScatterOptions opts(context);
    std::vector<uint8_t *> in(context->rank == call.root ? static_cast<size_t>(context->size) : 0);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = bytes_of(call.send) + i * bytes;
    opts.setInputs(in.data(), in.size(), bytes);
    opts.setOutput(bytes_of(call.recv), bytes);
    opts.setRoot(call.root);
    gloo::scatter(opts);
}

/* Memory of the operation; large pieces stay with the group, for new ones cost more than a call. */
void *scratch(net_op *op, size_t bytes)
{
    void *memory = net_op_scratch(op, bytes);
    return memory ? memory : throw failed{COLLRUN_ERR_NO_MEMORY};
}

void alltoall(net_op *op, context_ref context, const collrun_call &call, size_t bytes)
{
    const size_t all = bytes * static_cast<size_t>(context->size);
    uint8_t *in = bytes_of(call.send);
    if (call.send == call.recv)
        in = static_cast<uint8_t *>(std::memcpy(scratch(op, all), call.send, all));
    gloo::AlltoallOptions opts(context);
    opts.setInput(in, all);
    opts.setOutput(bytes_of(call.recv), all);
    gloo::alltoall(opts);
}

/* ---- reductions ---- */

class reduction
{
  public:
    reduction(net_op *op, context_ref context, const collrun_call &call)
        : op_(op), context_(context), call_(call), services_(*net_op_services(op))
    {
    }
    template <typename T> void allreduce()
    {
        gloo::AllreduceOptions opts(context_);
        if (call_.send != call_.recv)
            opts.setInput(reinterpret_cast<T *>(bytes_of(call_.send)), call_.count);
        opts.setOutput(static_cast<T *>(call_.recv), call_.count);
        opts.setReduceFunction(function());
        gloo::allreduce(opts);
        finish();
    }
    /* Gloo writes the output of every rank, also where the call has none. */
    template <typename T> void reduce()
    {
        const bool is_root = context_->rank == call_.root;
        T *in = reinterpret_cast<T *>(bytes_of(call_.send));
        void *out = is_root ? call_.recv : scratch(op_, call_.count * sizeof(T));
        gloo::ReduceOptions opts(context_);
        if (in != out)
            opts.setInput(in, call_.count);
        opts.setOutput(static_cast<T *>(out), call_.count);
        opts.setRoot(call_.root);
        opts.setReduceFunction(function());
        gloo::reduce(opts);
        if (is_root)
            finish();
    }

  private:
    std::function<void(void *, const void *, const void *, size_t)> function() const
    {
        return [this](void *dst, const void *a, const void *b, size_t count) {
            const void *const srcs[] = {a, b};
            services_.reduce(dst, srcs, 2, count, call_.dtype, call_.op, 0);
        };
    }
    /* Divides; or, alone, gives what an operator makes of one operand. */
    void finish() const
    {
        const void *const srcs[] = {call_.recv};
        if (call_.op == COLLRUN_AVG || context_->size == 1)
            services_.reduce(call_.recv, srcs, 1, call_.count, call_.dtype, call_.op,
                             static_cast<uint32_t>(context_->size));
    }

    net_op *const op_;
    context_ref context_;
    const collrun_call &call_;
    const collrun_services &services_;
};

template <typename T> void reduce_elements(reduction &r, collrun_kind kind)
{
    if (kind == COLLRUN_ALLREDUCE)
        r.allreduce<T>();
    else
        r.reduce<T>();
}

void run_reduction(net_op *op, context_ref context, const collrun_call &call, size_t element)
{
    reduction r(op, context, call);
    switch (element) {
    case 1:
        return reduce_elements<uint8_t>(r, call.kind);
    case 2:
        return reduce_elements<uint16_t>(r, call.kind);
    case 4:
        return reduce_elements<uint32_t>(r, call.kind);
    default:
        return reduce_elements<uint64_t>(r, call.kind);
    }
}

void run(net_op *op)
{
    const collrun_call &call = *net_op_call(op);
    const std::shared_ptr<gloo::Context> context = std::make_shared<algorithm_context>(op);
    const size_t element =
        call.kind == COLLRUN_BARRIER ? 0 : net_op_services(op)->dtype_size(call.dtype);
    const size_t bytes = call.count * element;
    if (call.kind == COLLRUN_ALLGATHERV)
        return allgatherv(op, context, call);
    if (call.kind == COLLRUN_ALLTOALLV)
        return alltoallv(op, context, call);
    if (bytes == 0)
        return barrier(context);
    switch (call.kind) {
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        return run_reduction(op, context, call, element);
    case COLLRUN_BROADCAST:
        return broadcast(context, call, bytes);
    case COLLRUN_ALLGATHER:
        return allgather(context, call, bytes);
    case COLLRUN_GATHER:
        return gather(context, call, bytes);
    case COLLRUN_SCATTER:
        return scatter(context, call, bytes);
    case COLLRUN_ALLTOALL:
        return alltoall(op, context, call, bytes);
    default:
        throw failed{net_op_fail(op, COLLRUN_ERR_UNSUPPORTED, "Gloo has no such operation")};
    }
}

} // namespace

} // namespace collrun_gloo

int gloo_collective(void *, net_op *op)
{
    try {
        collrun_gloo::run(op);
        return COLLRUN_OK;
    } catch (const collrun_gloo::failed &f) {
        return f.status;
    } catch (const std::bad_alloc &) {
        return net_op_fail(op, COLLRUN_ERR_NO_MEMORY, "out of memory for Gloo's algorithm");
    } catch (const std::exception &e) {
        const std::string text = std::string("Gloo: ") + e.what();
        return net_op_fail(op, COLLRUN_ERR_BACKEND, text.c_str());
    }
}

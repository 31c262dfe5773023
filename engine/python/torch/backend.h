// SPDX-License-Identifier: Apache-2.0
//
// The c10d backend over one group of collrun; over a second one for tensors in host memory, if the
// first is on a backend for devices alone.
//
// - A call without async_op waits inside collrun and returns a complete Work; with async_op, or
// with
//   tensors on devices, it returns a Work with a request. Both run in the order of their calls. On
//   devices they start after the current stream.
// - Collectives of a group are called by one thread at a time, so the backend has a lock; messages
//   need none.
// - Tensors that are not contiguous, and lists whose tensors do not lie one after the other, are
//   copied before and after. Sparse tensors are refused.
// - Reductions take collrun's 13 types. Complex tensors are sums of two reals, so SUM and AVG take
//   them. Types that are only moved are moved as bytes.
// - A group that was made for the process group is destroyed when the process group is shut down
//   or dropped and its requests have completed; peers may be behind. Groups of the job file stay.
#ifndef PYTHON_TORCH_BACKEND_H
#define PYTHON_TORCH_BACKEND_H

#include "versions.h"
#include "work.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace collrun
{

struct Plan;

class Backend : public c10d::Backend
{
  public:
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<Tensors>;
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;

    // The group of the ranks in `members`, which are world ranks of collrun: the group `name` of
    // the job file if it has these members in this order and serves no process group yet, else a
    // new one.
    static c10::intrusive_ptr<Backend> create(collrun_ctx *ctx, int rank,
                                              const std::vector<int> &members,
                                              std::chrono::milliseconds timeout,
                                              const std::string &name = "world");
    struct Groups {
        std::shared_ptr<Group> main, host; // of tensors in host memory; may be the same
    };
    Backend(collrun_ctx *ctx, Groups groups, int rank, int size, std::chrono::milliseconds timeout);
    ~Backend() override;

    const std::string getBackendName() const override
    {
        return "collrun";
    }
    c10::intrusive_ptr<Options> getBackendOptions()
#if TORCH_SINCE_2(9)
        override
#endif
    {
        return options;
    }
    // The names that collrun has: "train", "shm".
    std::string groupName() const
    {
        return collrun_group_name(held()->handle);
    }
    std::string groupBackend() const
    {
        return collrun_group_backend(held()->handle);
    }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &outputSplits,
                          std::vector<int64_t> &inputSplits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    void setSequenceNumberForGroup() override
    {
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return number;
    }
#if TORCH_SINCE_2(7)
    void abort() override;
    void shutdown() override;
#endif
#if TORCH_SINCE_2(9)
    void setTimeout(std::chrono::milliseconds timeout) override
    {
        options->timeout = timeout;
    }
    bool supportsSplitting() const override
    {
        return true;
    }
    // Collective over the new members; `ranks` are ranks of this group.
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &opts) override;
#endif

  private:
    // For tensors in host memory, or others. Throws after shutdown().
    std::shared_ptr<Group> held(bool onHost = false) const;
    WorkPtr start(Plan &plan);
    WorkPtr message(collrun_kind kind, Tensors &tensors, int peer, int tag);
    void single(Plan &plan, collrun_kind kind, at::Tensor &output, at::Tensor &input,
                const c10d::ReduceOp *op);

    collrun_ctx *const ctx;
    Groups groups; // read and written atomically; NULL after shutdown()
    const c10::intrusive_ptr<Options> options;
    std::mutex collectives;
    std::atomic<uint64_t> number{0};
    const std::shared_ptr<Waiter> ordered, unordered;
};

} // namespace collrun

#endif

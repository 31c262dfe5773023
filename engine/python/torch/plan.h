// SPDX-License-Identifier: Apache-2.0
//
// How a call of c10d becomes calls of collrun: types, operators, and buffers that are contiguous.
// A buffer that has to be copied is a new tensor; what was received is copied back when the
// operation is complete.
#ifndef PYTHON_TORCH_PLAN_H
#define PYTHON_TORCH_PLAN_H

#include "work.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace collrun
{

struct Plan {
    using Tensors = std::vector<at::Tensor>;

    template <class Options> Plan(c10d::OpType type, const Options &opts) : type(type)
    {
        timeout = opts.timeout;
        async = isAsync(opts, 0);
    }
    explicit Plan(c10d::OpType type) : type(type)
    {
    }

    // The tensor itself, or a copy that is contiguous, and neither a conjugated nor a negated view.
    at::Tensor input(const at::Tensor &tensor);
    at::Tensor output(const at::Tensor &tensor);
    at::Tensor inout(const at::Tensor &tensor);
    // The tensors one after the other, in one dimension.
    at::Tensor inputs(const Tensors &list);
    at::Tensor outputs(const Tensors &list);
    // Refuses outputs that share memory.
    void checkOutputs() const;
    // A counts array that lives as long as the plan: numel() of each, in elements of the call.
    const size_t *counts(const Tensors &list);
    const size_t *counts(const std::vector<int64_t> &splits, const at::Tensor &tensor, int size);

    // The next call. `buffer` gives type and device, and `count` is in its elements.
    collrun_call &move(collrun_kind kind, const at::Tensor &buffer, int64_t count);
    collrun_call &reduce(collrun_kind kind, const at::Tensor &buffer, int64_t count,
                         const c10d::ReduceOp &op);
    // A collective, as the lists have one tensor each.
    static at::Tensor &only(Tensors &tensors);

    const c10d::OpType type;
    std::chrono::milliseconds timeout{c10d::kUnsetTimeout};
    bool async = true;
    bool isMessage = false;
    std::vector<collrun_call> calls;
    std::vector<c10::Device> devices; // of the calls
    std::shared_ptr<Operation> operation = std::make_shared<Operation>();
    std::vector<std::function<void()>> after;
    // Copies into tensors of the caller, such as parameters, are no operations of autograd. Those
    // of inference mode may be copied into outside of it.
    const c10::InferenceMode noAutograd;

  private:
    // asyncOp is in all options since torch 2.7.
    template <class Options> static auto isAsync(const Options &opts, int) -> decltype(opts.asyncOp)
    {
        return opts.asyncOp;
    }
    template <class Options> static bool isAsync(const Options &, long)
    {
        return true;
    }
    collrun_call &add(collrun_kind kind, const at::Tensor &buffer, int64_t count,
                      collrun_dtype dtype, size_t units);

    std::deque<std::vector<size_t>> arrays;
};

// PREMUL_SUM: multiplies the tensor by the factor of the operator.
void planScale(at::Tensor &tensor, const c10d::ReduceOp &op);
bool planSameSizes(const std::vector<at::Tensor> &list);

} // namespace collrun

#endif

// SPDX-License-Identifier: Apache-2.0
//
// collrun._torch: what collrun/torch.py needs of C++. `context` is that of collrun._collrun. And
// how operations get tensors with a lazy negation (torch._neg_view, z.conj().imag), which torch
// resolves before it calls a backend.
#include "backend.h"
#include "store.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <torch/version.h>

namespace
{

collrun_ctx *contextOf(const pybind11::capsule &context)
{
    return context.get_pointer<collrun_ctx>();
}

// Whether the group of the operation on this tensor is collrun's.
bool isOurs(const c10::OperatorHandle &op, const torch::jit::Stack &stack, const at::Tensor &tensor)
{
    const auto &schema = op.schema();
    const auto at = schema.argumentIndexWithName("process_group");
    if (!at)
        return false;
    const auto n = schema.arguments().size();
    const auto group =
        torch::jit::peek(stack, static_cast<size_t>(*at), n).toCustomClass<c10d::ProcessGroup>();
    const auto backend = group->getBackend(tensor.device().type());
    return dynamic_cast<const collrun::Backend *>(backend.get()) != nullptr;
}

// The schemas of c10d do not say that operations write to their tensors. So torch gives them copies
// without the negation, and drops the results. Those of collrun get the tensors as they are, all
// others what torch gives them.
void operationOnNegation(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                         torch::jit::Stack *stack)
{
    const auto n = op.schema().arguments().size();
    std::vector<std::pair<size_t, std::vector<at::Tensor>>> lists;
    for (size_t i = 0; i < n; i++) {
        const auto &argument = torch::jit::peek(*stack, i, n);
        if (argument.isTensor())
            lists.push_back({i, {argument.toTensor()}});
        else if (argument.isTensorList())
            lists.push_back({i, argument.toTensorVector()});
    }
    for (auto &[i, list] : lists) {
        auto &argument = torch::jit::peek(*stack, i, n);
        for (auto &tensor : list)
            tensor = tensor.is_neg() && !isOurs(op, *stack, tensor) ? tensor.resolve_neg() : tensor;
        argument = argument.isTensor() ? c10::IValue(list[0]) : c10::IValue(list);
    }
    op.redispatchBoxed(
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Negative),
        stack);
}

} // namespace

TORCH_LIBRARY_IMPL(c10d, Negative, library)
{
    for (const char *name :
         {"broadcast_", "allreduce_", "allreduce_coalesced_", "reduce_", "allgather_",
          "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_",
          "reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "gather_",
          "scatter_", "alltoall_", "alltoall_base_", "recv_", "recv_any_source_"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&operationOnNegation>());
}

PYBIND11_MODULE(_torch, module)
{
    namespace py = pybind11;
    using Free = py::call_guard<py::gil_scoped_release>;

    module.attr("torch_version") = TORCH_VERSION;
    py::class_<collrun::Backend, c10::intrusive_ptr<collrun::Backend>, c10d::Backend>(module,
                                                                                      "Backend")
        .def_property_readonly("group_name", &collrun::Backend::groupName)
        .def_property_readonly("group_backend", &collrun::Backend::groupBackend);
    py::class_<collrun::Store, c10::intrusive_ptr<collrun::Store>, c10d::Store>(module, "Store");
    module.def(
        "create",
        [](const py::capsule &context, int rank, const std::vector<int> &members,
           std::chrono::milliseconds timeout, const std::string &name) {
            auto *ctx = contextOf(context);
            py::gil_scoped_release released;
            return collrun::Backend::create(ctx, rank, members, timeout, name);
        },
        py::arg("context"), py::arg("rank"), py::arg("members"), py::arg("timeout"),
        py::arg("name"));
    module.def(
        "store",
        [](const py::capsule &context, std::chrono::milliseconds timeout) {
            auto *ctx = contextOf(context);
            py::gil_scoped_release released;
            return collrun::Store::open(ctx, timeout);
        },
        py::arg("context"), py::arg("timeout"));
    module.def("stop", &collrun::Waiter::stopAll, Free());
}

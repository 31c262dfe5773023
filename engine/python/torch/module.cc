// SPDX-License-Identifier: Apache-2.0
//
// collrun._torch: what collrun/torch.py needs of C++. `context` is that of collrun._collrun.
#include "backend.h"
#include "store.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

namespace
{

collrun_ctx *contextOf(const pybind11::capsule &context)
{
    return context.get_pointer<collrun_ctx>();
}

} // namespace

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
           std::chrono::milliseconds timeout) {
            auto *ctx = contextOf(context);
            py::gil_scoped_release released;
            return collrun::Backend::create(ctx, rank, members, timeout);
        },
        py::arg("context"), py::arg("rank"), py::arg("members"), py::arg("timeout"));
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

// SPDX-License-Identifier: Apache-2.0
//
// What torch has since which version. The extension compiles with torch 2.6 and later.
#ifndef PYTHON_TORCH_VERSIONS_H
#define PYTHON_TORCH_VERSIONS_H

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#define TORCH_SINCE_2(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace collrun
{

// The names of coalesced operations are new in 2.14.
#if TORCH_SINCE_2(14)
constexpr auto kAllgatherCoalesced = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
constexpr auto kReduceScatterCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
constexpr auto kAllgatherCoalesced = c10d::OpType::COALESCED;
constexpr auto kReduceScatterCoalesced = c10d::OpType::COALESCED;
#endif

// The current stream of the device, as its library knows it. Before 2.11 Python alone tells that of
// CUDA without linking the library.
inline void *nativeStream(c10::Device device)
{
#if TORCH_SINCE_2(11)
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
#else
    pybind11::gil_scoped_acquire held;
    const auto stream = pybind11::module_::import("torch")
                            .attr(c10::DeviceTypeName(device.type(), true).c_str())
                            .attr("current_stream")(device.index());
    return reinterpret_cast<void *>(stream.attr("cuda_stream").cast<uintptr_t>());
#endif
}

} // namespace collrun

#endif

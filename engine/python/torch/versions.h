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

// The current stream of the device, as the device's library knows it. False: that of this kind of
// device is not known. Before 2.11 Python alone tells it, as torch.cuda's cuda_stream.
inline bool nativeStream(c10::Device device, void **out)
{
    try {
#if TORCH_SINCE_2(11)
        *out = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
#else
        const auto type = c10::DeviceTypeName(device.type(), true);
        pybind11::gil_scoped_acquire held;
        const auto stream = pybind11::module_::import("torch")
                                .attr(type.c_str())
                                .attr("current_stream")(device.index());
        *out = reinterpret_cast<void *>(stream.attr((type + "_stream").c_str()).cast<uintptr_t>());
#endif
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

// A stream beside the current one; none: this kind of device has no streams to give.
inline std::optional<c10::Stream> sideStream(c10::Device device)
{
    try {
        return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    } catch (const std::exception &) {
        return std::nullopt;
    }
}

} // namespace collrun

#endif

// SPDX-License-Identifier: Apache-2.0
//
// A device type of torch for tests without a GPU: memory and streams are those of a runtime whose
// functions have CUDA's names, the stand-in of tests/fake or the pretend accelerator of tests/hpu.
// collrun.torch has no part in it: it finds out by the memory which backend serves the tensors.
//
// - Every operator copies its arguments to the host and its results back, in the current stream, so
//   a read waits for that stream alone. A write is queued behind some garbage: a thread that reads
//   the memory without waiting for the stream that wrote it sees that.
// - Freed memory is used again at once in the stream that it was allocated in, as by a caching
//   allocator: a collective whose tensors are freed too early works on those of others.
// - Events are the runtime's. A runtime without any waits for the stream instead of recording one.
#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <dlfcn.h>
#include <map>
#include <mutex>

namespace
{

constexpr auto kType = c10::DeviceType::PrivateUse1;
enum { kBusy = 3, kGarbage = 0xee, kDefaultKind = 4, kNoTiming = 2, kNonBlocking = 1, kPool = 3 };

// ---- the runtime ----

struct Runtime {
    void *library = nullptr;
    std::string prefix;
    int devices = 0;

    template <class... Args> bool has(const char *name, int (**out)(Args...)) const
    {
        TORCH_CHECK(library, "the runtime is not open");
        *out = reinterpret_cast<int (*)(Args...)>(dlsym(library, (prefix + name).c_str()));
        return *out;
    }
    template <class... Args> int call(const char *name, Args... args) const
    {
        int (*function)(Args...);
        TORCH_CHECK(has(name, &function), "no function ", prefix, name);
        return function(args...);
    }
    template <class... Args> void must(const char *name, Args... args) const
    {
        const int code = call(name, args...);
        TORCH_CHECK(code == 0, prefix, name, ": error ", code);
    }
} runtime;

thread_local c10::DeviceIndex current = 0;
thread_local std::map<int, c10::StreamId> currentStreams; // by device

void useDevice(int device)
{
    runtime.must("SetDevice", device);
}

// ---- streams ----

std::mutex lock; // of what follows
std::map<std::pair<int, c10::StreamId>, void *> streams;
std::map<int, int> taken; // of the pool

void *handleOf(c10::DeviceIndex device, c10::StreamId id)
{
    if (id == 0)
        return nullptr;
    std::lock_guard<std::mutex> held(lock);
    void *&stream = streams[{device, id}];
    if (!stream) {
        useDevice(device);
        runtime.must("StreamCreateWithFlags", &stream, unsigned{kNonBlocking});
    }
    return stream;
}

c10::StreamId currentId(c10::DeviceIndex device)
{
    const auto found = currentStreams.find(device);
    return found == currentStreams.end() ? 0 : found->second;
}

// The device becomes the runtime's current one.
void *currentHandle(c10::DeviceIndex device)
{
    void *handle = handleOf(device, currentId(device));
    useDevice(device);
    return handle;
}

// ---- memory ----

struct Block {
    size_t size;
    c10::DeviceIndex device;
    c10::StreamId stream;
    std::vector<c10::Stream> users;
};
std::mutex memoryLock;
std::map<void *, Block> blocks;
std::multimap<std::tuple<c10::DeviceIndex, c10::StreamId, size_t>, void *> spare;

void blockFree(void *ptr)
{
    std::vector<c10::Stream> users;
    {
        std::lock_guard<std::mutex> held(memoryLock);
        users.swap(blocks.at(ptr).users);
    }
    for (const auto &stream : users) {
        void *handle = handleOf(stream.device_index(), stream.id());
        useDevice(stream.device_index());
        runtime.must("StreamSynchronize", handle);
    }
    std::lock_guard<std::mutex> held(memoryLock);
    const auto &block = blocks.at(ptr);
    spare.emplace(std::make_tuple(block.device, block.stream, block.size), ptr);
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        void *ptr = nullptr;
        const c10::Device device(kType, current);
        if (n == 0)
            return {nullptr, nullptr, &blockFree, device};
        const size_t size = (n + 511) / 512 * 512;
        const auto stream = currentId(current);
        std::lock_guard<std::mutex> held(memoryLock);
        const auto found = spare.find(std::make_tuple(current, stream, size));
        if (found != spare.end()) {
            ptr = found->second;
            spare.erase(found);
        } else {
            useDevice(current);
            runtime.must("Malloc", &ptr, size);
            blocks[ptr] = {size, current, stream, {}};
        }
        return {ptr, ptr, &blockFree, device};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return &blockFree;
    }
    void copy_data(void *to, const void *from, size_t n) const override
    {
        runtime.must("MemcpyAsync", to, from, n, int{kDefaultKind}, currentHandle(current));
    }
} allocator;

// ---- what torch asks of a device ----

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override
    {
        return kType;
    }
    c10::Device exchangeDevice(c10::Device device) const override
    {
        const c10::Device before(kType, current);
        current = device.index();
        return before;
    }
    c10::Device getDevice() const override
    {
        return {kType, current};
    }
    void setDevice(c10::Device device) const override
    {
        current = device.index();
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override
    {
        current = device.index();
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return static_cast<c10::DeviceIndex>(runtime.devices);
    }
    static c10::Stream streamOf(c10::Device device, c10::StreamId id)
    {
        const auto index = device.index() < 0 ? current : device.index();
        return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id);
    }
    c10::Stream getStream(c10::Device device) const override
    {
        return streamOf(device, currentId(device.index() < 0 ? current : device.index()));
    }
    c10::Stream getDefaultStream(c10::Device device) const override
    {
        return streamOf(device, 0);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override
    {
        std::lock_guard<std::mutex> held(lock);
        return streamOf(device, 1 + taken[device.index()]++ % kPool);
    }
    c10::Stream getNewStream(c10::Device device, int) const override
    {
        return getStreamFromGlobalPool(device, false);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        const auto before = getStream(stream.device());
        currentStreams[stream.device_index()] = stream.id();
        return before;
    }
    void *getStreamNativeHandle(const c10::Stream stream) const override
    {
        return handleOf(stream.device_index(), stream.id());
    }
    bool queryStream(const c10::Stream &stream) const override
    {
        synchronizeStream(stream);
        return true;
    }
    void synchronizeStream(const c10::Stream &stream) const override
    {
        void *handle = handleOf(stream.device_index(), stream.id());
        useDevice(stream.device_index());
        runtime.must("StreamSynchronize", handle);
    }
    void synchronizeDevice(const c10::DeviceIndex device) const override
    {
        useDevice(device);
        runtime.must("DeviceSynchronize");
    }
    void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
                const c10::EventFlag) const override
    {
        int (*create)(void **, unsigned);
        if (!runtime.has("EventCreateWithFlags", &create)) {
            synchronizeStream(stream);
            return;
        }
        void *handle = handleOf(stream.device_index(), stream.id());
        useDevice(stream.device_index());
        if (!*event)
            TORCH_CHECK(create(event, kNoTiming) == 0);
        runtime.must("EventRecord", *event, handle);
    }
    void block(void *event, const c10::Stream &stream) const override
    {
        void *handle = handleOf(stream.device_index(), stream.id());
        useDevice(stream.device_index());
        if (event)
            runtime.must("StreamWaitEvent", handle, event, 0U);
    }
    bool queryEvent(void *event) const override
    {
        return !event || runtime.call("EventQuery", event) == 0;
    }
    void synchronizeEvent(void *event) const override
    {
        if (event)
            runtime.must("EventSynchronize", event);
    }
    void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override
    {
        if (event)
            (void)runtime.call("EventDestroy", event);
    }
    void recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &stream) const override
    {
        std::lock_guard<std::mutex> held(memoryLock);
        const auto found = blocks.find(data.get_context());
        if (found != blocks.end() && found->second.stream != stream.id())
            found->second.users.push_back(stream);
    }
};

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override
    {
        return true;
    }
    bool isAvailable() const override
    {
        return runtime.devices > 0;
    }
    bool hasPrimaryContext(c10::DeviceIndex) const override
    {
        return true;
    }
    c10::DeviceIndex deviceCount() const override
    {
        return static_cast<c10::DeviceIndex>(runtime.devices);
    }
    c10::DeviceIndex getCurrentDevice() const override
    {
        return current;
    }
    void setCurrentDevice(c10::DeviceIndex device) const override
    {
        current = device;
    }
    void resizePrivateUse1Bytes(const c10::Storage &storage, size_t size) const override
    {
        auto data = allocator.allocate(size);
        const size_t n = std::min(size, storage.nbytes());
        if (n)
            allocator.copy_data(data.get(), storage.data(), n);
        storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
        storage.unsafeGetStorageImpl()->set_nbytes(size);
    }
};

// ---- operators ----

c10::DispatchKeySet keys()
{
    return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
}

struct OnDevice {
    explicit OnDevice(std::optional<c10::Device> device) : before(current)
    {
        if (device && device->index() >= 0)
            current = device->index();
    }
    ~OnDevice()
    {
        current = before;
    }
    const c10::DeviceIndex before;
};

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<c10::MemoryFormat> format)
{
    OnDevice on(device);
    return at::detail::empty_generic(size, &allocator, keys(), c10::dtype_or_default(dtype),
                                     format);
}

at::Tensor emptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<c10::Device> device, std::optional<bool>)
{
    OnDevice on(device);
    return at::detail::empty_strided_generic(size, stride, &allocator, keys(),
                                             c10::dtype_or_default(dtype));
}

void download(void *to, const void *from, size_t n, c10::DeviceIndex device)
{
    void *stream = currentHandle(device);
    if (n)
        runtime.must("MemcpyAsync", to, from, n, int{kDefaultKind}, stream);
    runtime.must("StreamSynchronize", stream);
}

void upload(void *to, const void *from, size_t n, c10::DeviceIndex device)
{
    void *stream = currentHandle(device);
    for (int i = 0; n && i < kBusy; i++)
        runtime.must("MemsetAsync", to, int{kGarbage}, n, stream);
    if (n)
        runtime.must("MemcpyAsync", to, from, n, int{kDefaultKind}, stream);
}

// A copy of the tensor's whole storage, with the tensor's shape.
at::Tensor mirror(const at::Tensor &tensor)
{
    const auto size = static_cast<int64_t>(tensor.storage().nbytes());
    at::Tensor bytes = at::empty({size}, at::kByte);
    download(bytes.data_ptr(), tensor.storage().data(), size_t(size), tensor.device().index());
    at::Tensor host = at::empty({0}, tensor.options().device(at::kCPU));
    return host.set_(bytes.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

bool isPlain(const at::Tensor &a, const at::Tensor &b)
{
    return a.is_contiguous() && b.is_contiguous() && a.scalar_type() == b.scalar_type() &&
           a.sizes() == b.sizes();
}

at::Tensor copyFrom(const at::Tensor &self, const at::Tensor &dst, bool)
{
    const size_t n = dst.nbytes();
    if (isPlain(self, dst) && dst.is_cpu()) {
        download(dst.data_ptr(), self.data_ptr(), n, self.device().index());
    } else if (isPlain(self, dst) && self.is_cpu()) {
        upload(dst.data_ptr(), self.data_ptr(), n, dst.device().index());
    } else if (isPlain(self, dst) && self.device() == dst.device()) {
        void *stream = currentHandle(dst.device().index());
        if (n)
            runtime.must("MemcpyAsync", dst.data_ptr(), self.data_ptr(), n, int{kDefaultKind},
                         stream);
    } else {
        const at::Tensor from = self.is_cpu() ? self : mirror(self);
        at::Tensor to = dst.is_cpu() ? dst : mirror(dst);
        to.copy_(from);
        if (!dst.is_cpu())
            upload(dst.storage().mutable_data(), to.storage().data(), dst.storage().nbytes(),
                   dst.device().index());
    }
    return dst;
}

at::Tensor copyFromAndResize(const at::Tensor &self, const at::Tensor &dst)
{
    dst.resize_(self.sizes());
    return copyFrom(self, dst, false);
}

const at::Tensor &resize(const at::Tensor &self, c10::SymIntArrayRef size,
                         std::optional<c10::MemoryFormat> format)
{
    TORCH_CHECK(!format || *format == c10::MemoryFormat::Contiguous, "resize_: contiguous alone");
    const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
    const size_t n =
        at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), self.storage_offset());
    if (n > self.storage().nbytes())
        at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), n);
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return self;
}

at::Tensor asStrided(const at::Tensor &self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                     std::optional<c10::SymInt> offset)
{
    return at::native::as_strided_tensorimpl(
        self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
        offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor reshapeAlias(const at::Tensor &self, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride)
{
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                      C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor view(const at::Tensor &self, c10::SymIntArrayRef size)
{
    return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor &setStorage(at::Tensor &self, at::Storage storage, c10::SymInt offset,
                       c10::SymIntArrayRef size, c10::SymIntArrayRef stride)
{
    return at::cpu::set_(self, std::move(storage), offset.expect_int(),
                         C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

// Other views cannot be taken on a copy either.
at::Tensor viewAsReal(const at::Tensor &self)
{
    return at::native::view_as_real(self);
}

at::Scalar localScalar(const at::Tensor &self)
{
    return self.cpu().item();
}

void onHost(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    at::native::cpu_fallback(op, stack);
}

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", emptyStrided);
    m.impl("_copy_from", copyFrom);
    m.impl("_copy_from_and_resize", copyFromAndResize);
    m.impl("resize_", resize);
    m.impl("as_strided", asStrided);
    m.impl("_reshape_alias", reshapeAlias);
    m.impl("view", view);
    m.impl("view_as_real", viewAsReal);
    m.impl("set_.source_Storage_storage_offset", setStorage);
    m.impl("_local_scalar_dense", localScalar);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&onHost>());
}

PYBIND11_MODULE(_torch_device, m)
{
    // Once, before the first tensor: "cuda", "libcudart.so.13".
    m.def("use", [](const std::string &prefix, const std::string &file) {
        runtime.library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        TORCH_CHECK(runtime.library, dlerror());
        runtime.prefix = prefix;
        runtime.must("GetDeviceCount", &runtime.devices);
        c10::SetAllocator(kType, &allocator);
        at::RegisterPrivateUse1HooksInterface(new Hooks);
        return runtime.devices;
    });
}

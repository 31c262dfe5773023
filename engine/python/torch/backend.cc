// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include "plan.h"

#include <mutex>
#include <set>

namespace collrun
{

namespace
{

// A group of the job file serves one process group: others have an order of their own.
bool backendTake(const collrun_group *group)
{
    static std::mutex lock;
    static std::set<const collrun_group *> taken;
    const std::lock_guard<std::mutex> guard(lock);
    return taken.insert(group).second;
}

bool backendHasMembers(const collrun_group *group, const std::vector<int> &members)
{
    std::vector<int> ranks(members.size() + 1);
    const int n = collrun_group_members(group, ranks.data(), static_cast<int>(ranks.size()));
    return n == static_cast<int>(members.size()) &&
           std::equal(members.begin(), members.end(), ranks.begin());
}

// The index of the device in the group, by the kind of memory that the tensor is in, whatever torch
// calls the device. A group on a backend for host memory has no devices, and gets copies. What the
// engine does not know, it would take for memory of the host.
int backendDevice(const collrun_group *group, c10::Device device, const void *data)
{
    int index = -1;
    const int used = collrun_devices(group);
    if (!data)
        return 0;
    if (std::strcmp(collrun_memory_of(group, data, &index), "host") == 0)
        C10_THROW_ERROR(DistBackendError,
                        c10::str("collrun: the tensor is on ", device,
                                 ", and neither this rank "
                                 "nor the group \"",
                                 collrun_group_name(group),
                                 "\" has devices of that kind; gpus_per_process or devices of the "
                                 "job file gives them to the rank"));
    for (int i = 0; i < used; i++)
        if (i == index || (index < 0 && collrun_device(group, i) == device.index()))
            return i;
    if (used == 0)
        return index < 0 ? 0 : index;
    C10_THROW_ERROR(DistBackendError,
                    c10::str("collrun: the tensor is on ", device, ", which is not one of the ",
                             used, " devices of this rank in the group \"",
                             collrun_group_name(group), "\""));
}

// The call comes after the current stream of its tensor's device.
void backendOrder(const collrun_group *group, collrun_call &call, c10::Device device,
                  Operation &operation)
{
    const void *data = call.send ? call.send : call.recv;
    call.device = backendDevice(group, device, data);
    if (!nativeStream(device, &call.stream)) {
        const c10::impl::VirtualGuardImpl guard(device.type());
        guard.synchronizeStream(guard.getStream(device));
    }
    for (const auto &each : operation.devices)
        if (each.device == device)
            return;
    operation.devices.push_back({call.device, device});
}

// The backend of the job file's group, if that is one.
const char *backendNameOf(const collrun_group *group)
{
    const char *name = group ? collrun_group_backend(group) : nullptr;
    return name && !std::strchr(name, ' ') ? name : nullptr;
}

collrun_group *backendMake(collrun_ctx *ctx, const std::vector<int> &members,
                           std::chrono::milliseconds timeout, const char *backend)
{
    collrun_group *group = nullptr;
    collrun_group_options options = {};
    options.size = sizeof options;
    options.ranks = members.data();
    options.nranks = static_cast<int>(members.size());
    options.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
    options.backend = backend;
    const int status = collrun_group_create(ctx, &options, &group);
    if (status)
        fail(status);
    return group;
}

void backendCheckList(size_t length, int size)
{
    TORCH_CHECK_VALUE(length == static_cast<size_t>(size), "collrun: the list has ", length,
                      " tensors, and the group ", size, " ranks");
}

} // namespace

// ---- life ----

c10::intrusive_ptr<Backend> Backend::create(collrun_ctx *ctx, int rank,
                                            const std::vector<int> &members,
                                            std::chrono::milliseconds timeout,
                                            const std::string &name)
{
    collrun_group *listed = nullptr;
    if (collrun_group_exists(ctx, name.c_str()) &&
        (collrun_group_get(ctx, name.c_str(), &listed) || !backendHasMembers(listed, members)))
        listed = nullptr;
    const bool own = !listed || !backendTake(listed);
    // The same ranks again: by what the job file chose for them.
    auto *group = own ? backendMake(ctx, members, timeout, backendNameOf(listed)) : listed;
    Groups groups;
    groups.main = groups.host = std::make_shared<Group>(group, own);
    if (collrun_devices(group) > 0 && !std::strstr(collrun_group_backend(group), "(host)"))
        groups.host = std::make_shared<Group>(
            backendMake(ctx, members, timeout, Group::hostBackend(ctx)), true);
    return c10::make_intrusive<Backend>(ctx, std::move(groups), rank,
                                        static_cast<int>(members.size()), timeout);
}

Backend::Backend(collrun_ctx *ctx, Groups groups, int rank, int size,
                 std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size), ctx(ctx), groups(std::move(groups)),
      options(c10::make_intrusive<Options>("collrun", timeout)),
      ordered(std::make_shared<Waiter>(false)), unordered(std::make_shared<Waiter>(true))
{
    init();
}

std::shared_ptr<Group> Backend::held(bool onHost) const
{
    auto now = std::atomic_load(onHost ? &groups.host : &groups.main);
    if (!now)
        C10_THROW_ERROR(DistBackendError, "collrun: the process group was destroyed");
    return now;
}

Backend::~Backend()
{
    ordered->retire();
    unordered->retire();
}

#if TORCH_SINCE_2(9)
c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &opts)
{
    const auto parent = held();
    std::vector<int> members;
    int rank = -1;
    for (size_t i = 0; i < ranks.size(); i++) {
        members.push_back(collrun_world_rank_of(parent->handle, ranks[i]));
        if (ranks[i] == rank_)
            rank = static_cast<int>(i);
    }
    if (rank < 0)
        return nullptr;
    auto child = create(ctx, rank, members, opts ? opts->timeout : options->timeout);
    if (opts) {
        child->options->group_name = opts->group_name;
#if TORCH_SINCE_2(11)
        child->options->group_desc = opts->group_desc;
#endif
        child->options->global_ranks_in_group = opts->global_ranks_in_group;
    }
    return child;
}
#endif

#if TORCH_SINCE_2(7)
void Backend::abort()
{
    for (auto *each : {&groups.main, &groups.host})
        if (auto now = std::atomic_load(each))
            (void)collrun_group_abort(now->handle, "the process group was aborted");
}

void Backend::shutdown()
{
    std::atomic_store(&groups.main, std::shared_ptr<Group>());
    std::atomic_store(&groups.host, std::shared_ptr<Group>());
}
#endif

// ---- the start of every operation ----

Backend::WorkPtr Backend::start(Plan &plan)
{
    plan.checkOutputs();
    const bool onHost = !plan.devices.empty() && plan.devices[0].is_cpu();
    const auto used = held(onHost && plan.type != c10d::OpType::BARRIER);
    const auto timeout = plan.timeout > kNoTimeout ? plan.timeout : options->timeout;
    for (size_t i = 0; i < plan.calls.size(); i++) {
        auto &call = plan.calls[i];
        call.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
        if (!plan.devices[i].is_cpu())
            backendOrder(used->handle, call, plan.devices[i], *plan.operation);
    }
    auto &operation = plan.operation;
    if (!plan.after.empty())
        operation->after = [after = std::move(plan.after)] {
            for (const auto &step : after)
                step();
        };
    const int n = static_cast<int>(plan.calls.size());
    collrun_request *request = nullptr;
    int status = COLLRUN_OK;
    if (n > 0) {
        std::unique_lock<std::mutex> held(collectives, std::defer_lock);
        if (!plan.isMessage)
            held.lock();
        if (!plan.async && operation->devices.empty())
            status = collrun_run(used->handle, plan.calls.data(), n);
        else
            status = collrun_start_many(used->handle, plan.calls.data(), n, &request);
    }
    if (status)
        fail(status);
    if (!request && operation->after)
        operation->after();
    operation->begin(request, used);
    return c10::make_intrusive<Work>(rank_, plan.type, operation,
                                     plan.isMessage ? unordered : ordered, ++number);
}

// One buffer of all ranks and one of this rank: allgather and reduce_scatter.
void Backend::single(Plan &plan, collrun_kind kind, at::Tensor &output, at::Tensor &input,
                     const c10d::ReduceOp *op)
{
    const bool gathers = kind == COLLRUN_ALLGATHER;
    const auto &all = gathers ? output : input, &own = gathers ? input : output;
    TORCH_CHECK_VALUE(all.numel() == own.numel() * size_, "collrun: the tensor of all ranks has ",
                      all.numel(), " elements, and that of this rank ", own.numel(), " for ", size_,
                      " ranks");
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(), "collrun: the input is ",
                     input.scalar_type(), " and the output ", output.scalar_type());
    at::Tensor from = plan.input(input);
    at::Tensor to = plan.output(output);
    if (op && op->op_ == c10d::ReduceOp::PREMUL_SUM) {
        from = plan.input(from.clone());
        planScale(from, *op);
    }
    auto &call =
        op ? plan.reduce(kind, from, own.numel(), *op) : plan.move(kind, from, own.numel());
    call.send = from.data_ptr();
    call.recv = to.data_ptr();
}

// ---- collectives ----

Backend::WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    Plan plan(c10d::OpType::BROADCAST, opts);
    at::Tensor buffer = plan.inout(Plan::only(tensors));
    auto &call = plan.move(COLLRUN_BROADCAST, buffer, buffer.numel());
    call.recv = buffer.data_ptr();
    call.root = static_cast<int>(opts.rootRank);
    return start(plan);
}

static void backendAllreduce(Plan &plan, const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    at::Tensor buffer = plan.inout(tensor);
    planScale(buffer, op);
    auto &call = plan.reduce(COLLRUN_ALLREDUCE, buffer, buffer.numel(), op);
    call.send = call.recv = buffer.data_ptr();
}

Backend::WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    Plan plan(c10d::OpType::ALLREDUCE, opts);
    backendAllreduce(plan, Plan::only(tensors), opts.reduceOp);
    return start(plan);
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors &tensors,
                                              const c10d::AllreduceCoalescedOptions &opts)
{
    Plan plan(c10d::OpType::ALLREDUCE_COALESCED, opts);
    for (auto &tensor : tensors)
        backendAllreduce(plan, tensor, opts.reduceOp);
    return start(plan);
}

Backend::WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    Plan plan(c10d::OpType::REDUCE, opts);
    const bool root = rank_ == opts.rootRank;
    at::Tensor &tensor = Plan::only(tensors);
    at::Tensor buffer = root ? plan.inout(tensor) : plan.input(tensor);
    if (!root && opts.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM)
        buffer = plan.input(buffer.clone());
    planScale(buffer, opts.reduceOp);
    auto &call = plan.reduce(COLLRUN_REDUCE, buffer, buffer.numel(), opts.reduceOp);
    call.send = buffer.data_ptr();
    call.recv = root ? buffer.data_ptr() : nullptr;
    call.root = static_cast<int>(opts.rootRank);
    return start(plan);
}

Backend::WorkPtr Backend::allgather(TensorLists &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &opts)
{
    Plan plan(c10d::OpType::ALLGATHER, opts);
    at::Tensor from = plan.input(Plan::only(inputs));
    TORCH_CHECK_VALUE(outputs.size() == 1, "collrun: one list of outputs is supported");
    backendCheckList(outputs[0].size(), size_);
    at::Tensor to = plan.outputs(outputs[0]);
    const bool same = planSameSizes(outputs[0]);
    TORCH_CHECK_VALUE(outputs[0][size_t(rank_)].numel() == from.numel() &&
                          to.scalar_type() == from.scalar_type(),
                      "collrun: the output of this rank differs from its input");
    const size_t *counts = same ? nullptr : plan.counts(outputs[0]);
    auto &call = plan.move(same ? COLLRUN_ALLGATHER : COLLRUN_ALLGATHERV, from, from.numel());
    call.send = from.data_ptr();
    call.recv = to.data_ptr();
    call.recvcounts = counts;
    return start(plan);
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::AllgatherOptions &opts)
{
    Plan plan(c10d::OpType::_ALLGATHER_BASE, opts);
    single(plan, COLLRUN_ALLGATHER, output, input, nullptr);
    return start(plan);
}

// outputs[k][i] is inputs[i] of rank k.
Backend::WorkPtr Backend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &opts)
{
    Plan plan(c10d::OpType::ALLGATHER_COALESCED, opts);
    backendCheckList(outputs.size(), size_);
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors list;
        for (auto &ofRank : outputs) {
            backendCheckList(ofRank.size(), static_cast<int>(inputs.size()));
            TORCH_CHECK_VALUE(ofRank[i].numel() == inputs[i].numel() &&
                                  ofRank[i].scalar_type() == inputs[i].scalar_type(),
                              "collrun: an output differs from its input");
            list.push_back(ofRank[i]);
        }
        at::Tensor from = plan.input(inputs[i]), to = plan.outputs(list);
        auto &call = plan.move(COLLRUN_ALLGATHER, from, from.numel());
        call.send = from.data_ptr();
        call.recv = to.data_ptr();
    }
    return start(plan);
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &opts)
{
    Plan plan(kAllgatherCoalesced, opts);
    backendCheckList(outputs.size(), static_cast<int>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); i++)
        single(plan, COLLRUN_ALLGATHER, outputs[i], inputs[i], nullptr);
    return start(plan);
}

Backend::WorkPtr Backend::gather(TensorLists &outputs, Tensors &inputs,
                                 const c10d::GatherOptions &opts)
{
    Plan plan(c10d::OpType::GATHER, opts);
    const bool root = rank_ == opts.rootRank;
    at::Tensor from = plan.input(Plan::only(inputs)), to;
    TORCH_CHECK_VALUE(outputs.size() == (root ? 1U : 0U),
                      "collrun: the root of a gather gives one list of outputs, others none");
    if (root) {
        backendCheckList(outputs[0].size(), size_);
        to = plan.outputs(outputs[0]);
        TORCH_CHECK_VALUE(planSameSizes(outputs[0]) && to.numel() == from.numel() * size_ &&
                              to.scalar_type() == from.scalar_type(),
                          "collrun: the outputs of a gather differ from the input");
    }
    auto &call = plan.move(COLLRUN_GATHER, from, from.numel());
    call.send = from.data_ptr();
    call.recv = root ? to.data_ptr() : nullptr;
    call.root = static_cast<int>(opts.rootRank);
    return start(plan);
}

Backend::WorkPtr Backend::scatter(Tensors &outputs, TensorLists &inputs,
                                  const c10d::ScatterOptions &opts)
{
    Plan plan(c10d::OpType::SCATTER, opts);
    const bool root = rank_ == opts.rootRank;
    at::Tensor to = plan.output(Plan::only(outputs)), from;
    TORCH_CHECK_VALUE(inputs.size() == (root ? 1U : 0U),
                      "collrun: the root of a scatter gives one list of inputs, others none");
    if (root) {
        backendCheckList(inputs[0].size(), size_);
        from = plan.inputs(inputs[0]);
        TORCH_CHECK_VALUE(planSameSizes(inputs[0]) && from.numel() == to.numel() * size_ &&
                              to.scalar_type() == from.scalar_type(),
                          "collrun: the inputs of a scatter differ from the output");
    }
    auto &call = plan.move(COLLRUN_SCATTER, to, to.numel());
    call.send = root ? from.data_ptr() : nullptr;
    call.recv = to.data_ptr();
    call.root = static_cast<int>(opts.rootRank);
    return start(plan);
}

Backend::WorkPtr Backend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                         const c10d::ReduceScatterOptions &opts)
{
    Plan plan(c10d::OpType::REDUCE_SCATTER, opts);
    at::Tensor to = plan.output(Plan::only(outputs));
    TORCH_CHECK_VALUE(inputs.size() == 1, "collrun: one list of inputs is supported");
    backendCheckList(inputs[0].size(), size_);
    at::Tensor from = plan.inputs(inputs[0]);
    TORCH_CHECK_VALUE(inputs[0][size_t(rank_)].numel() == to.numel() &&
                          to.scalar_type() == from.scalar_type(),
                      "collrun: the input of this rank differs from its output");
    if (opts.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM) {
        from = plan.input(from.clone());
        planScale(from, opts.reduceOp);
    }
    const bool same = planSameSizes(inputs[0]);
    const size_t *counts = same ? nullptr : plan.counts(inputs[0]);
    auto &call = plan.reduce(same ? COLLRUN_REDUCE_SCATTER : COLLRUN_REDUCE_SCATTERV, from,
                             to.numel(), opts.reduceOp);
    call.send = from.data_ptr();
    call.recv = to.data_ptr();
    call.recvcounts = counts;
    return start(plan);
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &opts)
{
    Plan plan(c10d::OpType::_REDUCE_SCATTER_BASE, opts);
    single(plan, COLLRUN_REDUCE_SCATTER, output, input, &opts.reduceOp);
    return start(plan);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::ReduceScatterOptions &opts)
{
    Plan plan(kReduceScatterCoalesced, opts);
    backendCheckList(outputs.size(), static_cast<int>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); i++)
        single(plan, COLLRUN_REDUCE_SCATTER, outputs[i], inputs[i], &opts.reduceOp);
    return start(plan);
}

// Splits may be given on some ranks alone, so the call is the same with and without them.
Backend::WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                        std::vector<int64_t> &outputSplits,
                                        std::vector<int64_t> &inputSplits,
                                        const c10d::AllToAllOptions &opts)
{
    Plan plan(c10d::OpType::ALLTOALL_BASE, opts);
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(), "collrun: the input is ",
                     input.scalar_type(), " and the output ", output.scalar_type());
    at::Tensor from = plan.input(input), to = plan.output(output);
    if (from.data_ptr() == to.data_ptr())
        from = plan.input(from.clone());
    const size_t *sends = plan.counts(inputSplits, input, size_);
    const size_t *receives = plan.counts(outputSplits, output, size_);
    auto &call = plan.move(COLLRUN_ALLTOALLV, from, 0);
    call.send = from.data_ptr();
    call.recv = to.data_ptr();
    call.sendcounts = sends;
    call.recvcounts = receives;
    return start(plan);
}

Backend::WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs,
                                   const c10d::AllToAllOptions &opts)
{
    Plan plan(c10d::OpType::ALLTOALL, opts);
    backendCheckList(outputs.size(), size_);
    backendCheckList(inputs.size(), size_);
    at::Tensor from = plan.inputs(inputs), to = plan.outputs(outputs);
    TORCH_CHECK_TYPE(from.scalar_type() == to.scalar_type(), "collrun: the inputs are ",
                     from.scalar_type(), " and the outputs ", to.scalar_type());
    const size_t *sends = plan.counts(inputs), *receives = plan.counts(outputs);
    auto &call = plan.move(COLLRUN_ALLTOALLV, from, 0);
    call.send = from.data_ptr();
    call.recv = to.data_ptr();
    call.sendcounts = sends;
    call.recvcounts = receives;
    return start(plan);
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    Plan plan(c10d::OpType::BARRIER, opts);
    plan.calls.push_back(COLLRUN_CALL(COLLRUN_BARRIER));
    plan.devices.emplace_back(c10::kCPU);
    return start(plan);
}

// ---- messages ----

Backend::WorkPtr Backend::message(collrun_kind kind, Tensors &tensors, int peer, int tag)
{
    Plan plan(kind == COLLRUN_SEND   ? c10d::OpType::SEND
              : kind == COLLRUN_RECV ? c10d::OpType::RECV
                                     : c10d::OpType::RECVANYSOURCE);
    plan.isMessage = true;
    plan.operation->receives = kind != COLLRUN_SEND;
    TORCH_CHECK_VALUE(tag >= 0, "collrun: the tag ", tag, " is negative");
    at::Tensor &tensor = Plan::only(tensors);
    at::Tensor buffer = kind == COLLRUN_SEND ? plan.input(tensor) : plan.output(tensor);
    auto &call = plan.move(kind, buffer, buffer.numel());
    if (kind == COLLRUN_SEND)
        call.send = buffer.data_ptr();
    else
        call.recv = buffer.data_ptr();
    call.peer = peer;
    call.tag = static_cast<uint32_t>(tag);
    if (kind == COLLRUN_RECV_ANY) {
        call.source = &plan.operation->source;
        plan.operation->anySource = true;
    }
    return start(plan);
}

Backend::WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
    return message(COLLRUN_SEND, tensors, peer, tag);
}

Backend::WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
    return message(COLLRUN_RECV, tensors, peer, tag);
}

Backend::WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return message(COLLRUN_RECV_ANY, tensors, 0, tag);
}

} // namespace collrun

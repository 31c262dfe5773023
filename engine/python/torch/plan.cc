// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

namespace collrun
{

namespace
{

// False: collrun has no such element type.
bool planDtype(at::ScalarType type, collrun_dtype *out)
{
    switch (type) {
    case at::kChar:
        *out = COLLRUN_INT8;
        return true;
    case at::kByte:
        *out = COLLRUN_UINT8;
        return true;
    case at::kShort:
        *out = COLLRUN_INT16;
        return true;
    case at::kUInt16:
        *out = COLLRUN_UINT16;
        return true;
    case at::kInt:
        *out = COLLRUN_INT32;
        return true;
    case at::kUInt32:
        *out = COLLRUN_UINT32;
        return true;
    case at::kLong:
        *out = COLLRUN_INT64;
        return true;
    case at::kUInt64:
        *out = COLLRUN_UINT64;
        return true;
    case at::kHalf:
        *out = COLLRUN_FLOAT16;
        return true;
    case at::kBFloat16:
        *out = COLLRUN_BFLOAT16;
        return true;
    case at::kFloat:
        *out = COLLRUN_FLOAT32;
        return true;
    case at::kDouble:
        *out = COLLRUN_FLOAT64;
        return true;
    case at::kBool:
        *out = COLLRUN_BOOL;
        return true;
    default:
        return false;
    }
}

collrun_op planOperator(const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::SUM:
        return COLLRUN_SUM;
    case c10d::ReduceOp::AVG:
        return COLLRUN_AVG;
    case c10d::ReduceOp::PRODUCT:
        return COLLRUN_PROD;
    case c10d::ReduceOp::MIN:
        return COLLRUN_MIN;
    case c10d::ReduceOp::MAX:
        return COLLRUN_MAX;
    case c10d::ReduceOp::BAND:
        return COLLRUN_BAND;
    case c10d::ReduceOp::BOR:
        return COLLRUN_BOR;
    case c10d::ReduceOp::BXOR:
        return COLLRUN_BXOR;
    default:
        TORCH_CHECK_VALUE(false, "collrun: unknown ReduceOp ", static_cast<int>(op.op_));
    }
}

void planCheck(const at::Tensor &tensor)
{
    TORCH_CHECK_VALUE(tensor.defined(), "collrun: a tensor is undefined");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "collrun: a tensor is ", tensor.layout(),
                      "; only dense tensors are supported. to_dense() makes it one");
}

// Whether the bits in memory are those of the elements: a lazy conjugation or negation changes them
// when they are read.
bool planIsPlain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// True if the tensors lie one after the other in one storage.
bool planConsecutive(const std::vector<at::Tensor> &list)
{
    int64_t next = list[0].storage_offset();
    for (const auto &tensor : list) {
        if (!planIsPlain(tensor) || !tensor.is_alias_of(list[0]) || tensor.storage_offset() != next)
            return false;
        next += tensor.numel();
    }
    return true;
}

int64_t planTotal(const std::vector<at::Tensor> &list)
{
    int64_t total = 0;
    for (const auto &tensor : list) {
        planCheck(tensor);
        TORCH_CHECK_VALUE(tensor.scalar_type() == list[0].scalar_type() &&
                              tensor.device() == list[0].device(),
                          "collrun: the tensors of a list differ in type or device");
        total += tensor.numel();
    }
    return total;
}

} // namespace

void planScale(at::Tensor &tensor, const c10d::ReduceOp &op)
{
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM)
        return;
    const auto *factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(factor, "collrun: PREMUL_SUM has no factor");
    if (factor->tensor_factor.defined())
        tensor.mul_(factor->tensor_factor);
    else
        tensor.mul_(factor->double_factor);
}

bool planSameSizes(const std::vector<at::Tensor> &list)
{
    return std::all_of(list.begin(), list.end(),
                       [&](const at::Tensor &t) { return t.numel() == list[0].numel(); });
}

// ---- buffers ----

at::Tensor Plan::input(const at::Tensor &tensor)
{
    planCheck(tensor);
    operation->kept.push_back(tensor.resolve_conj().resolve_neg().contiguous());
    return operation->kept.back();
}

at::Tensor Plan::output(const at::Tensor &tensor)
{
    planCheck(tensor);
    operation->outputs.push_back(tensor);
    if (planIsPlain(tensor))
        return tensor;
    at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
    operation->kept.push_back(copy);
    after.push_back([tensor, copy] { tensor.copy_(copy); });
    return copy;
}

at::Tensor Plan::inout(const at::Tensor &tensor)
{
    at::Tensor buffer = output(tensor);
    if (!buffer.is_same(tensor))
        buffer.copy_(tensor);
    return buffer;
}

// [buffer] * n receives the block of one rank alone.
void Plan::checkOutputs() const
{
    Tensors sorted;
    for (const auto &tensor : operation->outputs)
        if (tensor.numel() > 0 && tensor.has_storage())
            sorted.push_back(tensor);
    std::sort(sorted.begin(), sorted.end(), [](const at::Tensor &a, const at::Tensor &b) {
        return a.const_data_ptr() < b.const_data_ptr();
    });
    for (size_t i = 1; i < sorted.size(); i++) {
        const auto &a = sorted[i - 1], &b = sorted[i];
        const auto status = at::get_overlap_status(a, b); // TooHard: they may be two columns
        const bool equal = a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
                           a.strides() == b.strides() && a.device() == b.device();
        TORCH_CHECK_VALUE(
            !equal && status != at::MemOverlapStatus::Full &&
                status != at::MemOverlapStatus::Partial,
            "collrun: two of the tensors that receive results are the same memory, or "
            "overlap; each needs its own memory, as in [torch.empty_like(x) for _ "
            "in range(n)]");
    }
}

at::Tensor Plan::inputs(const Tensors &list)
{
    TORCH_CHECK_VALUE(!list.empty(), "collrun: the list of tensors is empty");
    const int64_t total = planTotal(list);
    if (planConsecutive(list))
        return input(list[0].as_strided({total}, {1}));
    Tensors flat;
    for (const auto &tensor : list)
        flat.push_back(tensor.reshape({-1}));
    return input(at::cat(flat));
}

at::Tensor Plan::outputs(const Tensors &list)
{
    TORCH_CHECK_VALUE(!list.empty(), "collrun: the list of tensors is empty");
    const int64_t total = planTotal(list);
    operation->outputs.insert(operation->outputs.end(), list.begin(), list.end());
    if (planConsecutive(list))
        return list[0].as_strided({total}, {1});
    at::Tensor flat = at::empty({total}, list[0].options());
    operation->kept.push_back(flat);
    after.push_back([list, flat] {
        int64_t at = 0;
        for (const auto &tensor : list) {
            tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
            at += tensor.numel();
        }
    });
    return flat;
}

const size_t *Plan::counts(const Tensors &list)
{
    auto &array = arrays.emplace_back();
    for (const auto &tensor : list)
        array.push_back(static_cast<size_t>(tensor.numel()));
    return array.data();
}

const size_t *Plan::counts(const std::vector<int64_t> &splits, const at::Tensor &tensor, int size)
{
    auto &array = arrays.emplace_back();
    const int64_t rows = tensor.dim() ? tensor.size(0) : 1;
    const int64_t row = rows ? tensor.numel() / rows : 0;
    int64_t total = 0;
    TORCH_CHECK_VALUE(splits.empty() ? rows % size == 0 : splits.size() == size_t(size),
                      "collrun: ", rows, " rows and ", splits.size(), " split sizes for ", size,
                      " ranks");
    for (int i = 0; i < size; i++) {
        const int64_t split = splits.empty() ? rows / size : splits[size_t(i)];
        TORCH_CHECK_VALUE(split >= 0, "collrun: a split size is negative");
        array.push_back(static_cast<size_t>(split * row));
        total += split;
    }
    TORCH_CHECK_VALUE(total == rows, "collrun: the split sizes add up to ", total,
                      ", and the tensor has ", rows, " rows");
    return array.data();
}

at::Tensor &Plan::only(Tensors &tensors)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "collrun: ", tensors.size(),
                      " tensors; one per rank is supported");
    return tensors[0];
}

// ---- calls ----

collrun_call &Plan::add(collrun_kind kind, const at::Tensor &buffer, int64_t count,
                        collrun_dtype dtype, size_t units)
{
    calls.push_back(COLLRUN_CALL(kind));
    devices.push_back(buffer.device());
    collrun_call &call = calls.back();
    call.dtype = dtype;
    call.count = static_cast<size_t>(count) * units;
    if (units > 1)
        for (auto &array : arrays)
            for (auto &each : array)
                each *= units;
    return call;
}

// A type that collrun lacks is moved as bytes.
collrun_call &Plan::move(collrun_kind kind, const at::Tensor &buffer, int64_t count)
{
    collrun_dtype dtype;
    if (planDtype(buffer.scalar_type(), &dtype))
        return add(kind, buffer, count, dtype, 1);
    return add(kind, buffer, count, COLLRUN_UINT8, buffer.element_size());
}

collrun_call &Plan::reduce(collrun_kind kind, const at::Tensor &buffer, int64_t count,
                           const c10d::ReduceOp &op)
{
    const auto type = buffer.scalar_type();
    const collrun_op which = planOperator(op);
    collrun_dtype dtype;
    size_t units = 1;
    if (buffer.is_complex() && (which == COLLRUN_SUM || which == COLLRUN_AVG)) {
        units = 2;
        TORCH_CHECK_TYPE(planDtype(c10::toRealValueType(type), &dtype), "collrun: no reduction of ",
                         type);
    } else {
        TORCH_CHECK_TYPE(planDtype(type, &dtype), "collrun: no reduction of ", type,
                         " with this operator");
    }
    collrun_call &call = add(kind, buffer, count, dtype, units);
    call.op = which;
    return call;
}

} // namespace collrun

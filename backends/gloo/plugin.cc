/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported table. What the parts throw is turned into statuses here and in group::exec.
 */
#include "group.h"

#include <gloo/config.h>

#include <algorithm>
#include <cstring>
#include <new>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define GLOO_RELEASE TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR)

namespace collrun_gloo
{

namespace
{

struct backend {
    devices known;
    watch clock;
};

int backend_open(const collrun_services *s, void **out)
{
    *out = new (std::nothrow) backend;
    return *out ? COLLRUN_OK : s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

void backend_close(void *b)
{
    delete static_cast<backend *>(b);
}

/* The rendezvous has stored its own sentence when its failure has none. */
int report(const collrun_services *s, const failure &f)
{
    return f.text.empty() ? f.status : s->fail(s->ctx, f.status, "%s", f.text.c_str());
}

int group_open(void *b, const collrun_group_desc *given, void **out)
{
    collrun_group_desc desc = {};
    std::memcpy(&desc, given, std::min<size_t>(given->size, sizeof(desc)));
    const collrun_services *s = desc.services;
    try {
        const no_sigpipe guard;
        auto *state = static_cast<backend *>(b);
        *out = new group(state->known, state->clock, desc);
        return COLLRUN_OK;
    } catch (const failure &f) {
        return report(s, f);
    } catch (const std::bad_alloc &) {
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    } catch (const std::exception &e) {
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "Gloo: %s", e.what());
    } catch (...) {
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "unknown exception");
    }
}

void group_abort(void *g)
{
    static_cast<group *>(g)->abort();
}

void group_close(void *g)
{
    delete static_cast<group *>(g);
}

int group_exec(void *g, const collrun_call *calls, uint32_t ncalls)
{
    return static_cast<group *>(g)->exec(calls, ncalls);
}

constexpr uint64_t every_dtype = (1u << COLLRUN_DTYPE_COUNT) - 1;
constexpr uint64_t every_op = (1u << COLLRUN_OP_COUNT) - 1;

constexpr collrun_capability moves(uint32_t kind)
{
    return {kind, COLLRUN_MEMORY_HOST, ~0ull, 0};
}

constexpr collrun_capability reduces(uint32_t kind)
{
    return {kind, COLLRUN_MEMORY_HOST, every_dtype, every_op};
}

const collrun_capability native[] = {
    {COLLRUN_BARRIER, COLLRUN_MEMORY_HOST, 0, 0},
    reduces(COLLRUN_ALLREDUCE),
    reduces(COLLRUN_REDUCE),
    moves(COLLRUN_BROADCAST),
    moves(COLLRUN_ALLGATHER),
    moves(COLLRUN_GATHER),
    moves(COLLRUN_SCATTER),
    reduces(COLLRUN_REDUCE_SCATTER),
    moves(COLLRUN_ALLTOALL),
    moves(COLLRUN_ALLGATHERV),
    moves(COLLRUN_GATHERV),
    moves(COLLRUN_SCATTERV),
    reduces(COLLRUN_REDUCE_SCATTERV),
    moves(COLLRUN_ALLTOALLV),
    moves(COLLRUN_SEND),
    moves(COLLRUN_RECV),
    moves(COLLRUN_RECV_ANY),
    {0, 0, 0, 0},
};

const struct collrun_param no_options[] = {{}};

} // namespace

} // namespace collrun_gloo

extern "C" const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_ABI,
    sizeof(struct collrun_backend),
    "gloo",
    "1.0 (Gloo " GLOO_RELEASE ")",
    COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY,
    collrun_gloo::native,
    nullptr, /* probe: what it needs is linked */
    collrun_gloo::backend_open,
    collrun_gloo::backend_close,
    collrun_gloo::group_open,
    collrun_gloo::group_abort,
    collrun_gloo::group_close,
    collrun_gloo::group_exec,
    nullptr, /* start, test: exec blocks */
    nullptr,
    nullptr, /* alloc, free: the engine's memory is as good */
    nullptr,
    nullptr, /* order, alloc_on: it knows no GPU */
    nullptr,
    collrun_gloo::no_options,
    collrun_gloo::most_in_first, /* larger messages wait for their receiver */
};

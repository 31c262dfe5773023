/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend in C++17: barriers of groups that have one member.
 */
#include <collrun/backend.h>

namespace
{

int group_open(void *, const struct collrun_group_desc *theirs, void **group)
{
    struct collrun_group_desc desc;
    COLLRUN_COPY(&desc, theirs);
    *group = nullptr;
    if (desc.nranks == 1)
        return COLLRUN_OK;
    const struct collrun_services *s = desc.services;
    return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "the group has %u members", desc.nranks);
}

void group_abort(void *)
{
}

void group_close(void *)
{
}

int exec(void *, const struct collrun_call *, uint32_t)
{
    return COLLRUN_OK;
}

const struct collrun_capability native[] = {
    COLLRUN_MOVES(COLLRUN_BARRIER, COLLRUN_MEMORY_HOST),
    {},
};
const struct collrun_param options[] = {
    {"depth", COLLRUN_PARAM_INT, nullptr, "1", "64", "not used"},
    {},
};
constexpr struct collrun_capability reduces =
    COLLRUN_REDUCES(COLLRUN_ALLREDUCE, COLLRUN_MEMORY_HOST);
static_assert(reduces.kind == COLLRUN_ALLREDUCE && reduces.ops != 0, "a row of a table");

} // namespace

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    "cxx",
    "1.0",
    0, /* flags */
    0, /* eager_limit */
    native,
    options,
    nullptr, /* probe */
    nullptr, /* open */
    nullptr, /* close */
    group_open,
    group_abort,
    group_close,
    exec,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload in C++17 that uses each macro and header of the public interface.
 */
#include <collrun/workload.h>

#include <cstdio>

namespace
{

const struct collrun_param params[] = {
    {"times", COLLRUN_PARAM_INT, "3", "1", "100", "number of barriers"},
    {"op", COLLRUN_PARAM_ENUM, "sum", nullptr, nullptr, "an operator", "sum|min"},
    {},
};

int run(struct collrun_ctx *ctx, void *)
{
    struct collrun_group *world;
    int rc = collrun_group_get(ctx, "world", &world);
    for (int64_t i = 0; !rc && i < collrun_param_int(ctx, "times"); i++) {
        struct collrun_request *request;
        struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
        rc = collrun_start(world, &call, &request);
        if (!rc)
            rc = collrun_wait(request);
    }
    const struct collrun_call calls[] = {COLLRUN_CALL(COLLRUN_SEND), COLLRUN_CALL(COLLRUN_RECV)};
    if (!rc)
        std::printf("%s on %s: %d, %u, %d\n", collrun_param_string(ctx, "op"),
                    collrun_group_backend(world), collrun_param_enum(ctx, "op"),
                    unsigned(calls[1].size / sizeof calls[1]), int(calls[1].kind));
    return rc;
}

} // namespace

COLLRUN_WORKLOAD(.name = "cxx", .params = params, .run = run);

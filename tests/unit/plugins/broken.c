/* SPDX-License-Identifier: Apache-2.0
 *
 * Workloads that cannot be loaded, each for the reason that -D names.
 */
#include <collrun/workload.h>

#if defined(NO_SYMBOL)
extern int nothing_of_interest;
int nothing_of_interest;
#elif defined(UNDEFINED_SYMBOL)
int collrun_from_the_future(void);
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    (void)state;
    return collrun_from_the_future();
}
COLLRUN_WORKLOAD(.name = "undefined", .run = run);
#elif defined(WRONG_ABI)
__attribute__((visibility("default"))) extern const struct collrun_workload collrun_workload_v1;
const struct collrun_workload collrun_workload_v1 = {
    .abi = 9, .size = sizeof collrun_workload_v1, .name = "future"};
#elif defined(NO_RUN)
COLLRUN_WORKLOAD(.name = "lazy");
#elif defined(BAD_TABLE)
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    (void)state;
    return 0;
}
static const struct collrun_param params[] = {
    {.name = "n", .type = COLLRUN_PARAM_INT, .def = "many"}, {0}};
COLLRUN_WORKLOAD(.name = "table", .run = run, .params = params);
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of torch.distributed (c10d) that are recorded, by the names that Python gives
 * them, and what proofs of deadlock know of each, as in record_op. Their numbers follow those of
 * enum mpi_function, so one number names an operation of either library.
 */
#ifndef ENGINE_BASE_C10D_FUNCTIONS_H
#define ENGINE_BASE_C10D_FUNCTIONS_H

#include "base/mpi_functions.h"

/* clang-format off */
#define C10D_FUNCTIONS(ROW)                                                                        \
    ROW(all_reduce,             COLLRUN_ALLREDUCE)                                                 \
    ROW(all_reduce_coalesced,   COLLRUN_ALLREDUCE)                                                 \
    ROW(broadcast,              COLLRUN_BROADCAST)                                                 \
    ROW(reduce,                 COLLRUN_REDUCE)                                                    \
    ROW(all_gather,             COLLRUN_ALLGATHER)                                                 \
    ROW(all_gather_into_tensor, COLLRUN_ALLGATHER)                                                 \
    ROW(gather,                 COLLRUN_GATHER)                                                    \
    ROW(scatter,                COLLRUN_SCATTER)                                                   \
    ROW(reduce_scatter,         COLLRUN_REDUCE_SCATTER)                                            \
    ROW(reduce_scatter_tensor,  COLLRUN_REDUCE_SCATTER)                                            \
    ROW(all_to_all,             COLLRUN_ALLTOALL)                                                  \
    ROW(all_to_all_single,      COLLRUN_ALLTOALL)                                                  \
    ROW(barrier,                COLLRUN_BARRIER)                                                   \
    ROW(monitored_barrier,      COLLRUN_BARRIER)                                                   \
    ROW(send,                   COLLRUN_SEND)                                                      \
    ROW(recv,                   COLLRUN_RECV)

#define C10D_FUNCTION_NUMBER(name, ...) C10D_FN_##name,
enum c10d_function {
    C10D_FN_FIRST = MPI_FN_COUNT - 1, /* the next one is the first */
    C10D_FUNCTIONS(C10D_FUNCTION_NUMBER)
    C10D_FN_END
};
/* clang-format on */

_Static_assert(C10D_FN_END <= 122, "MPI_FUNCTION_KIND must not meet enum record_kind");

#endif

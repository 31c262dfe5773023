/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of MPI that are recorded: one table, from which the library that is preloaded
 * beside an MPI (engine/taps/mpi) makes its functions, and the runner takes the names for its
 * reports.
 *
 *     ONE(name, kind, nargs, shape, arguments)
 *     BOTH(...)    the same, and there is a form with large counts, MPI_name_c
 *
 * - `kind`: what proofs of deadlock know of the call, as in record_op.
 * - `shape`: what the library does for it: enum tap_shape of taps/mpi/tap.h, without its prefix.
 * - `arguments`: which argument is what, counted from 1, as members of struct tap_arguments.
 *
 * The order decides the numbers, enum mpi_function, which records hold. There is room for 126, in
 * seven bits of record_op.flags. MPI_OBJECTS are not recorded, and have no numbers.
 */
#ifndef ENGINE_BASE_MPI_FUNCTIONS_H
#define ENGINE_BASE_MPI_FUNCTIONS_H

#include "base/record.h"

#include <collrun/types.h>

/* clang-format off */
#define MPI_COLLECTIVES(ONE, BOTH)                                                                 \
    ONE(Barrier,   COLLRUN_BARRIER, 1, COLLECTIVE, .comm = 1)                                      \
    ONE(Ibarrier,  COLLRUN_BARRIER, 2, COLLECTIVE, .comm = 1, .request = 2)                        \
    BOTH(Bcast,  COLLRUN_BROADCAST, 5, COLLECTIVE, .count = 2, .type = 3, .root = 4, .comm = 5)    \
    BOTH(Ibcast, COLLRUN_BROADCAST, 6, COLLECTIVE, .count = 2, .type = 3, .root = 4, .comm = 5,    \
         .request = 6)                                                                             \
    BOTH(Reduce,  COLLRUN_REDUCE, 7, COLLECTIVE, .count = 3, .type = 4, .op = 5, .root = 6,        \
         .comm = 7)                                                                                \
    BOTH(Ireduce, COLLRUN_REDUCE, 8, COLLECTIVE, .count = 3, .type = 4, .op = 5, .root = 6,        \
         .comm = 7, .request = 8)                                                                  \
    BOTH(Allreduce,  COLLRUN_ALLREDUCE, 6, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6)  \
    BOTH(Iallreduce, COLLRUN_ALLREDUCE, 7, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6,  \
         .request = 7)                                                                             \
    BOTH(Scan,    COLLRUN_SCAN, 6, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6)          \
    BOTH(Iscan,   COLLRUN_SCAN, 7, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6,          \
         .request = 7)                                                                             \
    BOTH(Exscan,  COLLRUN_EXSCAN, 6, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6)        \
    BOTH(Iexscan, COLLRUN_EXSCAN, 7, COLLECTIVE, .count = 3, .type = 4, .op = 5, .comm = 6,        \
         .request = 7)                                                                             \
    BOTH(Reduce_scatter_block,  COLLRUN_REDUCE_SCATTER, 6, COLLECTIVE, .count = 3, .type = 4,      \
         .op = 5, .comm = 6)                                                                       \
    BOTH(Ireduce_scatter_block, COLLRUN_REDUCE_SCATTER, 7, COLLECTIVE, .count = 3, .type = 4,      \
         .op = 5, .comm = 6, .request = 7)                                                         \
    BOTH(Reduce_scatter,  COLLRUN_REDUCE_SCATTERV, 6, COLLECTIVE, .recvcount = 3, .recvtype = 4,   \
         .op = 5, .comm = 6)                                                                       \
    BOTH(Ireduce_scatter, COLLRUN_REDUCE_SCATTERV, 7, COLLECTIVE, .recvcount = 3, .recvtype = 4,   \
         .op = 5, .comm = 6, .request = 7)                                                         \
    BOTH(Gather,  COLLRUN_GATHER, 8, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,      \
         .recvcount = 5, .recvtype = 6, .root = 7, .comm = 8)                                      \
    BOTH(Igather, COLLRUN_GATHER, 9, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,      \
         .recvcount = 5, .recvtype = 6, .root = 7, .comm = 8, .request = 9)                        \
    BOTH(Scatter,  COLLRUN_SCATTER, 8, COLLECTIVE, .sendcount = 2, .sendtype = 3, .recvbuf = 4,    \
         .recvcount = 5, .recvtype = 6, .root = 7, .comm = 8)                                      \
    BOTH(Iscatter, COLLRUN_SCATTER, 9, COLLECTIVE, .sendcount = 2, .sendtype = 3, .recvbuf = 4,    \
         .recvcount = 5, .recvtype = 6, .root = 7, .comm = 8, .request = 9)                        \
    BOTH(Allgather,  COLLRUN_ALLGATHER, 7, COLLECTIVE, .sendbuf = 1, .sendcount = 2,               \
         .sendtype = 3, .recvcount = 5, .recvtype = 6, .comm = 7)                                  \
    BOTH(Iallgather, COLLRUN_ALLGATHER, 8, COLLECTIVE, .sendbuf = 1, .sendcount = 2,               \
         .sendtype = 3, .recvcount = 5, .recvtype = 6, .comm = 7, .request = 8)                    \
    BOTH(Alltoall,  COLLRUN_ALLTOALL, 7, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,  \
         .recvcount = 5, .recvtype = 6, .comm = 7)                                                 \
    BOTH(Ialltoall, COLLRUN_ALLTOALL, 8, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,  \
         .recvcount = 5, .recvtype = 6, .comm = 7, .request = 8)                                   \
    BOTH(Gatherv,  COLLRUN_GATHERV, 9, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,    \
         .recvcount = 5, .recvtype = 7, .root = 8, .comm = 9)                                      \
    BOTH(Igatherv, COLLRUN_GATHERV, 10, COLLECTIVE, .sendbuf = 1, .sendcount = 2, .sendtype = 3,   \
         .recvcount = 5, .recvtype = 7, .root = 8, .comm = 9, .request = 10)                       \
    BOTH(Scatterv,  COLLRUN_SCATTERV, 9, COLLECTIVE, .sendcount = 2, .sendtype = 4, .recvbuf = 5,  \
         .recvcount = 6, .recvtype = 7, .root = 8, .comm = 9)                                      \
    BOTH(Iscatterv, COLLRUN_SCATTERV, 10, COLLECTIVE, .sendcount = 2, .sendtype = 4, .recvbuf = 5, \
         .recvcount = 6, .recvtype = 7, .root = 8, .comm = 9, .request = 10)                       \
    BOTH(Allgatherv,  COLLRUN_ALLGATHERV, 8, COLLECTIVE, .sendbuf = 1, .sendcount = 2,             \
         .sendtype = 3, .recvcount = 5, .recvtype = 7, .comm = 8)                                  \
    BOTH(Iallgatherv, COLLRUN_ALLGATHERV, 9, COLLECTIVE, .sendbuf = 1, .sendcount = 2,             \
         .sendtype = 3, .recvcount = 5, .recvtype = 7, .comm = 8, .request = 9)                    \
    BOTH(Alltoallv,  COLLRUN_ALLTOALLV, 9, COLLECTIVE, .sendbuf = 1, .sendcount = 2,               \
         .sendtype = 4, .recvcount = 6, .recvtype = 8, .comm = 9)                                  \
    BOTH(Ialltoallv, COLLRUN_ALLTOALLV, 10, COLLECTIVE, .sendbuf = 1, .sendcount = 2,              \
         .sendtype = 4, .recvcount = 6, .recvtype = 8, .comm = 9, .request = 10)                   \
    BOTH(Alltoallw,  COLLRUN_ALLTOALLV, 9, COLLECTIVE, .sendbuf = 1, .sendcount = 2,               \
         .sendtype = 4, .recvcount = 6, .recvtype = 8, .comm = 9, .types = 1)                      \
    BOTH(Ialltoallw, COLLRUN_ALLTOALLV, 10, COLLECTIVE, .sendbuf = 1, .sendcount = 2,              \
         .sendtype = 4, .recvcount = 6, .recvtype = 8, .comm = 9, .types = 1, .request = 10)

/* What makes a communicator of all or some members of another one, and is called by all of it. */
#define MPI_FORMS(ONE, BOTH)                                                                       \
    ONE(Comm_dup,            RECORD_FORM, 2, FORM, .comm = 1, .newcomm = 2)                        \
    ONE(Comm_dup_with_info,  RECORD_FORM, 3, FORM, .comm = 1, .newcomm = 3)                        \
    ONE(Comm_idup,           RECORD_FORM, 3, FORM, .comm = 1, .newcomm = 2, .request = 3)          \
    ONE(Comm_idup_with_info, RECORD_FORM, 4, FORM, .comm = 1, .newcomm = 3, .request = 4)          \
    ONE(Comm_split,          RECORD_FORM, 4, FORM, .comm = 1, .newcomm = 4)                        \
    ONE(Comm_split_type,     RECORD_FORM, 5, FORM, .comm = 1, .newcomm = 5)                        \
    ONE(Comm_create,         RECORD_FORM, 3, FORM, .comm = 1, .newcomm = 3)                        \
    ONE(Cart_create,         RECORD_FORM, 6, FORM, .comm = 1, .newcomm = 6)                        \
    ONE(Cart_sub,            RECORD_FORM, 3, FORM, .comm = 1, .newcomm = 3)                        \
    ONE(Graph_create,        RECORD_FORM, 6, FORM, .comm = 1, .newcomm = 6)                        \
    ONE(Dist_graph_create,   RECORD_FORM, 9, FORM, .comm = 1, .newcomm = 9)                        \
    ONE(Dist_graph_create_adjacent, RECORD_FORM, 10, FORM, .comm = 1, .newcomm = 10)

#define MPI_MESSAGES(ONE, BOTH)                                                                    \
    BOTH(Send,   COLLRUN_SEND, 6, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6)     \
    BOTH(Bsend,  COLLRUN_SEND, 6, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .buffered = 1)                                                                            \
    BOTH(Ssend,  COLLRUN_SEND, 6, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .sync = 1)                                                                                \
    BOTH(Rsend,  COLLRUN_SEND, 6, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .buffered = 1)                                                                            \
    BOTH(Isend,  COLLRUN_SEND, 7, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .request = 7)                                                                             \
    BOTH(Ibsend, COLLRUN_SEND, 7, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .request = 7, .buffered = 1)                                                              \
    BOTH(Issend, COLLRUN_SEND, 7, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .request = 7, .sync = 1)                                                                  \
    BOTH(Irsend, COLLRUN_SEND, 7, SEND, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,     \
         .request = 7, .buffered = 1)                                                              \
    BOTH(Send_init,  COLLRUN_SEND, 7, INIT_MESSAGE, .count = 2, .type = 3, .peer = 4, .tag = 5,    \
         .comm = 6, .request = 7)                                                                  \
    BOTH(Bsend_init, COLLRUN_SEND, 7, INIT_MESSAGE, .count = 2, .type = 3, .peer = 4, .tag = 5,    \
         .comm = 6, .request = 7, .buffered = 1)                                                   \
    BOTH(Ssend_init, COLLRUN_SEND, 7, INIT_MESSAGE, .count = 2, .type = 3, .peer = 4, .tag = 5,    \
         .comm = 6, .request = 7, .sync = 1)                                                       \
    BOTH(Rsend_init, COLLRUN_SEND, 7, INIT_MESSAGE, .count = 2, .type = 3, .peer = 4, .tag = 5,    \
         .comm = 6, .request = 7, .buffered = 1)                                                   \
    BOTH(Recv,      COLLRUN_RECV, 7, RECV, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,  \
         .status = 7)                                                                              \
    BOTH(Irecv,     COLLRUN_RECV, 7, RECV, .count = 2, .type = 3, .peer = 4, .tag = 5, .comm = 6,  \
         .request = 7)                                                                             \
    BOTH(Recv_init, COLLRUN_RECV, 7, INIT_MESSAGE, .count = 2, .type = 3, .peer = 4, .tag = 5,     \
         .comm = 6, .request = 7)                                                                  \
    BOTH(Sendrecv, COLLRUN_SEND, 12, SENDRECV, .count = 2, .type = 3, .peer = 4, .tag = 5,         \
         .recvcount = 7, .recvtype = 8, .source = 9, .recvtag = 10, .comm = 11, .status = 12)      \
    BOTH(Sendrecv_replace, COLLRUN_SEND, 9, SENDRECV, .count = 2, .type = 3, .peer = 4, .tag = 5,  \
         .recvcount = 2, .recvtype = 3, .source = 6, .recvtag = 7, .comm = 8, .status = 9)         \
    BOTH(Isendrecv, COLLRUN_SEND, 12, SENDRECV, .count = 2, .type = 3, .peer = 4, .tag = 5,        \
         .recvcount = 7, .recvtype = 8, .source = 9, .recvtag = 10, .comm = 11, .request = 12)     \
    BOTH(Isendrecv_replace, COLLRUN_SEND, 9, SENDRECV, .count = 2, .type = 3, .peer = 4, .tag = 5, \
         .recvcount = 2, .recvtype = 3, .source = 6, .recvtag = 7, .comm = 8, .request = 9)        \
    ONE(Probe,   RECORD_PROBE, 4, PROBE, .peer = 1, .tag = 2, .comm = 3, .status = 4)              \
    ONE(Mprobe,  RECORD_PROBE, 5, PROBE, .peer = 1, .tag = 2, .comm = 3, .status = 5,              \
        .message = 4)                                                                              \
    ONE(Improbe, RECORD_OPAQUE, 6, IMPROBE, .peer = 1, .tag = 2, .comm = 3, .flag = 4,             \
        .message = 5, .status = 6)

#define MPI_COMPLETIONS(ONE, BOTH)                                                                 \
    ONE(Wait,     RECORD_OPAQUE, 2, WAIT, .requests = 1, .status = 2)                              \
    ONE(Waitall,  RECORD_OPAQUE, 3, WAIT, .n = 1, .requests = 2, .status = 3)                      \
    ONE(Waitany,  RECORD_OPAQUE, 4, WAIT, .n = 1, .requests = 2, .index = 3, .status = 4)          \
    ONE(Waitsome, RECORD_OPAQUE, 5, WAIT, .n = 1, .requests = 2, .outcount = 3, .index = 4,        \
        .status = 5)                                                                               \
    ONE(Test,     RECORD_OPAQUE, 3, TEST, .requests = 1, .flag = 2, .status = 3)                   \
    ONE(Testall,  RECORD_OPAQUE, 4, TEST, .n = 1, .requests = 2, .flag = 3, .status = 4)           \
    ONE(Testany,  RECORD_OPAQUE, 5, TEST, .n = 1, .requests = 2, .index = 3, .flag = 4,            \
        .status = 5)                                                                               \
    ONE(Testsome, RECORD_OPAQUE, 5, TEST, .n = 1, .requests = 2, .outcount = 3, .index = 4,        \
        .status = 5)                                                                               \
    ONE(Start,    RECORD_OPAQUE, 1, START, .requests = 1)                                          \
    ONE(Startall, RECORD_OPAQUE, 2, START, .n = 1, .requests = 2)                                  \
    ONE(Cancel,   RECORD_OPAQUE, 1, CANCEL, .requests = 1)                                         \
    ONE(Request_free, RECORD_OPAQUE, 1, FREE_REQUEST, .requests = 1)

#define MPI_OTHERS(ONE, BOTH)                                                                      \
    ONE(Init,        RECORD_OPAQUE, 2, INIT, .n = 0)                                               \
    ONE(Init_thread, RECORD_OPAQUE, 4, INIT, .n = 0)                                               \
    ONE(Finalize,    RECORD_FINALIZE, 0, FINALIZE, .n = 0)                                         \
    ONE(Comm_free,       RECORD_OPAQUE, 1, FREE_COMM, .newcomm = 1)                                \
    ONE(Comm_disconnect, RECORD_OPAQUE, 1, FREE_COMM, .newcomm = 1)                                \
    ONE(Comm_set_name,   RECORD_OPAQUE, 2, NAME_COMM, .comm = 1, .name = 2)                        \
    ONE(Comm_create_group, RECORD_OPAQUE, 4, FORM_GROUP, .comm = 1, .tag = 3, .newcomm = 4)

/* What makes and frees objects: `object` is where the handle is. */
#define MPI_OBJECTS(ONE, BOTH)                                                                     \
    BOTH(Type_contiguous,     RECORD_OPAQUE, 3, MAKE_TYPE, .count = 1, .type = 2, .object = 3)     \
    BOTH(Type_vector,         RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .length = 2, .type = 4,     \
         .object = 5)                                                                              \
    BOTH(Type_create_hvector, RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .length = 2, .type = 4,     \
         .object = 5)                                                                              \
    BOTH(Type_indexed,         RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .type = 4, .object = 5)    \
    BOTH(Type_create_hindexed, RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .type = 4, .object = 5)    \
    BOTH(Type_create_indexed_block,  RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .length = 2,         \
         .type = 4, .object = 5)                                                                   \
    BOTH(Type_create_hindexed_block, RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .length = 2,         \
         .type = 4, .object = 5)                                                                   \
    BOTH(Type_create_struct,   RECORD_OPAQUE, 5, MAKE_TYPE, .count = 1, .object = 5)               \
    BOTH(Type_create_subarray, RECORD_OPAQUE, 7, MAKE_TYPE, .type = 6, .object = 7)                \
    BOTH(Type_create_darray,   RECORD_OPAQUE, 10, MAKE_TYPE, .type = 9, .object = 10)              \
    BOTH(Type_create_resized,  RECORD_OPAQUE, 4, MAKE_TYPE, .type = 1, .object = 4)                \
    ONE(Type_dup,    RECORD_OPAQUE, 2, MAKE_TYPE, .type = 1, .object = 2)                          \
    ONE(Type_commit, RECORD_OPAQUE, 1, COMMIT_TYPE, .object = 1)                                   \
    ONE(Type_free,   RECORD_OPAQUE, 1, FREE_TYPE, .object = 1)                                     \
    BOTH(Op_create,  RECORD_OPAQUE, 3, MAKE_OP, .object = 3)                                       \
    ONE(Op_free,     RECORD_OPAQUE, 1, FREE_OP, .object = 1)                                       \
    ONE(Comm_group,         RECORD_OPAQUE, 2, MAKE_GROUP, .comm = 1, .object = 2)                  \
    ONE(Comm_remote_group,  RECORD_OPAQUE, 2, MAKE_GROUP, .comm = 1, .object = 2)                  \
    ONE(Win_get_group,      RECORD_OPAQUE, 2, MAKE_GROUP, .object = 2)                             \
    ONE(Group_incl,         RECORD_OPAQUE, 4, MAKE_GROUP, .object = 4)                             \
    ONE(Group_excl,         RECORD_OPAQUE, 4, MAKE_GROUP, .object = 4)                             \
    ONE(Group_range_incl,   RECORD_OPAQUE, 4, MAKE_GROUP, .object = 4)                             \
    ONE(Group_range_excl,   RECORD_OPAQUE, 4, MAKE_GROUP, .object = 4)                             \
    ONE(Group_union,        RECORD_OPAQUE, 3, MAKE_GROUP, .object = 3)                             \
    ONE(Group_intersection, RECORD_OPAQUE, 3, MAKE_GROUP, .object = 3)                             \
    ONE(Group_difference,   RECORD_OPAQUE, 3, MAKE_GROUP, .object = 3)                             \
    ONE(Group_free,         RECORD_OPAQUE, 1, FREE_GROUP, .object = 1)                             \
    BOTH(Win_create,          RECORD_OPAQUE, 6, MAKE_WIN, .comm = 5, .object = 6)                  \
    BOTH(Win_allocate,        RECORD_OPAQUE, 6, MAKE_WIN, .comm = 4, .object = 6)                  \
    BOTH(Win_allocate_shared, RECORD_OPAQUE, 6, MAKE_WIN, .comm = 4, .object = 6)                  \
    ONE(Win_create_dynamic,   RECORD_OPAQUE, 3, MAKE_WIN, .comm = 2, .object = 3)                  \
    ONE(Win_free,             RECORD_OPAQUE, 1, FREE_WIN, .object = 1)                             \
    ONE(Intercomm_create,     RECORD_OPAQUE, 6, MAKE_COMM, .comm = 1, .object = 6)                 \
    ONE(Intercomm_merge,      RECORD_OPAQUE, 3, MAKE_COMM, .comm = 1, .object = 3)                 \
    ONE(Comm_spawn,           RECORD_OPAQUE, 8, MAKE_COMM, .comm = 6, .object = 7)                 \
    ONE(Comm_spawn_multiple,  RECORD_OPAQUE, 9, MAKE_COMM, .comm = 7, .object = 8)                 \
    ONE(Comm_accept,          RECORD_OPAQUE, 5, MAKE_COMM, .comm = 4, .object = 5)                 \
    ONE(Comm_connect,         RECORD_OPAQUE, 5, MAKE_COMM, .comm = 4, .object = 5)                 \
    ONE(Comm_join,            RECORD_OPAQUE, 2, MAKE_COMM, .object = 2)                            \
    ONE(Comm_create_from_group, RECORD_OPAQUE, 5, MAKE_COMM, .object = 5)

#define MPI_FUNCTIONS(ONE, BOTH)                                                                   \
    MPI_COLLECTIVES(ONE, BOTH) MPI_FORMS(ONE, BOTH) MPI_MESSAGES(ONE, BOTH)                        \
    MPI_COMPLETIONS(ONE, BOTH) MPI_OTHERS(ONE, BOTH)

/* MPI_FN_Bcast and so on; 0 is none. */
#define MPI_FUNCTION_NUMBER(name, ...) MPI_FN_##name,
enum mpi_function {
    MPI_FN_NONE,
    MPI_FUNCTIONS(MPI_FUNCTION_NUMBER, MPI_FUNCTION_NUMBER)
    MPI_FN_COUNT
};
/* clang-format on */

_Static_assert(MPI_FN_COUNT <= 122, "MPI_FUNCTION_KIND must not meet enum record_kind");

/* In frames, the kind of a call of MPI is this with its enum mpi_function. */
#define MPI_FUNCTION_KIND 128

/* record_op.flags: a number of enum mpi_function above RECORD_SYNC. */
#define MPI_FUNCTION_FLAG 1

#endif

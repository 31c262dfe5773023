/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent sends to the runner for a trace: the payload of WIRE_TRACE, about one rank.
 *
 *   u64 now            CLOCK_MONOTONIC of the host in ns, when the record was read
 *   u64 in flight      bytes of the operations that had begun and not ended
 *   u64 dropped        operations since the last frame that were overwritten before they were read
 *   u32 operations     in this frame
 *   blocks to the end, in the order in which the rank began the operations:
 *     u8 'g', u16 slot, u32 members, u32 rank in the group, str name, str scope: the group of a
 *     slot, ahead of its first operation
 *     u8 'o', struct trace_op
 *
 * Numbers are little-endian; both ends are of one build.
 */
#ifndef ENGINE_BASE_TRACE_OP_H
#define ENGINE_BASE_TRACE_OP_H

#include <stdint.h>

enum { TRACE_OP_GROUP = 'g', TRACE_OP_OPERATION = 'o' };

#define TRACE_OP_NO_ORDER UINT32_MAX
#define TRACE_OP_NO_SLOT UINT16_MAX

/* 64 bytes. Times: CLOCK_MONOTONIC of the host in ns. */
struct trace_op {
    uint64_t number;
    uint64_t called, started, ended; /* started 0: the backend has not begun it */
    uint64_t count;
    int32_t root_or_peer; /* a rank of the group; -1: none */
    uint32_t tag;
    uint32_t order; /* messages: of the same source, destination and tag, how many came
                       before; or TRACE_OP_NO_ORDER */
    uint16_t slot;  /* of a 'g' block, or TRACE_OP_NO_SLOT: its group is forgotten */
    uint8_t kind, dtype, op, state; /* as in record_entry */
    uint8_t function;               /* of MPI: enum mpi_function; 0: an operation of collrun */
    uint8_t padding[5];
};

_Static_assert(sizeof(struct trace_op) == 64, "an operation has a fixed shape");

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the numbers in a record of MPI or c10d mean (record_head.tap is RECORD_TAP_MPI or
 * RECORD_TAP_C10D), and calls as these libraries name them:
 *
 *     MPI_Bcast(count=4, MPI_INT, root=0)      MPI_Recv(count=1, MPI_INT, source=1, tag=3)
 *     broadcast(numel=4, int32, src=0)         recv(numel=1, int32, src=1, tag=3)
 *
 * In such a record `kind` of a group and of an entry is a number of enum mpi_function, `dtype` one
 * of mpi_type_name, `op` one of mpi_op_name or OP_USER.
 */
#ifndef ENGINE_BASE_MPI_NAMES_H
#define ENGINE_BASE_MPI_NAMES_H

#include "base/mpi_functions.h"

#include <stdbool.h>

/* "MPI_Bcast"; of a number out of range "MPI". */
const char *mpi_function_name(unsigned function);
/* As in record_op: enum collrun_kind or enum record_kind. */
unsigned mpi_function_kind(unsigned function);
bool mpi_function_is_known(unsigned function); /* of MPI or c10d; 0 is */
/* The number of "all_reduce"; 0: there is none. */
unsigned c10d_function_find(const char *name);

/* The kind of a call as one byte of a frame, and back: the function, 0 if it is none of MPI. */
static inline uint8_t mpi_kind_pack(uint8_t function, unsigned kind)
{
    return (uint8_t)(function ? MPI_FUNCTION_KIND + (unsigned)function : kind);
}
static inline uint8_t mpi_kind_unpack(uint8_t packed, uint8_t *kind)
{
    const bool is_mpi = packed > MPI_FUNCTION_KIND && packed < RECORD_NEIGHBORS &&
                        mpi_function_is_known(packed - MPI_FUNCTION_KIND);
    const uint8_t function = is_mpi ? (uint8_t)(packed - MPI_FUNCTION_KIND) : 0;
    *kind = is_mpi ? (uint8_t)mpi_function_kind(function) : packed;
    return function;
}

/* A type whose elements differ: record_entry.tag is a hash of them. 0: no element. */
enum { MPI_TYPE_MIXED = 255 };
/* "MPI_INT"; of MIXED "a derived type", of 0 and of a number out of range "". */
const char *mpi_type_name(unsigned type);
/* 0: no predefined type has this name. */
unsigned mpi_type_find(const char *name);
/* What must be equal where data meets: MPI_INT and MPI_INT32_T are alike, and so are all types of
 * one byte. A program that mixes these works with every library. */
unsigned mpi_type_class(unsigned type);

/* Bytes of one element; 0: not known. */
unsigned mpi_type_bytes(unsigned type);

/* False: a message of the first type must not be received as the second one. */
bool mpi_types_fit(unsigned sent, unsigned received);
/* In a record, `op` of a receive: MPI_Sendrecv has a send and a receive. */
enum { MPI_RECEIVES = 1 };

/* MPI applies the operator to elements of the type; true if one of them is not known. */
bool mpi_op_takes(unsigned op, unsigned type);
/* Operators count from 1, in the order of the standard's table: MPI_MAX is 1. */
const char *mpi_op_name(unsigned op);
unsigned mpi_op_find(const char *name); /* 0: no operator has this name */

/* One call, in the form that is recorded. Members that its kind does not have are not read. */
struct mpi_call {
    unsigned function, type, op; /* op of a message: MPI_RECEIVES, or 0 */
    int root_or_peer;            /* a rank of the communicator; -1: any */
    uint32_t tag;                /* of a message; COLLRUN_ANY_TAG */
    uint64_t count;
};

enum { MPI_CALL_TEXT_LEN = 160 };
void mpi_call_text(const struct mpi_call *call, char *out, size_t len);
/* "MPI_Bcast(count=4, MPI_INT, root=0), operation 12 of MPI_COMM_WORLD" */
void mpi_call_text_numbered(const struct mpi_call *call, const char *comm, uint64_t number,
                            char *out, size_t len);

#endif

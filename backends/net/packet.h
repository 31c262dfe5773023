/* SPDX-License-Identifier: Apache-2.0
 *
 * struct packet: the header of what two groups exchange over a link. Both ends have the same byte
 * order.
 */
#ifndef NET_PACKET_H
#define NET_PACKET_H

#include "link.h"

enum packet_type {
    PACKET_EAGER = 1,  /* a message, with its data */
    PACKET_RTS = 2,    /* a message whose data follows CTS */
    PACKET_CTS = 3,    /* the landing for it */
    PACKET_CREDIT = 4, /* eager messages that have been matched */
    PACKET_FAIL =
        5, /* the sender's group has failed; the data is the text; also when it closes it */
    PACKET_LEAVE = 6, /* the sender closes its group */
    PACKET_OP = 7,    /* data of a collective */
    PACKET_GRANT = 8, /* the landing for data of a collective */
    PACKET_WAKE = 9,  /* a message of this host may have arrived in shared memory */
    PACKET_LONG = 10, /* a message; the data is that of a long packet */
    PACKET_ASK = 11 /* the sender waits for the receiver: LEAVE is the answer, if it has closed its
                       group */
};

struct packet_message {
    uint64_t count;      /* elements; of LEAVE: puts to the receiver that have been sent */
    uint64_t token;      /* of CTS; 0: the message is empty */
    uint32_t tag, dtype; /* tag: of ASK: the rank of its receiver */
    uint32_t id;         /* of the send, at its sender */
    int32_t status;      /* of FAIL */
    /* All but FAIL and LEAVE have these: credit that is returned, and the address of the memory
     * that has last received from the peer, modulo LINK_MEMORY_ALIGN. */
    uint32_t credit_bytes;
    uint16_t credit_messages, alignment;
};

struct packet_op {
    uint64_t count; /* of the call; 0 in a vector form */
    uint64_t token; /* of GRANT */
    uint64_t len;   /* of the message, as the sender of this packet knows it */
    uint32_t number, slot;
    uint8_t kind, dtype, op, reserved;
    int32_t root;
};

struct packet {
    uint64_t context;
    uint32_t source; /* rank in the group */
    uint32_t type;   /* enum packet_type */
    union {
        struct packet_message message;
        struct packet_op op;
    };
};

/* What all members have to call alike; what the kind lacks is 0, and so is what a packet adds. */
static inline struct packet_op packet_op_of(const struct collrun_call *call)
{
    struct packet_op op = {.kind = (uint8_t)call->kind};
    if (call->kind == COLLRUN_BARRIER)
        return op;
    op.dtype = (uint8_t)call->dtype;
    if (collrun_kind_reduces(call->kind))
        op.op = (uint8_t)call->op;
    if (collrun_kind_has_root(call->kind))
        op.root = call->root;
    if (!collrun_kind_is_vector(call->kind))
        op.count = call->count;
    return op;
}

static inline bool packet_op_agrees(const struct packet_op *a, const struct packet_op *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}

/* The call, for messages. */
static inline struct collrun_call packet_op_call(const struct packet_op *op)
{
    struct collrun_call call = COLLRUN_CALL((enum collrun_kind)op->kind);
    call.dtype = (enum collrun_dtype)op->dtype;
    call.op = (enum collrun_op)op->op;
    call.root = op->root;
    call.count = op->count;
    return call;
}

_Static_assert(sizeof(struct packet) == LINK_HEADER_LEN, "a packet's header has a fixed length");

#endif

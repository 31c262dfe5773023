/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash is FNV-1a over the name and the two numbers.
 */
#include "observe/user_op.h"

#include <string.h>

/* MOST_OP_BYTES: an upper bound for any later version of the struct. */
enum { NAME_LEN = 64, MOST_OP_BYTES = 4096 };

const char *user_op_flaw(const struct collrun_user_op *op)
{
    if (op->size < offsetof(struct collrun_user_op, ctx) + sizeof op->ctx ||
        op->size > MOST_OP_BYTES)
        return "its size is not sizeof(struct collrun_user_op)";
    if (!op->combine)
        return "combine is NULL";
    if (!op->name || !op->name[0])
        return "it has no name";
    if (strnlen(op->name, NAME_LEN) == NAME_LEN)
        return "its name is longer than 63 bytes";
    return op->unit > PTRDIFF_MAX ? "its unit exceeds the address space" : NULL;
}

static uint64_t user_op_hash_number(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * 0x100000001b3u; /* FNV-1a */
}

uint64_t user_op_hash(const struct collrun_user_op *op)
{
    uint64_t hash = 0xcbf29ce484222325u;
    if (!op)
        return 0;
    for (const char *at = op->name; *at; at++)
        hash = user_op_hash_number(hash, (unsigned char)*at);
    hash = user_op_hash_number(hash, user_op_unit(op));
    hash = user_op_hash_number(hash, op->commutative != 0);
    return hash ? hash : 1;
}

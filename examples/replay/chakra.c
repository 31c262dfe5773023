/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Chakra traces (.et), schema 0.0.4: messages of protobuf, each after its length: one
 * GlobalMetadata, then Nodes. Only the fields that a replay needs are decoded.
 *
 * - Nodes are replayed in the order of the file. Those that a node depends on have to be in front
 *   of it: the rank waits for them, if they communicate. Communication is non-blocking. Nodes that
 *   depend on a send need not wait for its receiver: it has ended when the data has left its
 * buffer.
 * - Nodes that compute, load or store are computation, for duration_micros; metadata is skipped.
 * - comm_size is what a rank sends, in bytes; elements are float32 if it is a multiple of 4 bytes,
 *   else uint8. The operator of reductions is a sum, and the root is rank 0: nodes have neither.
 * - A node in a group (pg_name other than "0"), or in some dimensions of the network
 *   (involved_dim), is refused: the file does not say which ranks that are.
 */
#include "format.h"

#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHAKRA_NAME_MAX = 32, CHAKRA_NONE = -1 };
enum chakra_type { /* of a node */
                   CHAKRA_METADATA = 1,
                   CHAKRA_LOAD,
                   CHAKRA_STORE,
                   CHAKRA_COMPUTE,
                   CHAKRA_SEND,
                   CHAKRA_RECV,
                   CHAKRA_COLLECTIVE,
};
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

struct chakra_bytes {
    const unsigned char *at, *end;
};

struct chakra_field {
    unsigned number, wire;
    uint64_t value;            /* varint, and 32 and 64 bits */
    struct chakra_bytes bytes; /* WIRE_BYTES */
};

/* The attributes that a replay needs; CHAKRA_NONE: the node has none. */
struct chakra_attributes {
    int64_t type, size, source, target, tag;
    bool some_dimensions;
    char group[TRACE_NAME_MAX];
};

struct chakra_node {
    uint64_t id, type, duration_us;
    struct chakra_attributes attributes;
};

struct chakra_known {
    uint64_t id;
    size_t op; /* SIZE_MAX: no communication, or waited for */
};

struct chakra_reader {
    struct trace *t;
    struct chakra_node node;
    struct chakra_known *known; /* by the hash of the id */
    size_t nknown, room;        /* room: a power of 2 */
    uint64_t gap_ns;            /* since the last call */
};

/* ---- protobuf ---- */

static bool chakra_varint(struct chakra_bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; b->at < b->end && shift < 64; shift += 7) {
        unsigned char byte = *b->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* So many bytes, as `out`. */
static bool chakra_slice(struct chakra_bytes *b, uint64_t len, struct chakra_bytes *out)
{
    if (len > (uint64_t)(b->end - b->at))
        return false;
    *out = (struct chakra_bytes){b->at, b->at + len};
    b->at += len;
    return true;
}

static bool chakra_field(struct chakra_bytes *b, struct chakra_field *f)
{
    uint64_t key, len;
    struct chakra_bytes fixed;
    if (!chakra_varint(b, &key) || key >> 3 == 0 || key >> 3 > 1 << 29)
        return false;
    *f = (struct chakra_field){.number = (unsigned)(key >> 3), .wire = (unsigned)(key & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        return chakra_varint(b, &f->value);
    case WIRE_BYTES:
        return chakra_varint(b, &len) && chakra_slice(b, len, &f->bytes);
    case WIRE_64:
    case WIRE_32:
        len = f->wire == WIRE_64 ? 8 : 4;
        if (!chakra_slice(b, len, &fixed))
            return false;
        memcpy(&f->value, fixed.at, len);
        return true;
    default:
        return false;
    }
}

static bool chakra_text(const struct chakra_field *f, char *out, size_t size)
{
    size_t len = (size_t)(f->bytes.end - f->bytes.at);
    if (f->wire != WIRE_BYTES || len >= size || memchr(f->bytes.at, 0, len))
        return false;
    memcpy(out, f->bytes.at, len);
    out[len] = '\0';
    return true;
}

/* ---- attributes ---- */

/* A number of any of the types: sint32 and sint64 (15 and 17) are zigzag. */
static int64_t chakra_number(const struct chakra_field *f)
{
    if (f->number == 15 || f->number == 17)
        return (int64_t)(f->value >> 1) ^ -(int64_t)(f->value & 1);
    if (f->number == 23) /* sfixed32 */
        return (int32_t)(uint32_t)f->value;
    return (int64_t)f->value;
}

/* Whether a list of bool has a false one. */
static bool chakra_has_false(struct chakra_bytes list)
{
    struct chakra_field f;
    while (list.at < list.end && chakra_field(&list, &f)) {
        if (f.wire == WIRE_VARINT && !f.value)
            return true;
        for (uint64_t value; f.wire == WIRE_BYTES && f.bytes.at < f.bytes.end;)
            if (!chakra_varint(&f.bytes, &value) || !value)
                return true;
    }
    return false;
}

static void chakra_set(struct chakra_attributes *a, const char *name, const struct chakra_field *f)
{
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"comm_type", &a->type},
                   {"comm_size", &a->size},
                   {"comm_src", &a->source},
                   {"comm_dst", &a->target},
                   {"comm_tag", &a->tag}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0 && f->wire != WIRE_BYTES)
            *numbers[i].value = chakra_number(f);
    if (strcmp(name, "involved_dim") == 0)
        a->some_dimensions = f->wire == WIRE_BYTES && chakra_has_false(f->bytes);
    if (strcmp(name, "pg_name") == 0 && !chakra_text(f, a->group, sizeof a->group))
        snprintf(a->group, sizeof a->group, "(too long)");
}

static bool chakra_attribute(struct chakra_bytes b, struct chakra_attributes *a)
{
    char name[CHAKRA_NAME_MAX] = "";
    struct chakra_field f, value = {0};
    while (b.at < b.end) {
        if (!chakra_field(&b, &f))
            return false;
        if (f.number == 1 && !chakra_text(&f, name, sizeof name))
            name[0] = '\0'; /* none of ours is so long */
        if (f.number > 2)
            value = f;
    }
    if (name[0] && value.number)
        chakra_set(a, name, &value);
    return true;
}

/* ---- nodes ---- */

static size_t chakra_slot(const struct chakra_reader *r, uint64_t id)
{
    size_t i = (size_t)(id * 0x9e3779b97f4a7c15u >> 20) & (r->room - 1);
    while (r->known[i].op && r->known[i].id != id)
        i = (i + 1) & (r->room - 1);
    return i;
}

/* Entries hold the index of the operation + 1, so that 0 is an empty one. */
static int chakra_remember(struct chakra_reader *r, uint64_t id, size_t op)
{
    if (2 * r->nknown >= r->room) {
        struct chakra_known *old = r->known;
        size_t room = r->room;
        r->room = room ? 2 * room : 64;
        r->known = calloc(r->room, sizeof *r->known);
        for (size_t i = 0; r->known && i < room; i++)
            if (old[i].op)
                r->known[chakra_slot(r, old[i].id)] = old[i];
        free(old);
        if (!r->known)
            return trace_fail(r->t, id, "out of memory for %zu nodes", r->room);
    }
    struct chakra_known *k = &r->known[chakra_slot(r, id)];
    if (k->op)
        return trace_fail(r->t, id, "a second node has this id");
    *k = (struct chakra_known){id, op == SIZE_MAX ? SIZE_MAX : op + 1};
    r->nknown++;
    return 0;
}

static struct op *chakra_add(struct chakra_reader *r)
{
    struct op *op = trace_add(r->t, r->node.id);
    if (op) {
        op->gap_ns = r->gap_ns;
        r->gap_ns = 0;
    }
    return op;
}

/* The node depends on another one. */
static int chakra_depend(struct chakra_reader *r, uint64_t id)
{
    struct chakra_known *k = r->room ? &r->known[chakra_slot(r, id)] : NULL;
    if (!k || !k->op)
        return trace_fail(r->t, r->node.id, "it depends on node %llu, which is not in front of it",
                          (unsigned long long)id);
    if (k->op == SIZE_MAX)
        return 0;
    struct op *op = chakra_add(r);
    if (!op)
        return -1;
    op->kind = TRACE_WAIT;
    op->blocking = true;
    op->target = k->op - 1;
    k->op = SIZE_MAX;
    return 0;
}

static int chakra_depends(struct chakra_reader *r, struct chakra_field *f)
{
    uint64_t id;
    if (f->wire == WIRE_VARINT)
        return chakra_depend(r, f->value);
    while (f->wire == WIRE_BYTES && f->bytes.at < f->bytes.end)
        if (!chakra_varint(&f->bytes, &id))
            return trace_fail(r->t, r->node.id, "a damaged list of dependencies");
        else if (chakra_depend(r, id))
            return -1;
    return 0;
}

/* Elements of one rank or block. */
static int chakra_size(struct chakra_reader *r, struct op *op)
{
    int64_t size = r->node.attributes.size, n = r->t->world_size;
    bool blocks = op->kind == COLLRUN_ALLTOALL || op->kind == COLLRUN_REDUCE_SCATTER ||
                  op->kind == COLLRUN_SCATTER;
    if (op->kind == COLLRUN_BARRIER)
        return 0;
    if (size == CHAKRA_NONE)
        return trace_fail(r->t, r->node.id, "%s has no comm_size", trace_kind_name(op->kind));
    if (size < 0 || (uint64_t)size > TRACE_BYTES_MAX)
        return trace_fail(r->t, r->node.id, "%s of %lld bytes", trace_kind_name(op->kind),
                          (long long)size);
    if (blocks && size % n)
        return trace_fail(r->t, r->node.id, "%s of %lld bytes, for %lld ranks",
                          trace_kind_name(op->kind), (long long)size, (long long)n);
    size /= blocks ? n : 1;
    op->dtype = size % 4 ? COLLRUN_UINT8 : COLLRUN_FLOAT32;
    op->count = (size_t)size / collrun_dtype_size(op->dtype);
    return 0;
}

static int chakra_message(struct chakra_reader *r, struct op *op)
{
    const struct chakra_attributes *a = &r->node.attributes;
    bool sends = op->kind == COLLRUN_SEND;
    int64_t own = sends ? a->source : a->target, peer = sends ? a->target : a->source;
    if (own != CHAKRA_NONE && own != r->t->rank)
        return trace_fail(r->t, r->node.id, "%s of rank %lld in the file of rank %d",
                          trace_kind_name(op->kind), (long long)own, r->t->rank);
    if (peer < 0 || peer >= r->t->world_size)
        return trace_fail(r->t, r->node.id, "%s: rank %lld of %d", trace_kind_name(op->kind),
                          (long long)peer, r->t->world_size);
    if (a->tag < CHAKRA_NONE || a->tag > INT32_MAX)
        return trace_fail(r->t, r->node.id, "%s: tag %lld", trace_kind_name(op->kind),
                          (long long)a->tag);
    op->peer = (int)peer;
    op->tag = a->tag == CHAKRA_NONE ? 0 : (uint32_t)a->tag;
    return 0;
}

static int chakra_collective(struct chakra_reader *r, struct op *op)
{
    static const enum collrun_kind kinds[] = {
        COLLRUN_ALLREDUCE,      COLLRUN_REDUCE,    COLLRUN_ALLGATHER, COLLRUN_GATHER,
        COLLRUN_SCATTER,        COLLRUN_BROADCAST, COLLRUN_ALLTOALL,  COLLRUN_REDUCE_SCATTER,
        COLLRUN_REDUCE_SCATTER, COLLRUN_BARRIER};
    const struct chakra_attributes *a = &r->node.attributes;
    if (a->type < 0 || a->type >= (int64_t)(sizeof kinds / sizeof *kinds))
        return trace_fail(r->t, r->node.id, "a collective of type %lld cannot be replayed",
                          (long long)a->type);
    op->kind = (int)kinds[a->type];
    op->peer = collrun_kind_has_root(kinds[a->type]) ? 0 : -1;
    if (a->some_dimensions)
        return trace_fail(r->t, r->node.id,
                          "%s in some dimensions of the network: the file does "
                          "not say which ranks that are",
                          trace_kind_name(op->kind));
    if (a->group[0] && strcmp(a->group, "0") != 0)
        return trace_fail(r->t, r->node.id,
                          "%s in group %s: the file does not say which ranks it "
                          "has",
                          trace_kind_name(op->kind), a->group);
    return 0;
}

static int chakra_communicate(struct chakra_reader *r)
{
    uint64_t id = r->node.id, us = r->node.duration_us;
    struct op *op = chakra_add(r);
    if (!op)
        return -1;
    op->kind = r->node.type == CHAKRA_SEND ? COLLRUN_SEND : COLLRUN_RECV;
    op->timed = us > 0;
    op->recorded_ns = us * 1000;
    int rc = r->node.type == CHAKRA_COLLECTIVE ? chakra_collective(r, op) : chakra_message(r, op);
    if (rc || chakra_size(r, op))
        return -1;
    return chakra_remember(r, id, op->kind == COLLRUN_SEND ? SIZE_MAX : r->t->nops - 1);
}

/* What the node does, when all of its dependencies are known. */
static int chakra_do(struct chakra_reader *r)
{
    if (r->node.duration_us > UINT32_MAX)
        return trace_fail(r->t, r->node.id, "it takes %llu us",
                          (unsigned long long)r->node.duration_us);
    switch (r->node.type) {
    case CHAKRA_SEND:
    case CHAKRA_RECV:
    case CHAKRA_COLLECTIVE:
        return chakra_communicate(r);
    case CHAKRA_LOAD:
    case CHAKRA_STORE:
    case CHAKRA_COMPUTE:
        r->gap_ns += r->node.duration_us * 1000;
        break;
    case CHAKRA_METADATA:
        break;
    default:
        return trace_fail(r->t, r->node.id, "a node of type %llu cannot be replayed",
                          (unsigned long long)r->node.type);
    }
    return chakra_remember(r, r->node.id, SIZE_MAX);
}

/* Fields may have any order, so dependencies are read after all others. */
static int chakra_node(struct chakra_reader *r, struct chakra_bytes b)
{
    struct chakra_bytes again = b;
    struct chakra_field f;
    r->node = (struct chakra_node){.attributes = {.type = CHAKRA_NONE,
                                                  .size = CHAKRA_NONE,
                                                  .source = CHAKRA_NONE,
                                                  .target = CHAKRA_NONE,
                                                  .tag = CHAKRA_NONE}};
    while (b.at < b.end) {
        bool good = chakra_field(&b, &f);
        if (good && f.number == 1)
            r->node.id = f.value;
        else if (good && f.number == 3)
            r->node.type = f.value;
        else if (good && f.number == 7)
            r->node.duration_us = f.value;
        else if (good && f.number == 10)
            good = f.wire == WIRE_BYTES && chakra_attribute(f.bytes, &r->node.attributes);
        if (!good)
            return trace_fail(r->t, r->node.id, "the node is damaged");
    }
    while (again.at < again.end && chakra_field(&again, &f))
        if ((f.number == 4 || f.number == 5) && chakra_depends(r, &f))
            return -1;
    return chakra_do(r);
}

static int chakra_metadata(struct trace *t, struct chakra_bytes b)
{
    char version[TRACE_NAME_MAX];
    struct chakra_field f;
    while (b.at < b.end) {
        if (!chakra_field(&b, &f))
            return trace_fail(t, TRACE_FILE, "no Chakra trace: its first message is damaged");
        if (f.number == 1 && (!chakra_text(&f, version, sizeof version) ||
                              (version[0] && strcmp(version, "0.0.4") != 0)))
            return trace_fail(t, TRACE_FILE, "the schema is not 0.0.4, which can be replayed");
    }
    return 0;
}

int chakra_read(struct trace *t, const char *text, size_t len)
{
    struct chakra_reader r = {.t = t};
    const unsigned char *begin = (const unsigned char *)text;
    struct chakra_bytes file = {begin, begin + len}, message;
    int rc = 0;
    if (t->world_size < 1)
        return trace_fail(t, TRACE_FILE,
                          "the file does not say how many ranks were traced: a "
                          "file for each rank is needed");
    if (trace_add_group(t, "0", t->world_size) < 0)
        return -1;
    for (bool first = true; !rc && file.at < file.end; first = false) {
        uint64_t size;
        size_t at = (size_t)(file.at - begin);
        if (!chakra_varint(&file, &size) || !chakra_slice(&file, size, &message))
            rc = trace_fail(t, TRACE_FILE, "the message at byte %zu is longer than the file", at);
        else
            rc = first ? chakra_metadata(t, message) : chakra_node(&r, message);
    }
    free(r.known);
    return rc;
}

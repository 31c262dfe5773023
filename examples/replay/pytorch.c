/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads execution traces of PyTorch (JSON), as PARAM's et_replay reads them: schemas 1.0.x, whose
 * nodes have `inputs` as a list, and 1.1.x (also "-chakra"), which have `inputs.values`.
 *
 * - Operations are the nodes "record_param_comms", in the order of their ids, which is that of the
 *   calls of all threads. Its inputs are: a tensor (waits, barriers and inits have none), a
 *   request, a group, a rank or root, the operation, its splits, and in schema 1.0.3 and later the
 *   first global rank of the group, their stride, and its size.
 * - All operations but waits and barriers are non-blocking; what no wait names ends with the trace.
 *   A wait for a request that no node has started belongs to an operation before the trace.
 * - Groups are those of the node "## process_group:init ##". Without one, a group is all ranks, or
 *   the ranks that first rank, stride and size give. Schema 1.0.1 numbers groups by an address: a
 *   trace with two of them is refused.
 * - Nodes have no times. The operator of reductions is not recorded either: it is a sum.
 */
#include "format.h"

#include <collrun/collrun.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PYTORCH_OPERATION_MAX = 64 };

struct pytorch_request {
    int64_t request;
    size_t op;
};

/* A node that communicates, or lists the groups. */
struct pytorch_index {
    int64_t id;
    size_t at; /* in the file */
};

struct pytorch_reader {
    struct trace *t;
    bool has_schema, has_nodes;
    struct pytorch_index *index;
    size_t nindex, index_room;
    uint64_t id; /* of the node */
    const json_t *inputs, *types, *outputs;
    int at; /* index of the operation's name in the inputs */
    char operation[PYTORCH_OPERATION_MAX];
    int64_t backend; /* of schema 1.0.1: the group */
    size_t elements; /* of the input */
    struct pytorch_request *requests;
    size_t nrequests, requests_room;
};

/* ---- types ---- */

static const struct {
    const char *name;
    enum collrun_dtype dtype;
} pytorch_dtypes[] = {{"float", COLLRUN_FLOAT32},       {"double", COLLRUN_FLOAT64},
                      {"c10::Half", COLLRUN_FLOAT16},   {"c10::BFloat16", COLLRUN_BFLOAT16},
                      {"int", COLLRUN_INT32},           {"long", COLLRUN_INT64},
                      {"long int", COLLRUN_INT64},      {"short", COLLRUN_INT16},
                      {"short int", COLLRUN_INT16},     {"signed char", COLLRUN_INT8},
                      {"unsigned char", COLLRUN_UINT8}, {"bool", COLLRUN_BOOL}};

/* Parses "Tensor(float)", or "GenericList[Tensor(float),Tensor(float)]". */
static int pytorch_dtype(struct pytorch_reader *r, int index, struct op *op)
{
    const char *text = json_string_value(json_array_get(r->types, (size_t)index));
    const char *name = text ? strstr(text, "Tensor(") : NULL;
    if (name)
        name += strlen("Tensor(");
    size_t len = name ? strcspn(name, ")") : 0;
    for (size_t i = 0; i < sizeof pytorch_dtypes / sizeof *pytorch_dtypes; i++)
        if (name && strlen(pytorch_dtypes[i].name) == len &&
            strncmp(name, pytorch_dtypes[i].name, len) == 0) {
            op->dtype = pytorch_dtypes[i].dtype;
            return 0;
        }
    return trace_fail(r->t, r->id, "%s of elements of the type \"%.*s\"", r->operation,
                      name ? (int)len : 0, name ? name : "");
}

/* ---- tensors: [id, storage, offset, elements, bytes of one, device], or lists of them ---- */

static int pytorch_tensor(struct pytorch_reader *r, const json_t *tensor, enum collrun_dtype dtype,
                          size_t *elements)
{
    int64_t n, width;
    if (!trace_json_int(json_array_get(tensor, 3), &n) ||
        !trace_json_int(json_array_get(tensor, 4), &width))
        return trace_fail(r->t, r->id, "%s: a tensor has no number and size of its elements",
                          r->operation);
    if (n < 0 || (uint64_t)n > TRACE_BYTES_MAX)
        return trace_fail(r->t, r->id, "%s: a tensor of %lld elements", r->operation, (long long)n);
    if (n && (size_t)width != collrun_dtype_size(dtype))
        return trace_fail(r->t, r->id, "%s: elements of type %s have %lld bytes", r->operation,
                          trace_dtype_name(dtype), (long long)width);
    *elements += (size_t)n;
    return *elements > TRACE_BYTES_MAX
               ? trace_fail(r->t, r->id, "%s of %zu elements", r->operation, *elements)
               : 0;
}

/* A tensor, or a list of what this function reads: outputs may be lists of lists. */
static int pytorch_tensors(struct pytorch_reader *r, const json_t *value, enum collrun_dtype dtype,
                           size_t *elements, int depth)
{
    if (!json_array_size(value))
        return 0; /* no tensor: that of a rank which only sends, or only receives */
    if (depth == 0 || !json_is_array(json_array_get(value, 0)))
        return pytorch_tensor(r, value, dtype, elements);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (pytorch_tensors(r, json_array_get(value, i), dtype, elements, depth - 1))
            return -1;
    return 0;
}

/* ---- groups ---- */

static int pytorch_group_ranks(struct pytorch_reader *r, const json_t *group, const char *name,
                               int64_t size)
{
    const json_t *ranks = json_object_get(group, "ranks");
    const size_t n = json_array_size(ranks);
    if (n && n != (size_t)size)
        return trace_fail(r->t, r->id, "group %s of %lld ranks lists %zu", name, (long long)size,
                          n);
    if (!n && !r->t->world_size)
        r->t->world_size = (int)size;
    const int index = trace_add_group(r->t, name, (int)size);
    if (index < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int64_t rank;
        if (!trace_json_int(json_array_get(ranks, i), &rank) || rank < 0 || rank >= TRACE_RANKS_MAX)
            return trace_fail(r->t, r->id, "group %s: a rank is no rank", name);
        const int before = trace_group_rank(&r->t->groups[index], (int)rank);
        if (before >= 0 && (size_t)before < i)
            return trace_fail(r->t, r->id, "group %s has rank %lld twice", name, (long long)rank);
        r->t->groups[index].ranks[i] = (int)rank;
    }
    return 0;
}

/* The node "## process_group:init ##": its input is JSON in a string. */
static int pytorch_groups(struct pytorch_reader *r)
{
    const char *text = json_string_value(json_array_get(r->inputs, 0));
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    int rc = json_is_array(list)
                 ? 0
                 : trace_fail(r->t, r->id, "the list of the process groups is no JSON");
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        const json_t *g = json_array_get(list, i);
        char name[TRACE_NAME_MAX];
        int64_t size;
        if (!trace_json_text(json_object_get(g, "pg_name"), name, sizeof name) ||
            !trace_json_int(json_object_get(g, "group_size"), &size) || size < 1 ||
            size > TRACE_RANKS_MAX)
            rc = trace_fail(r->t, r->id, "a process group has no pg_name and group_size");
        else if (trace_find_group(r->t, name) < 0)
            rc = pytorch_group_ranks(r, g, name, size);
    }
    json_decref(list);
    return rc;
}

/* Input `offset` after the name of the operation, or before it; NULL: there is none. */
static const json_t *pytorch_input(const struct pytorch_reader *r, int offset)
{
    const int i = r->at + offset;
    return i < 0 ? NULL : json_array_get(r->inputs, (size_t)i);
}

/* Without an init: first global rank, stride and size follow the splits. */
static int pytorch_new_group(struct pytorch_reader *r, const char *name)
{
    int64_t start = 0, stride = 1, size = r->t->world_size;
    bool known = trace_json_int(pytorch_input(r, 3), &start) &&
                 trace_json_int(pytorch_input(r, 4), &stride) &&
                 trace_json_int(pytorch_input(r, 5), &size);
    if (!known && !trace_json_int(pytorch_input(r, 3), &size))
        size = r->t->world_size;
    if (size < 1 || size > TRACE_RANKS_MAX || start < 0 || start >= TRACE_RANKS_MAX || stride < 1 ||
        stride > TRACE_RANKS_MAX || start + (size - 1) * stride >= TRACE_RANKS_MAX)
        return trace_fail(r->t, r->id, "%s: the trace does not say which ranks group \"%s\" has",
                          r->operation, name);
    if (!r->t->world_size)
        r->t->world_size = (int)(start + (size - 1) * stride + 1);
    int index = trace_add_group(r->t, name, (int)size);
    for (int i = 0; index >= 0 && i < size; i++)
        r->t->groups[index].ranks[i] = (int)(known ? start + i * stride : i);
    return index;
}

static int pytorch_group(struct pytorch_reader *r, struct op *op)
{
    char name[TRACE_NAME_MAX] = "world";
    const json_t *group = pytorch_input(r, -2);
    int64_t backend;
    if (trace_json_int(group, &backend)) {
        if (r->backend && backend && r->backend != backend)
            return trace_fail(r->t, r->id,
                              "%s in a second group: schema 1.0.1 does not say which "
                              "ranks a group has",
                              r->operation);
        r->backend = backend ? backend : r->backend;
    } else if (!trace_json_text(json_array_get(group, 0), name, sizeof name)) {
        return trace_fail(r->t, r->id, "%s: its group has no name", r->operation);
    }
    op->group = trace_find_group(r->t, name);
    if (op->group < 0)
        op->group = pytorch_new_group(r, name);
    return op->group < 0 ? -1 : 0;
}

/* ---- operations ---- */

/* Names without "_", in lower case; `count` is that of: i: the input, o: the output, b: a block of
 * the input, v: the splits, n: nothing. */
static const struct pytorch_operation {
    const char *name;
    int kind;
    char count;
} pytorch_operations[] = {
    {"allreduce", COLLRUN_ALLREDUCE, 'i'},
    {"broadcast", COLLRUN_BROADCAST, 'i'},
    {"broadcastoop", COLLRUN_BROADCAST, 'i'},
    {"reduce", COLLRUN_REDUCE, 'i'},
    {"allgather", COLLRUN_ALLGATHER, 'i'},
    {"allgatherbase", COLLRUN_ALLGATHER, 'i'},
    {"allgatherintotensor", COLLRUN_ALLGATHER, 'i'},
    {"gather", COLLRUN_GATHER, 'i'},
    {"scatter", COLLRUN_SCATTER, 'o'},
    {"reducescatter", COLLRUN_REDUCE_SCATTER, 'o'},
    {"reducescatterbase", COLLRUN_REDUCE_SCATTER, 'o'},
    {"reducescattertensor", COLLRUN_REDUCE_SCATTER, 'o'},
    {"alltoall", COLLRUN_ALLTOALL, 'b'},
    {"alltoallbase", COLLRUN_ALLTOALL, 'b'},
    {"alltoallv", COLLRUN_ALLTOALLV, 'v'},
    {"barrier", COLLRUN_BARRIER, 'n'},
    {"send", COLLRUN_SEND, 'i'},
    {"recv", COLLRUN_RECV, 'i'},
    {"wait", TRACE_WAIT, 'n'},
};

static const struct pytorch_operation *pytorch_find(const char *operation)
{
    char name[PYTORCH_OPERATION_MAX];
    size_t n = 0;
    for (const char *c = operation; *c; c++)
        if (*c != '_')
            name[n++] = (char)tolower((unsigned char)*c);
    name[n] = '\0';
    for (size_t i = 0; i < sizeof pytorch_operations / sizeof *pytorch_operations; i++)
        if (strcmp(name, pytorch_operations[i].name) == 0)
            return &pytorch_operations[i];
    return NULL;
}

/* The counts of one side: splits of rows, in elements. No splits: equal blocks. */
static int pytorch_split(struct pytorch_reader *r, const json_t *split, size_t elements,
                         struct op *op, bool receives)
{
    const int n = r->t->groups[op->group].size;
    const int given = json_array_size(split) <= (size_t)n ? (int)json_array_size(split) : n + 1;
    size_t *counts = r->t->counts + op->counts + (receives ? n : 0);
    uint64_t sum = 0;
    int64_t rows;
    for (int i = 0; i < given; i++) {
        if (!trace_json_int(json_array_get(split, (size_t)i), &rows) || rows < 0 ||
            (uint64_t)rows > TRACE_BYTES_MAX || i == n)
            return trace_fail(r->t, r->id, "%s: a split that is no list of %d counts", r->operation,
                              n);
        counts[i] = (size_t)rows;
        sum += (uint64_t)rows;
    }
    if (given && given != n)
        return trace_fail(r->t, r->id, "%s: %d splits in a group of %d", r->operation, given, n);
    if (given ? (sum ? elements % sum != 0 : elements != 0) : elements % (size_t)n != 0)
        return trace_fail(r->t, r->id, "%s: %zu elements are no multiple of %llu", r->operation,
                          elements, (unsigned long long)(given ? sum : (uint64_t)n));
    for (int i = 0; i < n; i++)
        counts[i] = given ? counts[i] * (sum ? elements / sum : 1) : elements / (size_t)n;
    return 0;
}

static int pytorch_splits(struct pytorch_reader *r, size_t received, struct op *op)
{
    size_t n = (size_t)r->t->groups[op->group].size;
    if (trace_add_counts(r->t, 2 * n, &op->counts))
        return -1;
    if (pytorch_split(r, pytorch_input(r, 1), r->elements, op, false))
        return -1;
    return pytorch_split(r, pytorch_input(r, 2), received, op, true);
}

static int pytorch_counts(struct pytorch_reader *r, char count, struct op *op)
{
    size_t received = 0, n = (size_t)r->t->groups[op->group].size;
    const json_t *tensor = pytorch_input(r, -4);
    r->elements = 0;
    if (count == 'n')
        return 0;
    if (!tensor || pytorch_dtype(r, r->at - 4, op))
        return trace_fail(r->t, r->id, "%s has no tensor", r->operation);
    if (pytorch_tensors(r, tensor, op->dtype, &r->elements, 2) ||
        pytorch_tensors(r, json_array_get(r->outputs, 0), op->dtype, &received, 2))
        return -1;
    if (count == 'v')
        return pytorch_splits(r, received, op);
    op->count = count == 'o' ? received : r->elements;
    if (count == 'b' && op->count % n)
        return trace_fail(r->t, r->id, "%s: %zu elements for %zu ranks", r->operation, op->count,
                          n);
    op->count /= count == 'b' ? n : 1;
    return 0;
}

static int pytorch_peer(struct pytorch_reader *r, struct op *op)
{
    const struct trace_group *g = &r->t->groups[op->group];
    int64_t rank;
    bool needed = op->kind == COLLRUN_SEND || op->kind == COLLRUN_RECV ||
                  collrun_kind_has_root((enum collrun_kind)op->kind);
    if (!needed)
        return 0;
    if (!trace_json_int(pytorch_input(r, -1), &rank) || rank < 0 || rank >= g->size)
        return trace_fail(r->t, r->id, "%s: its root or peer is no rank of group %s, which has %d",
                          r->operation, g->name, g->size);
    op->peer = g->ranks[rank];
    return 0;
}

/* A number, or [number, is a message]. */
static int pytorch_request(struct pytorch_reader *r, int64_t *request)
{
    const json_t *value = pytorch_input(r, -3);
    int64_t message = 0;
    if (json_is_array(value)) {
        const json_t *second = json_array_get(value, 1);
        if (!trace_json_int(second, &message))
            message = json_is_true(second);
        value = json_array_get(value, 0);
    }
    if (!trace_json_int(value, request) || *request < 0 || *request > INT64_MAX / 2 - 1)
        return trace_fail(r->t, r->id, "%s: its request is no number", r->operation);
    *request = 2 * *request + (message != 0);
    return 0;
}

static int pytorch_start(struct pytorch_reader *r, int64_t request, size_t index)
{
    void *grown = r->requests;
    if (trace_grow(r->t, &grown, &r->requests_room, r->nrequests + 1, sizeof *r->requests))
        return -1;
    r->requests = grown;
    r->requests[r->nrequests++] = (struct pytorch_request){request, index};
    return 0;
}

static int pytorch_wait(struct pytorch_reader *r, int64_t request)
{
    for (size_t i = r->nrequests; i > 0; i--)
        if (r->requests[i - 1].request == request) {
            struct op *op = trace_add(r->t, r->id);
            if (!op)
                return -1;
            op->kind = TRACE_WAIT;
            op->blocking = true;
            op->target = r->requests[i - 1].op;
            return 0;
        }
    r->t->old_waits++;
    return 0;
}

static int pytorch_operation(struct pytorch_reader *r)
{
    int64_t request;
    char copy[PYTORCH_OPERATION_MAX];
    size_t at = 0;
    while (at < json_array_size(r->inputs) && !json_is_string(json_array_get(r->inputs, at)))
        at++;
    r->at = (int)at;
    if (!trace_json_text(json_array_get(r->inputs, at), copy, sizeof copy) || at < 3)
        return trace_fail(r->t, r->id, "record_param_comms: its inputs have no operation");
    snprintf(r->operation, sizeof r->operation, "%s", copy);
    if (strcmp(copy, "init") == 0)
        return 0; /* of a group: makes connections, moves no data */
    const struct pytorch_operation *known = pytorch_find(copy);
    if (!known)
        return trace_fail(r->t, r->id, "%s cannot be replayed", copy);
    if (pytorch_request(r, &request))
        return -1;
    if (known->kind == TRACE_WAIT)
        return pytorch_wait(r, request);
    struct op *op = trace_add(r->t, r->id);
    if (!op)
        return -1;
    op->kind = known->kind;
    op->blocking = known->kind == COLLRUN_BARRIER;
    if (pytorch_group(r, op) || pytorch_peer(r, op) || pytorch_counts(r, known->count, op))
        return -1;
    return pytorch_start(r, request, r->t->nops - 1);
}

/* ---- nodes ---- */

static bool pytorch_lists_groups(const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "name"));
    return name && strcmp(name, "## process_group:init ##") == 0;
}

static int pytorch_node(struct pytorch_reader *r, const json_t *node, int64_t id)
{
    r->id = (uint64_t)id;
    const json_t *inputs = json_object_get(node, "inputs"),
                 *outputs = json_object_get(node, "outputs");
    bool values = json_is_object(inputs);
    r->inputs = values ? json_object_get(inputs, "values") : inputs;
    r->types = values ? json_object_get(inputs, "types") : json_object_get(node, "input_types");
    r->outputs = values ? json_object_get(outputs, "values") : outputs;
    if (!json_is_array(r->inputs))
        return trace_fail(r->t, r->id, "the node has no list of inputs");
    if (pytorch_lists_groups(node))
        return pytorch_groups(r);
    size_t before = r->t->nops;
    int rc = pytorch_operation(r);
    return rc ? rc : trace_add_call(r->t, r->t->nops > before ? before : TRACE_NO_OP);
}

static int pytorch_schema(struct pytorch_reader *r, const char *schema)
{
    r->has_schema = schema != NULL;
    if (!schema)
        return 0;
    if (strncmp(schema, "1.0.", 4) != 0 && strncmp(schema, "1.1.", 4) != 0)
        return trace_fail(r->t, TRACE_FILE, "schema %.60s; 1.0 and 1.1 can be replayed", schema);
    return 0;
}

static int pytorch_take(struct trace_json *j)
{
    struct pytorch_reader *r = j->reader;
    int64_t id;
    if (strcmp(j->key, "schema") == 0)
        return pytorch_schema(r, json_string_value(j->value));
    if (strcmp(j->key, "nodes") != 0)
        return 0;
    if (!j->item) {
        r->has_nodes = json_is_array(j->value);
        return 0;
    }
    if (!trace_json_int(json_object_get(j->value, "id"), &id))
        return trace_fail(r->t, TRACE_FILE, "node %zu of the file has no id", j->item);
    const char *name = json_string_value(json_object_get(j->value, "name"));
    if (!pytorch_lists_groups(j->value) && (!name || strcmp(name, "record_param_comms") != 0))
        return 0;
    if (id < 0)
        return trace_fail(r->t, TRACE_FILE, "a node record_param_comms has no id");
    void *grown = r->index;
    if (trace_grow(r->t, &grown, &r->index_room, r->nindex + 1, sizeof *r->index))
        return -1;
    r->index = grown;
    r->index[r->nindex++] = (struct pytorch_index){id, j->at};
    return 0;
}

static int pytorch_by_id(const void *a, const void *b)
{
    const struct pytorch_index *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int pytorch_read(struct trace *t, char *text, size_t len)
{
    struct pytorch_reader r = {.t = t};
    struct trace_json j = {.t = t, .text = text, .len = len, .take = pytorch_take, .reader = &r};
    int rc = trace_json_read(&j);
    if (!rc && (!r.has_schema || !r.has_nodes))
        rc = trace_fail(t, TRACE_FILE, "no execution trace of PyTorch: it has no \"%s\"",
                        r.has_schema ? "nodes" : "schema");
    if (r.nindex)
        qsort(r.index, r.nindex, sizeof *r.index, pytorch_by_id);
    /* Requests refer to nodes of smaller ids: the nodes are read once more, in that order. */
    for (size_t i = 0; !rc && i < r.nindex; i++) {
        json_t *node = trace_json_again(&j, r.index[i].at);
        rc = node ? pytorch_node(&r, node, r.index[i].id) : -1;
        json_decref(node);
    }
    free(r.index);
    free(r.requests);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What all members of a communicator must call alike, in the form in which the runner compares it:
 * the function, root and operator, how many basic elements of which type. What only a pair of ranks
 * can compare, the counts of v-forms, is in a sum that is 0 over all members (record_mark.pairs).
 *
 * - Buffers of no elements have no type: MPI does not look at it then, and programs pass any.
 * - Where a rank both sends and receives the same amount (gather at its root, allgather, alltoall),
 *   the receiving side is compared with the other ranks, and the sending one with it.
 */
#include "taps/mpi/tap.h"

#include "base/call_hash.h"
#include "base/mpi_names.h"
#include "base/names.h"

#include <stdlib.h>

/* ---- buffers ---- */

/* So many elements of a type, as they are compared. */
struct collective_data {
    uint64_t count, bytes;
    uint32_t hash; /* of a sequence of several types; else 0 */
    uint8_t type;
};

static struct collective_data collective_data(const struct tap_call *c, uint8_t count, uint8_t type)
{
    const uint64_t n = tap_count(c, count);
    struct collective_data d = {0};
    if (!n)
        return d;
    const struct tap_type t = tap_type_get(tap_argument(c, type));
    if (!t.units)
        return d;
    d.count = n * t.units;
    d.bytes = n * t.bytes;
    d.type = t.number;
    if (t.number == MPI_TYPE_MIXED)
        d.hash = (uint32_t)call_hash_mix(tap_type_repeat(&t, n), 0) | 1;
    return d;
}

static bool collective_is_alike(const struct collective_data *a, const struct collective_data *b)
{
    return a->count == b->count && a->hash == b->hash &&
           mpi_type_class(a->type) == mpi_type_class(b->type);
}

/* ---- the lists of v-forms ---- */

/* One list of counts. */
struct collective_list {
    size_t *elements; /* basic ones, by rank */
    uint64_t sum;     /* of the weights, each times a power of the base */
    uint64_t own;     /* the weight of this rank's count */
    uint64_t bytes;
};

/* What `count` elements of a type add to a sum of pairs. */
static uint64_t collective_weight(const struct tap_type *t, uint64_t count)
{
    return t->number == MPI_TYPE_MIXED
               ? tap_type_repeat(t, count)
               : t->units * count * (call_hash_mix(mpi_type_class(t->number), 1) | 1);
}

/* An array of counts, with one type or an array of types. */
static void collective_list(const struct tap_call *c, uint8_t counts, uint8_t types, uint64_t base,
                            struct collective_list *list)
{
    const void *at = (const void *)(uintptr_t)tap_argument(c, counts);
    uint64_t power = 1;
    for (uint32_t i = 0; i < c->comm->size; i++, power *= base) {
        const int64_t n = c->function->large ? ((const int64_t *)at)[i] : ((const int *)at)[i];
        list->elements[i] = 0;
        if (n <= 0)
            continue;
        const struct tap_type t =
            tap_type_get(c->function->at.types ? tap_handle_at(tap_argument(c, types), i)
                                               : tap_argument(c, types));
        const uint64_t weight = collective_weight(&t, (uint64_t)n);
        list->elements[i] = (size_t)n * t.units;
        list->bytes += (uint64_t)n * t.bytes;
        list->sum += weight * power;
        if (i == c->comm->rank)
            list->own = weight;
    }
}

static uint64_t collective_own(const struct tap_call *c, uint8_t count, uint8_t type,
                               uint64_t *elements)
{
    const uint64_t n = tap_count(c, count);
    const struct tap_type t = n ? tap_type_get(tap_argument(c, type)) : (struct tap_type){0};
    *elements = n * t.units;
    return n ? collective_weight(&t, n) : 0;
}

/* Room for two lists, which the thread keeps. NULL: no memory. */
static size_t *collective_room(uint32_t size)
{
    static _Thread_local struct {
        size_t *lists;
        uint32_t size;
    } room __attribute__((tls_model("initial-exec")));
    if (room.size < size) {
        size_t *lists = realloc(room.lists, 2 * (size_t)size * sizeof *lists);
        if (!lists)
            return NULL;
        room.lists = lists;
        room.size = size;
    }
    return room.lists;
}

/* ---- a call ---- */

struct collective_sign {
    struct record_call r;
    uint64_t what; /* r.what without the type: a word that is loaded as it was stored */
    uint8_t type;
    uint64_t alike, pairs; /* alike: beside r.what */
    uint64_t bytes;
};

static void collective_set(struct collective_sign *s, const struct collective_data *d)
{
    s->r.count = d->count;
    s->type = d->type;
    s->r.tag = d->hash;
    s->bytes = d->bytes;
    s->alike = call_hash_mix(d->count, (uint64_t)mpi_type_class(d->type) << 32 | d->hash);
}

/* gather, scatter, allgather, alltoall */
static void collective_two(const struct tap_call *c, bool root, struct collective_sign *s)
{
    const struct tap_arguments *at = &c->function->at;
    const unsigned kind = c->function->kind;
    const bool scatter = kind == COLLRUN_SCATTER;
    const bool sends = scatter ? root : true, receives = kind == COLLRUN_GATHER ? root : true;
    const uint8_t buffer = scatter ? at->recvbuf : at->sendbuf;
    const bool in_place = (root || !at->root) && tap_argument(c, buffer) == tap_library.in_place;
    struct collective_data send = {0}, recv = {0};
    if (sends && !(in_place && !scatter))
        send = collective_data(c, at->sendcount, at->sendtype);
    if (receives && !(in_place && scatter))
        recv = collective_data(c, at->recvcount, at->recvtype);
    /* The side that the other ranks see. */
    const bool shows_recv = scatter ? !root : receives;
    collective_set(s, shows_recv ? &recv : &send);
    if (sends && receives && !in_place && !collective_is_alike(&send, &recv))
        s->pairs = 1;
}

/* The part that this rank sends or receives, by its own count. Returns its weight. */
static uint64_t collective_part(const struct tap_call *c, bool sends, struct collective_sign *s)
{
    const struct tap_arguments *at = &c->function->at;
    return collective_own(c, sends ? at->sendcount : at->recvcount,
                          sends ? at->sendtype : at->recvtype, &s->r.count);
}

/* gatherv and scatterv: the root has the list, and each rank its part. */
static void collective_rooted_list(const struct tap_call *c, bool root, struct collective_sign *s,
                                   struct collective_list *list)
{
    const struct tap_arguments *at = &c->function->at;
    const bool gathers = c->function->kind == COLLRUN_GATHERV;
    const uint64_t base = gathers ? CALL_HASH_RECEIVED : CALL_HASH_SENT;
    const uint8_t buffer = gathers ? at->sendbuf : at->recvbuf;
    uint64_t own;
    if (root)
        collective_list(c, gathers ? at->recvcount : at->sendcount,
                        gathers ? at->recvtype : at->sendtype, base, list);
    if (root && tap_argument(c, buffer) == tap_library.in_place) {
        own = list->own;
        s->r.count = list->elements[c->comm->rank];
    } else {
        own = collective_part(c, gathers, s);
    }
    s->pairs = own * call_hash_power(base, c->comm->rank) - list->sum;
}

static void collective_vector(const struct tap_call *c, bool root, struct collective_sign *s,
                              struct record_counts *counts)
{
    const struct tap_arguments *at = &c->function->at;
    const uint32_t n = c->comm->size, me = c->comm->rank;
    const bool in_place = at->sendbuf && tap_argument(c, at->sendbuf) == tap_library.in_place;
    struct collective_list sent = {.elements = collective_room(n)}, expected = sent;
    if (!sent.elements)
        return;
    expected.elements += n;
    *counts = (struct record_counts){.sent = sent.elements, .expected = expected.elements};
    switch ((unsigned)c->function->kind) {
    case COLLRUN_ALLTOALLV: /* in place, a rank sends as much to each as it gets from that one */
        collective_list(c, at->recvcount, at->recvtype, CALL_HASH_RECEIVED, &expected);
        collective_list(c, in_place ? at->recvcount : at->sendcount,
                        in_place ? at->recvtype : at->sendtype, CALL_HASH_SENT, &sent);
        s->pairs = sent.sum * call_hash_power(CALL_HASH_RECEIVED, me) -
                   expected.sum * call_hash_power(CALL_HASH_SENT, me);
        for (uint32_t i = 0; i < n; i++)
            s->r.count += sent.elements[i];
        counts->nsent = counts->nexpected = n;
        break;
    case COLLRUN_SCATTERV:
        collective_rooted_list(c, root, s, &sent);
        counts->nsent = root ? n : 0;
        break;
    case COLLRUN_GATHERV:
        collective_rooted_list(c, root, s, &expected);
        counts->nexpected = root ? n : 0;
        break;
    default: /* allgatherv, reduce_scatter: all give the same list */
        collective_list(c, at->recvcount, at->recvtype, CALL_HASH_RECEIVED, &expected);
        s->alike = expected.sum;
        s->r.count = expected.elements[me];
        if (at->sendbuf && !in_place)
            s->pairs = collective_part(c, true, s) - expected.own;
        counts->nexpected = n;
    }
    s->bytes = sent.bytes + expected.bytes;
}

/* What the call is, without its number. */
static void collective_describe(struct tap_call *c, struct collective_sign *s,
                                struct record_counts *counts)
{
    const struct tap_arguments *at = &c->function->at;
    const int root = at->root ? tap_int(c, at->root) : -1;
    const unsigned kind = c->function->kind;
    *s = (struct collective_sign){.r = {.site = c->at.site}};
    s->what = (uint32_t)root | (uint64_t)c->function->number << RECORD_WHAT_KIND;
    if (collrun_kind_reduces((enum collrun_kind)kind))
        s->what |= (uint64_t)tap_library_op(tap_handle(tap_argument(c, at->op))) << RECORD_WHAT_OP;
    if (kind >= COLLRUN_KIND_COUNT || kind == COLLRUN_BARRIER)
        s->r.count = kind == RECORD_FORM;
    else if (collrun_kind_is_vector((enum collrun_kind)kind))
        collective_vector(c, root == (int)c->comm->rank, s, counts);
    else if (at->count) {
        const struct collective_data d = collective_data(c, at->count, at->type);
        collective_set(s, &d);
    } else
        collective_two(c, root == (int)c->comm->rank, s);
}

void tap_collective_begin(struct tap_call *c)
{
    struct record_queue *q = &c->comm->collectives;
    struct record_counts counts = {0};
    struct collective_sign s;
    struct tap_request *r = &c->request;
    const unsigned kind = c->function->kind;
    collective_describe(c, &s, &counts);
    const uint64_t number = ++c->comm->number;
    s.r.what = s.what | (uint64_t)s.type << RECORD_WHAT_DTYPE;
    if (collrun_kind_is_vector((enum collrun_kind)kind))
        s.r.tag = record_queue_keep_counts(q, &counts);
    q->signature = call_hash_mix(q->signature + s.what, s.alike);
    q->pairs += s.pairs * call_hash_factor(number);
    const uint64_t index = tap_reserve(c->writer, q);
    c->at.since = record_ticks(q->head);
    record_queue_write(q, index, &s.r, number, RECORD_STARTED, c->at.since);
    record_queue_mark(q, number, c->at.since);
    record_queue_enter(q, &s.r, number, s.bytes, c->at.since);
    *r = (struct tap_request){.comm = c->comm,
                              .function = c->function->number,
                              .nparts = 1,
                              .entries = {index, RECORD_QUEUE_NONE},
                              .number = number};
    const int root = c->function->at.root ? tap_int(c, c->function->at.root) : -1;
    const bool has_root = root >= 0 && (uint32_t)root < c->comm->size;
    r->parts[0] =
        (struct record_part){.group = q->group,
                             .peer = has_root ? (int32_t)c->comm->world[root] : RECORD_ANY_RANK,
                             .tag = s.r.tag,
                             .count = s.r.count,
                             .kind = (uint8_t)kind,
                             .flags = (uint8_t)(c->function->number << MPI_FUNCTION_FLAG),
                             .dtype = s.type,
                             .op = (uint8_t)(s.what >> RECORD_WHAT_OP)};
}

void tap_collective_end(const struct tap_request *r, enum record_state state)
{
    const struct record_queue *q = &r->comm->collectives;
    record_queue_leave(q, r->number);
    record_queue_end(q, r->entries[0], state, record_ticks_if_timed(q->head));
}

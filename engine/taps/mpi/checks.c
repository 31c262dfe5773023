/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments that the standard forbids, looked at before the library is called: it may crash, or end
 * the program with a number.
 *
 * - The mistake is stored as the failure of the rank (record_head.failure) before the call. If the
 *   rank ends in the call or soon after it, the failure is why.
 * - A library that accepts the call decides, and the mistake is dropped. `certain` are mistakes
 *   that libraries do not look for, such as buffers that overlap: they become warnings.
 * - Only arguments that count are looked at: those of the receiver at the root, types of at least
 *   one element, the other buffer where one is MPI_IN_PLACE.
 */
#include "taps/mpi/tap.h"

#include "base/mpi_names.h"
#include "base/names.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int check_tag_max = INT_MAX;

void tap_check_start(void)
{
    int (*get)(word, word, void *, int *);
    int *max = NULL, flag = 0;
    if (tap_library_get("PMPI_Comm_get_attr", &get) &&
        get(tap_library.comm_world, (word)tap_library.tag_ub, &max, &flag) == 0 && flag)
        check_tag_max = *max;
}

/* Returns true. */
static bool check_say(struct tap_call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool check_say(struct tap_call *c, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    c->mistaken = true;
    vsnprintf(c->mistake, sizeof c->mistake, format, list);
    va_end(list);
    return true;
}

/* ---- handles ---- */

/* MPICH's handles say in six bits what they are; those of the others are addresses. */
enum { MPICH_COMM = 1, MPICH_TYPE = 3, MPICH_OP = 6 };

static bool check_is_handle(word handle, unsigned mpich_kind)
{
    return tap_library.abi == TAP_MPICH
               ? (uint32_t)handle >> 30 && ((uint32_t)handle >> 26 & 15) == mpich_kind
               : handle != 0;
}

/* `what`: "communicator"; `null`: "MPI_COMM_NULL", whose handle is `of_null`. */
static bool check_value(struct tap_call *c, word handle, unsigned mpich_kind, word of_null,
                        const char *what, const char *null)
{
    if (handle == of_null)
        return check_say(c, "the %s is %s", what, null);
    return !check_is_handle(handle, mpich_kind) &&
           check_say(c, "the %s is not valid (0x%llx)", what, (unsigned long long)handle);
}

static bool check_comm_handle(struct tap_call *c, word comm)
{
    return check_value(c, comm, MPICH_COMM, tap_library.comm_null, "communicator",
                       "MPI_COMM_NULL") ||
           (tap_object_state(TAP_COMM, comm) == TAP_OBJECT_FREED &&
            check_say(c, "the communicator was freed"));
}

static bool check_op_handle(struct tap_call *c, word op)
{
    return check_value(c, op, MPICH_OP, tap_library.op_null, "operator", "MPI_OP_NULL") ||
           (tap_object_state(TAP_OP, op) == TAP_OBJECT_FREED &&
            check_say(c, "the operator was freed"));
}

static bool check_comm(struct tap_call *c)
{
    const uint8_t at = c->function->at.comm;
    return at && !c->comm && check_comm_handle(c, tap_handle(tap_argument(c, at)));
}

/* A predefined type is neither made nor freed by the program. */
static bool check_is_predefined(word type)
{
    const struct tap_type t = tap_type_get(type);
    return t.state == TAP_OBJECT_UNKNOWN && t.units == 1;
}

static bool check_type(struct tap_call *c, word type, bool committed)
{
    if (check_value(c, type, MPICH_TYPE, tap_library.type_null, "datatype", "MPI_DATATYPE_NULL"))
        return true;
    const uint8_t state = tap_type_get(type).state;
    if (state == TAP_OBJECT_FREED)
        return check_say(c, "the datatype was freed");
    return committed && state == TAP_OBJECT_MADE &&
           check_say(c, "the datatype was not committed (MPI_Type_commit)");
}

/* ---- buffers ---- */

static int64_t check_count_at(const struct tap_call *c, uint8_t at)
{
    return c->function->large ? (int64_t)tap_argument(c, at) : tap_int(c, at);
}

/* A buffer, how many elements, and their type: which arguments these are. */
struct check_data {
    uint8_t buffer, count, type;
};

static bool check_data(struct tap_call *c, const struct check_data *d)
{
    const int64_t count = check_count_at(c, d->count);
    if (count < 0)
        return check_say(c, "the count is negative (%lld)", (long long)count);
    if (!count)
        return false;
    const word type = tap_handle(tap_argument(c, d->type)), buffer = tap_argument(c, d->buffer);
    if (check_type(c, type, true))
        return true;
    /* NULL is MPI_BOTTOM, which types of the program may start from. */
    return !buffer && check_is_predefined(type) &&
           check_say(c, "the buffer is NULL, with a count of %lld", (long long)count);
}

/* One list of counts, with a type or a list of types. */
static bool check_list(struct tap_call *c, uint8_t counts, uint8_t types)
{
    const bool several = c->function->at.types;
    const void *at = (const void *)(uintptr_t)tap_argument(c, counts);
    if (!at || (several && !tap_argument(c, types))) {
        c->wild = true;
        return check_say(c, "the list of %s is NULL", at ? "datatypes" : "counts");
    }
    for (uint32_t i = 0; i < c->comm->size; i++) {
        const int64_t n = c->function->large ? ((const int64_t *)at)[i] : ((const int *)at)[i];
        if (n < 0)
            return check_say(c, "count %u of the list is negative (%lld)", i, (long long)n);
        if (n && check_type(c,
                            several ? tap_handle_at(tap_argument(c, types), i)
                                    : tap_handle(tap_argument(c, types)),
                            true))
            return true;
    }
    return false;
}

/* Predefined types only: others may describe different bytes from one address. */
static bool check_alias(struct tap_call *c, const struct check_data *a, const struct check_data *b)
{
    const word buffer = tap_argument(c, a->buffer);
    if (!buffer || buffer == tap_library.in_place || buffer != tap_argument(c, b->buffer) ||
        check_count_at(c, a->count) <= 0 || check_count_at(c, b->count) <= 0 ||
        !check_is_predefined(tap_handle(tap_argument(c, a->type))) ||
        !check_is_predefined(tap_handle(tap_argument(c, b->type))))
        return false;
    c->certain = true;
    return check_say(c, "the buffers to send and to receive are the same");
}

/* ---- collectives ---- */

static bool check_root(struct tap_call *c)
{
    const int root = tap_int(c, c->function->at.root);
    return (root < 0 || (uint32_t)root >= c->comm->size) &&
           check_say(c, "the root is %d, and the communicator has the ranks 0 to %u", root,
                     c->comm->size - 1);
}

static bool check_op(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const word op = tap_handle(tap_argument(c, at->op));
    const uint8_t number = tap_library_op(op);
    if (number == OP_USER)
        return check_op_handle(c, op);
    if (at->count && !tap_count(c, at->count))
        return false;
    const struct tap_type type = tap_type_get(tap_argument(c, at->type ? at->type : at->recvtype));
    if (type.state != TAP_OBJECT_UNKNOWN)
        return check_say(c, "%s takes no datatype of the program", mpi_op_name(number));
    return !mpi_op_takes(number, type.number) &&
           check_say(c, "%s does not take %s", mpi_op_name(number), mpi_type_name(type.number));
}

/* Bcast, and what reduces with one count. */
static bool check_one_count(struct tap_call *c, bool root)
{
    const struct tap_arguments *at = &c->function->at;
    const bool reduces = at->op != 0, all = !at->root || root;
    const struct check_data from = {1, at->count, at->type}, to = {2, at->count, at->type};
    const bool in_place = reduces && tap_argument(c, 1) == tap_library.in_place;
    return (!in_place && check_data(c, &from)) ||
           (reduces && all && (check_data(c, &to) || check_alias(c, &from, &to)));
}

/* Gather, scatter, allgather, alltoall: the root of a rooted one has both sides. */
static bool check_two_counts(struct tap_call *c, bool root)
{
    const struct tap_arguments *at = &c->function->at;
    const bool scatter = c->function->kind == COLLRUN_SCATTER, all = !at->root || root;
    const struct check_data from = {1, at->sendcount, at->sendtype},
                            to = {4, at->recvcount, at->recvtype};
    const bool in_place = all && tap_argument(c, scatter ? 4 : 1) == tap_library.in_place;
    const bool sends = scatter ? root : !in_place, receives = scatter ? !in_place : all;
    return (sends && check_data(c, &from)) || (receives && check_data(c, &to)) ||
           (sends && receives && check_alias(c, &from, &to));
}

static bool check_vector(struct tap_call *c, bool root)
{
    const struct tap_arguments *at = &c->function->at;
    const struct check_data from = {1, at->sendcount, at->sendtype},
                            to = {5, at->recvcount, at->recvtype};
    const bool in_place = at->sendbuf && tap_argument(c, at->sendbuf) == tap_library.in_place;
    switch ((unsigned)c->function->kind) {
    case COLLRUN_ALLTOALLV:
        return (!in_place && check_list(c, at->sendcount, at->sendtype)) ||
               check_list(c, at->recvcount, at->recvtype);
    case COLLRUN_SCATTERV:
        return (root && check_list(c, at->sendcount, at->sendtype)) ||
               (!(root && tap_argument(c, to.buffer) == tap_library.in_place) &&
                check_data(c, &to));
    case COLLRUN_GATHERV:
        return (!(root && in_place) && check_data(c, &from)) ||
               (root && check_list(c, at->recvcount, at->recvtype));
    default: /* allgatherv, reduce_scatter */
        return (at->sendbuf && !in_place && check_data(c, &from)) ||
               check_list(c, at->recvcount, at->recvtype);
    }
}

static bool check_collective(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const unsigned kind = c->function->kind;
    if (!c->comm || c->function->shape == TAP_FINALIZE || (at->root && check_root(c)))
        return c->mistaken;
    const bool root = at->root && tap_int(c, at->root) == (int)c->comm->rank;
    if (kind >= COLLRUN_KIND_COUNT || kind == COLLRUN_BARRIER)
        return false;
    if (collrun_kind_is_vector((enum collrun_kind)kind) ? check_vector(c, root)
        : at->count                                     ? check_one_count(c, root)
                                                        : check_two_counts(c, root))
        return true;
    return at->op && check_op(c);
}

/* ---- messages and requests ---- */

/* `peer` and `tag`: which arguments; `what`: "destination". */
static bool check_peer(struct tap_call *c, uint8_t peer_at, uint8_t tag_at, bool receives)
{
    const int peer = tap_int(c, peer_at), tag = tap_int(c, tag_at);
    const bool special =
        peer == tap_library.proc_null || (receives && peer == tap_library.any_source);
    if (!special && (peer < 0 || (uint32_t)peer >= c->comm->size))
        return check_say(c, "the %s is %d, and the communicator has the ranks 0 to %u",
                         receives ? "source" : "destination", peer, c->comm->size - 1);
    if (receives && tag == tap_library.any_tag)
        return false;
    return (tag < 0 || tag > check_tag_max) &&
           check_say(c, tag < 0 ? "the tag is negative (%d)" : "the tag %d exceeds MPI_TAG_UB",
                     tag);
}

static bool check_message(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const bool receives = c->function->kind != COLLRUN_SEND;
    const bool two = c->function->shape == TAP_SENDRECV, replace = two && at->recvcount == 2;
    const struct check_data first = {1, at->count, at->type},
                            second = {replace ? 1 : 6, at->recvcount, at->recvtype};
    if (!c->comm)
        return false;
    if (check_peer(c, at->peer, at->tag, receives) ||
        (two && check_peer(c, at->source, at->recvtag, true)))
        return true;
    if (tap_int(c, at->peer) != tap_library.proc_null && at->count && check_data(c, &first))
        return true;
    if (!two || replace || tap_int(c, at->source) == tap_library.proc_null)
        return false;
    return check_data(c, &second) ||
           (tap_int(c, at->peer) != tap_library.proc_null && check_alias(c, &first, &second));
}

static bool check_requests(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const int n = at->n ? tap_int(c, at->n) : 1;
    if (n < 0)
        return check_say(c, "the number of requests is negative (%d)", n);
    for (int i = 0; i < n && c->function->shape != TAP_WAIT && c->function->shape != TAP_TEST;
         i++) {
        const word handle = tap_handle_at(tap_argument(c, at->requests), (uint32_t)i);
        struct tap_request r;
        if (handle == tap_library.request_null)
            return check_say(c, "the request is MPI_REQUEST_NULL");
        if (c->function->shape != TAP_START || !tap_request_get(handle, &r))
            continue;
        if (!r.persistent)
            return check_say(c, "the request is not persistent");
        if (r.active)
            return check_say(c, "the request is active already");
    }
    return false;
}

/* ---- pointers ---- */

/* Where the call stores something, or finds requests. */
static bool check_pointers(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const struct {
        uint8_t at;
        const char *name;
    } rows[] = {{at->request, "request"}, {at->flag, "flag"},
                {at->index, "index"},     {at->outcount, "outcount"},
                {at->message, "message"}, {at->newcomm, "communicator"},
                {at->object, "handle"},   {at->requests, "list of requests"}};
    const bool none = at->n && at->requests && tap_int(c, at->n) <= 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].at || tap_argument(c, rows[i].at) || (rows[i].at == at->requests && none))
            continue;
        c->wild = true;
        return check_say(c, "the pointer to the %s is NULL", rows[i].name);
    }
    if (!at->status || tap_argument(c, at->status) || !tap_library.status_ignore || none)
        return false;
    c->wild = true;
    return check_say(c, "the status is NULL, and not MPI_STATUS_IGNORE");
}

/* ---- objects ---- */

static bool check_make_type(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    if (at->count && check_count_at(c, at->count) < 0)
        return check_say(c, "the count is negative (%lld)",
                         (long long)check_count_at(c, at->count));
    if (at->length && check_count_at(c, at->length) < 0)
        return check_say(c, "the length of the blocks is negative (%lld)",
                         (long long)check_count_at(c, at->length));
    return at->type && check_type(c, tap_handle(tap_argument(c, at->type)), false);
}

static bool check_free(struct tap_call *c)
{
    const uint8_t object = c->function->at.object, comm = c->function->at.newcomm;
    const word handle = tap_handle_at(tap_argument(c, object ? object : comm), 0);
    switch ((enum tap_shape)c->function->shape) {
    case TAP_FREE_COMM:
        return check_comm_handle(c, handle);
    case TAP_FREE_OP:
        return check_op_handle(c, handle);
    case TAP_COMMIT_TYPE:
    case TAP_FREE_TYPE:
        return check_type(c, handle, false);
    default:
        return false;
    }
}

/* ---- calls that are known to be right ---- */

enum { CHECK_KNOWN = 16, CHECK_ARGUMENTS = 12 };

/* A call that a thread has made from one place in its source. A program repeats it with the same
 * arguments, which are right as long as no handle has changed. */
struct check_known {
    const struct tap_function *function;
    const struct tap_comm *comm;
    uint64_t comm_id;
    uint32_t age; /* tap_type_age() */
    word args[CHECK_ARGUMENTS];
};

static struct check_known *check_place(const struct tap_call *c)
{
    static _Thread_local struct check_known known[CHECK_KNOWN]
        __attribute__((tls_model("initial-exec")));
    return &known[(c->at.site ^ c->at.site >> 4) % CHECK_KNOWN];
}

/* Calls whose mistakes depend on nothing but their arguments: not on lists in memory. */
static bool check_can_be_known(const struct tap_call *c)
{
    const unsigned shape = c->function->shape, kind = c->function->kind;
    return c->comm &&
           (shape == TAP_SEND || shape == TAP_RECV ||
            (shape == TAP_COLLECTIVE && !collrun_kind_is_vector((enum collrun_kind)kind)));
}

static bool check_is_known(const struct tap_call *c)
{
    const struct check_known *k = check_place(c);
    if (k->function != c->function || k->comm != c->comm || !check_can_be_known(c) ||
        k->comm_id != c->comm->id || k->age != tap_type_age())
        return false;
    for (uint32_t i = 0; i < c->function->nargs; i++)
        if (k->args[i] != c->args[i])
            return false;
    return true;
}

static void check_keep(const struct tap_call *c)
{
    struct check_known *k = check_place(c);
    if (!check_can_be_known(c))
        return;
    *k = (struct check_known){c->function, c->comm, c->comm->id, tap_type_age(), {0}};
    for (uint32_t i = 0; i < c->function->nargs; i++)
        k->args[i] = c->args[i];
}

/* ---- a call ---- */

static bool check_shape(struct tap_call *c)
{
    switch ((enum tap_shape)c->function->shape) {
    case TAP_COLLECTIVE:
        return check_collective(c);
    case TAP_SEND:
    case TAP_RECV:
    case TAP_INIT_MESSAGE:
    case TAP_SENDRECV:
    case TAP_PROBE:
    case TAP_IMPROBE:
        return check_message(c);
    case TAP_WAIT:
    case TAP_TEST:
    case TAP_START:
    case TAP_CANCEL:
    case TAP_FREE_REQUEST:
        return check_requests(c);
    case TAP_MAKE_TYPE:
        return check_make_type(c);
    case TAP_FREE_COMM:
    case TAP_COMMIT_TYPE:
    case TAP_FREE_TYPE:
    case TAP_FREE_OP:
        return check_free(c);
    default:
        return false;
    }
}

void tap_check(struct tap_call *c)
{
    c->mistaken = c->certain = c->wild = false;
    if (check_is_known(c))
        return;
    /* The first mistake counts. */
    if (!check_pointers(c) && !check_comm(c) && !check_shape(c))
        check_keep(c);
}

void tap_check_finalized(struct tap_call *c)
{
    c->certain = false;
    c->wild = check_say(c, "MPI_Finalize was called before");
}

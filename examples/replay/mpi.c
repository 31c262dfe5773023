/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads MPI calls as liballprof writes them, a line for each call: its name, its begin in
 * microseconds, its arguments in the order of MPI's C interface, and its end, separated by colons:
 *
 *     MPI_Send:1237666047238935.0:11251872:4500:11,8,8:1:3000:0,0,4:1237666047238950.0
 *
 * - A type is its number and its size, a communicator its number, the rank, and its size.
 * - Elements of 1, 2, 4 and 8 bytes become uint8, int16, int32 and float64; other sizes become
 *   bytes, which a reduction cannot have. Every reduction is a sum: the file has only numbers of
 *   operators, which differ between MPI libraries.
 * - A communicator of all ranks in the order of the world is a group; the file does not say which
 *   ranks a smaller one has, so its calls are refused.
 * - The time between two calls is computation.
 */
#include "format.h"

#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MPI_FIELDS_MAX = 16, MPI_NAME_MAX = 32 };

struct mpi_call {
    const char *name;
    int kind;
    bool blocking;
    /* The fields between the two times. c: count, d: type, r: root, p: peer, t: tag,
     * m: communicator, q: request; others are not needed. NULL: any. */
    const char *fields;
};
enum { MPI_IGNORED = -1 };
static const struct mpi_call mpi_calls[] = {
    {"MPI_Send", COLLRUN_SEND, true, ".cdptm"},
    {"MPI_Ssend", COLLRUN_SEND, true, ".cdptm"},
    {"MPI_Recv", COLLRUN_RECV, true, ".cdptm."},
    {"MPI_Isend", COLLRUN_SEND, false, ".cdptmq"},
    {"MPI_Irecv", COLLRUN_RECV, false, ".cdptmq"},
    {"MPI_Wait", TRACE_WAIT, true, "q."},
    {"MPI_Barrier", COLLRUN_BARRIER, true, "m"},
    {"MPI_Bcast", COLLRUN_BROADCAST, true, ".cdrm"},
    {"MPI_Reduce", COLLRUN_REDUCE, true, "..cdorm"},
    {"MPI_Allreduce", COLLRUN_ALLREDUCE, true, "..cdom"},
    {"MPI_Scan", COLLRUN_SCAN, true, "..cdom"},
    {"MPI_Exscan", COLLRUN_EXSCAN, true, "..cdom"},
    {"MPI_Allgather", COLLRUN_ALLGATHER, true, ".cd...m"},
    {"MPI_Alltoall", COLLRUN_ALLTOALL, true, ".cd...m"},
    {"MPI_Gather", COLLRUN_GATHER, true, ".cd...rm"},
    {"MPI_Scatter", COLLRUN_SCATTER, true, "....cdrm"},
    {"MPI_Comm_size", MPI_IGNORED, true, "m."},
    {"MPI_Comm_rank", MPI_IGNORED, true, "m."},
    {"MPI_Init", MPI_IGNORED, true, NULL},
    {"MPI_Init_thread", MPI_IGNORED, true, NULL},
    {"MPI_Finalize", MPI_IGNORED, true, NULL},
    {"MPI_Wtime", MPI_IGNORED, true, NULL},
};

struct mpi_request {
    int64_t handle;
    size_t op;
};

struct mpi_reader {
    struct trace *t;
    uint64_t line;
    char *fields[MPI_FIELDS_MAX]; /* in the line, which is cut at its colons */
    int nfields;
    const struct mpi_call *call;
    int64_t request;
    double first_us, last_us; /* the first begin, and the end of the call before; < 0: none */
    struct mpi_request *requests;
    size_t nrequests, requests_room;
};

static int mpi_int(struct mpi_reader *r, const char *field, int64_t *out)
{
    char *end;
    *out = strtoll(field, &end, 10);
    if (end == field || (*end && *end != ','))
        return trace_fail(r->t, r->line, "%s: \"%.40s\" is no number", r->call->name, field);
    return 0;
}

/* The numbers of a field that is a list. */
static int mpi_list(struct mpi_reader *r, const char *field, int64_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        if (mpi_int(r, field, &out[i]))
            return -1;
        const char *comma = strchr(field, ',');
        if (!comma && i + 1 < n)
            return trace_fail(r->t, r->line, "%s: \"%.40s\" has less than %d numbers",
                              r->call->name, field, n);
        field = comma ? comma + 1 : field;
    }
    return 0;
}

static int mpi_count(struct mpi_reader *r, const char *field, struct op *op)
{
    int64_t count = 0;
    if (mpi_int(r, field, &count))
        return -1;
    if (count < 0 || (uint64_t)count > TRACE_BYTES_MAX)
        return trace_fail(r->t, r->line, "%s: a count of %lld", r->call->name, (long long)count);
    op->count = (size_t)count;
    return 0;
}

static int mpi_type(struct mpi_reader *r, const char *field, struct op *op)
{
    int64_t type[2] = {0};
    if (mpi_list(r, field, type, 2))
        return -1;
    int dtype = trace_dtype_of_size(type[1]);
    if (type[1] < 0 || type[1] > 1 << 30)
        return trace_fail(r->t, r->line, "%s: a type of %lld bytes", r->call->name,
                          (long long)type[1]);
    if (dtype < 0 && collrun_kind_reduces((enum collrun_kind)op->kind))
        return trace_fail(r->t, r->line, "%s: a type of %lld bytes in a reduction", r->call->name,
                          (long long)type[1]);
    op->dtype = dtype < 0 ? COLLRUN_UINT8 : (enum collrun_dtype)dtype;
    if (op->count && (uint64_t)type[1] > TRACE_BYTES_MAX / op->count)
        return trace_fail(r->t, r->line, "%s of %zu elements of %lld bytes: more than 1 TiB",
                          r->call->name, op->count, (long long)type[1]);
    if (dtype < 0)
        op->count *= (size_t)type[1];
    return 0;
}

static int mpi_peer(struct mpi_reader *r, const char *field, struct op *op)
{
    int64_t peer = 0;
    if (mpi_int(r, field, &peer))
        return -1;
    if (peer < 0 && op->kind == COLLRUN_RECV)
        return trace_fail(r->t, r->line,
                          "%s from %lld: of a receive from any source, or from "
                          "none, the trace does not say what it received",
                          r->call->name, (long long)peer);
    if (peer < 0 || peer >= TRACE_RANKS_MAX)
        return trace_fail(r->t, r->line, "%s: rank %lld", r->call->name, (long long)peer);
    op->peer = (int)peer;
    return 0;
}

static int mpi_tag(struct mpi_reader *r, const char *field, struct op *op)
{
    int64_t tag = 0;
    if (mpi_int(r, field, &tag))
        return -1;
    if (tag < 0 || tag > INT32_MAX)
        return trace_fail(r->t, r->line, "%s: tag %lld; tags are 0 to %d", r->call->name,
                          (long long)tag, INT32_MAX);
    op->tag = (uint32_t)tag;
    return 0;
}

static int mpi_communicator(struct mpi_reader *r, const char *field, struct op *op)
{
    char name[TRACE_NAME_MAX];
    int64_t comm[3] = {0};
    struct trace *t = r->t;
    if (mpi_list(r, field, comm, 3))
        return -1;
    if (comm[2] < 1 || comm[2] > TRACE_RANKS_MAX || comm[1] < 0 || comm[1] >= comm[2])
        return trace_fail(t, r->line, "%s: rank %lld of a communicator of %lld", r->call->name,
                          (long long)comm[1], (long long)comm[2]);
    if (!t->world_size)
        t->world_size = (int)comm[2];
    if (t->rank < 0)
        t->rank = (int)comm[1];
    if (comm[2] != t->world_size)
        return trace_fail(t, r->line,
                          "%s in communicator %lld of %lld ranks, and %d ranks were "
                          "traced: the file does not say which",
                          r->call->name, (long long)comm[0], (long long)comm[2], t->world_size);
    if (comm[1] != t->rank)
        return trace_fail(t, r->line, "%s by rank %lld; rank %d was expected", r->call->name,
                          (long long)comm[1], t->rank);
    (void)snprintf(name, sizeof name, "%lld", (long long)comm[0]);
    op->group = trace_find_group(t, name);
    if (op->group < 0)
        op->group = trace_add_group(t, name, t->world_size);
    return op->group < 0 ? -1 : 0;
}

static int mpi_field(struct mpi_reader *r, char meaning, const char *field, struct op *op)
{
    switch (meaning) {
    case 'c':
        return mpi_count(r, field, op);
    case 'd':
        return mpi_type(r, field, op);
    case 'p':
    case 'r':
        return mpi_peer(r, field, op);
    case 't':
        return mpi_tag(r, field, op);
    case 'm':
        return mpi_communicator(r, field, op);
    case 'q':
        return mpi_int(r, field, &r->request);
    default:
        return 0;
    }
}

/* ---- requests: the trace has their handles, which MPI uses again ---- */

static struct mpi_request *mpi_find_request(const struct mpi_reader *r)
{
    for (size_t i = r->nrequests; i > 0; i--)
        if (r->requests[i - 1].handle == r->request)
            return &r->requests[i - 1];
    return NULL;
}

static int mpi_request(struct mpi_reader *r, struct op *op)
{
    struct mpi_request *known = mpi_find_request(r);
    size_t index = (size_t)(op - r->t->ops);
    if (op->kind == TRACE_WAIT) {
        if (!known)
            return trace_fail(r->t, r->line, "%s for request %lld, which no call has started",
                              r->call->name, (long long)r->request);
        op->target = known->op;
        *known = r->requests[--r->nrequests];
        return 0;
    }
    if (known)
        return trace_fail(r->t, r->line, "%s starts request %lld, which is in flight",
                          r->call->name, (long long)r->request);
    if (r->nrequests == r->requests_room) {
        size_t room = r->requests_room ? 2 * r->requests_room : 16;
        void *grown = realloc(r->requests, room * sizeof *r->requests);
        if (!grown)
            return trace_fail(r->t, r->line, "out of memory for %zu requests", room);
        r->requests = grown;
        r->requests_room = room;
    }
    r->requests[r->nrequests++] = (struct mpi_request){r->request, index};
    return 0;
}

/* ---- lines ---- */

static int mpi_time(struct mpi_reader *r, const char *field, double *us)
{
    char *end;
    *us = strtod(field, &end);
    if (end == field || *end || !(*us >= 0 && *us < 1e16))
        return trace_fail(r->t, r->line, "%s: \"%.40s\" is no time", r->call->name, field);
    return 0;
}

static int mpi_times(struct mpi_reader *r, struct op *op)
{
    double begin = 0, end = 0;
    if (mpi_time(r, r->fields[1], &begin) || mpi_time(r, r->fields[r->nfields - 1], &end))
        return -1;
    if (end < begin)
        return trace_fail(r->t, r->line, "%s ends before it begins", r->call->name);
    if (begin < r->last_us)
        return trace_fail(r->t, r->line, "%s begins before the call in front of it has ended",
                          r->call->name);
    if (r->first_us < 0)
        r->first_us = begin;
    op->gap_ns = r->last_us < 0 ? 0 : (uint64_t)((begin - r->last_us) * 1e3);
    op->recorded_ns = (uint64_t)((end - begin) * 1e3);
    op->timed = op->blocking;
    r->last_us = end;
    return 0;
}

static int mpi_add(struct mpi_reader *r)
{
    const char *meaning = r->call->fields;
    int rc = 0;
    struct op *op = trace_add(r->t, r->line);
    if (!op)
        return -1;
    op->kind = r->call->kind;
    op->blocking = r->call->blocking;
    if (r->nfields != (int)strlen(meaning) + 3)
        return trace_fail(r->t, r->line, "%s has %d fields and needs %d", r->call->name, r->nfields,
                          (int)strlen(meaning) + 3);
    rc = mpi_times(r, op);
    for (int i = 0; !rc && meaning[i]; i++)
        rc = mpi_field(r, meaning[i], r->fields[i + 2], op);
    if (!rc && strchr(meaning, 'q'))
        rc = mpi_request(r, op);
    if (!rc && op->kind == MPI_IGNORED) { /* its time belongs to the computation before the next */
        r->last_us -= (double)(op->gap_ns + op->recorded_ns) / 1e3;
        r->t->nops--;
    }
    return rc;
}

static int mpi_line(struct mpi_reader *r, char *line)
{
    line[strcspn(line, "\r")] = '\0';
    r->line++;
    if (!line[strspn(line, " \t")] || line[0] == '#')
        return 0;
    r->nfields = 0;
    for (char *field = line; field; r->nfields++) {
        if (r->nfields == MPI_FIELDS_MAX)
            return trace_fail(r->t, r->line, "more than %d fields", MPI_FIELDS_MAX);
        r->fields[r->nfields] = field;
        field = strchr(field, ':');
        if (field)
            *field++ = '\0';
    }
    r->call = NULL;
    for (size_t i = 0; i < sizeof mpi_calls / sizeof *mpi_calls; i++)
        if (strcmp(line, mpi_calls[i].name) == 0)
            r->call = &mpi_calls[i];
    if (!r->call)
        return trace_fail(r->t, r->line, "%.40s cannot be replayed", line);
    return r->call->fields ? mpi_add(r) : 0;
}

int mpi_read(struct trace *t, const char *text, size_t len)
{
    struct mpi_reader r = {.t = t, .first_us = -1, .last_us = -1};
    int rc = 0;
    char *copy = malloc(len + 1);
    if (!copy)
        return trace_fail(t, TRACE_FILE, "out of memory for the file");
    memcpy(copy, text, len + 1);
    if (strlen(copy) != len)
        rc = trace_fail(t, TRACE_FILE, "the file has a byte 0 and is no text");
    for (char *line = copy, *next; !rc && line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        rc = mpi_line(&r, line);
    }
    if (!rc && r.nrequests)
        rc = trace_fail(t, t->ops[r.requests[0].op].place, "no call waits for request %lld",
                        (long long)r.requests[0].handle);
    if (r.last_us > r.first_us)
        t->span_ns = (uint64_t)((r.last_us - r.first_us) * 1e3);
    free(r.requests);
    free(copy);
    return rc;
}

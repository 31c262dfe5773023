/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point: a call is one MPI message, its data behind a head that says what it is. So a
 * receiver can tell a message of another length or type (MISMATCH) and one that an earlier group on
 * the same communicator never received (dropped).
 *
 * collrun's tags are 0 to 2^31 - 1 for workloads and 2^31 for the engine, one more than MPI has:
 * the engine's is 0 here, the others are one higher, and the very last one is refused.
 */
#include "mpi_backend.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_TAG (1u << 31)

struct head {
    uint64_t group, count;
    uint32_t dtype, reserved;
};

struct message {
    bool sends, pending;
    int peer, tag;
    struct head head;
    unsigned char *data; /* receive: where it goes in the end */
    size_t bytes;
    int *source;
    unsigned char *stage; /* owned: head and data */
    size_t stage_len;
    MPI_Request request;
};

struct messages {
    struct operation op;
    bool posted;
    uint32_t n;
    struct message items[];
};

static int post(struct group *group, struct message *m)
{
    bool bulk = m->stage_len > INT_MAX;
    MPI_Datatype type = bulk ? group->library->bulk : MPI_BYTE;
    int count = (int)(bulk ? m->stage_len / BULK : m->stage_len);
    int error =
        m->sends
            ? MPI_Isend(m->stage, count, type, m->peer, m->tag, group->comm->comm, &m->request)
            : MPI_Irecv(m->stage, count, type, m->peer, m->tag, group->comm->comm, &m->request);
    m->pending = error == MPI_SUCCESS;
    return m->pending ? COLLRUN_OK
                      : group_fail_mpi(group, m->sends ? "MPI_Isend" : "MPI_Irecv", error);
}

/* What has arrived. An error of MPI is one of length at most, and the head, which comes first,
 * knows better. */
static int check(struct group *group, struct message *m, int error, const MPI_Status *status)
{
    struct head got;
    int class = MPI_SUCCESS;
    MPI_Error_class(error, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE)
        return group_fail_mpi(group, "MPI_Test", error);
    memcpy(&got, m->stage, sizeof got);
    if (got.group != m->head.group)
        return post(group, m);
    if (got.count != m->head.count || got.dtype != m->head.dtype)
        return group_fail(group, COLLRUN_ERR_MISMATCH,
                          "rank %d sent %llu x %s, this rank expects %llu x %s", status->MPI_SOURCE,
                          (unsigned long long)got.count,
                          group->services->dtype_name((enum collrun_dtype)got.dtype),
                          (unsigned long long)m->head.count,
                          group->services->dtype_name((enum collrun_dtype)m->head.dtype));
    if (m->bytes > 0)
        memcpy(m->data, m->stage + sizeof got, m->bytes);
    if (m->source)
        *m->source = status->MPI_SOURCE;
    return COLLRUN_OK;
}

static int post_all(struct messages *ms)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; i < ms->n && rc == COLLRUN_OK; i++)
        rc = post(ms->op.group, &ms->items[i]);
    ms->posted = true;
    return rc;
}

static int advance(struct operation *op)
{
    struct messages *ms = (struct messages *)op;
    uint32_t left = 0;
    int rc = ms->posted ? COLLRUN_OK : post_all(ms);
    if (rc != COLLRUN_OK)
        return rc;
    for (uint32_t i = 0; i < ms->n; i++) {
        struct message *m = &ms->items[i];
        MPI_Status status;
        int done = 1;
        if (!m->pending)
            continue;
        int error = MPI_Test(&m->request, &done, &status);
        m->pending = error == MPI_SUCCESS && !done;
        if (!m->pending)
            rc = m->sends ? error ? group_fail_mpi(op->group, "MPI_Test", error) : COLLRUN_OK
                          : check(op->group, m, error, &status);
        if (rc != COLLRUN_OK)
            return rc;
        left += m->pending;
    }
    return left ? COLLRUN_AGAIN : COLLRUN_OK;
}

static void release(struct operation *op)
{
    struct messages *ms = (struct messages *)op;
    for (uint32_t i = 0; i < ms->n; i++)
        if (!ms->items[i].pending)
            free(ms->items[i].stage);
    free(ms);
}

static int prepare(struct group *group, const struct collrun_call *call, struct message *m)
{
    const struct collrun_services *s = group->services;
    if (call->tag == ENGINE_TAG - 1)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "tag %u: MPI's tags end at %u", call->tag,
                       call->tag - 1);
    m->sends = call->kind == COLLRUN_SEND;
    m->peer = call->kind == COLLRUN_RECV_ANY ? MPI_ANY_SOURCE : call->peer;
    m->tag = call->tag == ENGINE_TAG ? 0 : (int)call->tag + 1;
    m->head = (struct head){.group = group->id, .count = call->count, .dtype = call->dtype};
    m->bytes = call->count * s->dtype_size(call->dtype);
    m->data = call->recv;
    m->source = call->kind == COLLRUN_RECV_ANY ? call->source : NULL;
    m->stage_len = sizeof m->head + m->bytes;
    if (m->stage_len > INT_MAX)
        m->stage_len = (m->stage_len + BULK - 1) / BULK * BULK;
    m->stage = malloc(m->stage_len);
    if (!m->stage)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for a message of %zu bytes",
                       m->bytes);
    if (m->sends)
        memcpy(m->stage, &m->head, sizeof m->head);
    if (m->sends && m->bytes > 0)
        memcpy(m->stage + sizeof m->head, call->send, m->bytes);
    return COLLRUN_OK;
}

int messages_new(struct group *group, const struct collrun_call *calls, uint32_t ncalls,
                 struct operation **out)
{
    const struct collrun_services *s = group->services;
    struct messages *ms = calloc(1, sizeof *ms + ncalls * sizeof ms->items[0]);
    if (!ms)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", ncalls);
    ms->op = (struct operation){.group = group, .advance = advance, .release = release};
    for (; ms->n < ncalls; ms->n++) {
        int rc = prepare(group, &calls[ms->n], &ms->items[ms->n]);
        if (rc != COLLRUN_OK) {
            release(&ms->op);
            return rc;
        }
    }
    *out = &ms->op;
    return COLLRUN_OK;
}

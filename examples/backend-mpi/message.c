/* SPDX-License-Identifier: Apache-2.0
 *
 * Point-to-point messages: the transport, which moves bytes. collrun matches messages with
 * receives.
 *
 * - A packet announces each message. All packets of a communicator have one tag, so they arrive in
 *   the order of the sends. One receive from any source is posted for them at a time.
 * - Up to EAGER_LEN bytes of data are in the packet. More data is a second MPI message, which MPI
 *   holds back (MPI_Issend) until message_recv posts its receive. Its tag is the sender's id of the
 *   message: MPI matches it with that receive, whatever order the receives have.
 * - A packet that an earlier group on the same communicator never received is dropped.
 * - A failure is the group's. What MPI may still use then is not freed.
 */
#include "mpi_backend.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_PACKET = 0, TAG_DATA = 1 }; /* TAG_DATA + id */

struct message {
    struct collrun_message shared; /* collrun's part */
    struct group *group;
    bool sends, ended;
    struct packet *packet;   /* owned: of a send */
    unsigned char *data;     /* owned: the data that is not in a packet; NULL: none */
    int tag;                 /* of the data */
    MPI_Request requests[2]; /* of packet and data */
    struct message *next;    /* in group->messages */
};

/* ---- inside MPI ---- */

/* Counts in MPI are of type int, so more bytes than INT_MAX move as elements of BULK bytes. */
static size_t message_data_len(const struct message *m)
{
    size_t len = m->shared.len;
    return len <= INT_MAX ? len : (len + BULK - 1) / BULK * BULK;
}

static int message_post_data(struct message *m)
{
    struct group *group = m->group;
    size_t len = message_data_len(m);
    MPI_Datatype type = len > INT_MAX ? group->library->bulk : MPI_BYTE;
    int count = (int)(len > INT_MAX ? len / BULK : len), peer = (int)m->shared.peer;
    MPI_Comm comm = group->comm->comm;
    library_poll(group->library);
    int error = m->sends ? MPI_Issend(m->data, count, type, peer, m->tag, comm, &m->requests[1])
                         : MPI_Irecv(m->data, count, type, peer, m->tag, comm, &m->requests[1]);
    return error == MPI_SUCCESS
               ? COLLRUN_OK
               : group_fail_mpi(group, m->sends ? "MPI_Issend" : "MPI_Irecv", error);
}

static int message_post(void *arg)
{
    struct message *m = arg;
    size_t len = offsetof(struct packet, data) + (m->data ? 0 : m->shared.len);
    library_poll(m->group->library);
    int error = m->sends ? MPI_Isend(m->packet, (int)len, MPI_BYTE, (int)m->shared.peer, TAG_PACKET,
                                     m->group->comm->comm, &m->requests[0])
                         : MPI_SUCCESS;
    if (error != MPI_SUCCESS)
        return group_fail_mpi(m->group, "MPI_Isend", error);
    return m->data ? message_post_data(m) : COLLRUN_OK;
}

/* The receive of the next packet stays posted when the group is closed: the next group on the
 * communicator uses it. */
static int messages_test_packet(struct group *group, bool *arrived)
{
    struct communicator *c = group->comm;
    int error = MPI_SUCCESS, done = 0;
    if (c->request == MPI_REQUEST_NULL)
        error = MPI_Irecv(&c->packet, (int)sizeof c->packet, MPI_BYTE, MPI_ANY_SOURCE, TAG_PACKET,
                          c->comm, &c->request);
    if (error != MPI_SUCCESS)
        return group_fail_mpi(group, "MPI_Irecv", error);
    error = MPI_Test(&c->request, &done, &c->arrived);
    *arrived = done && c->packet.group == group->id;
    return error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "MPI_Test", error);
}

struct round {
    struct group *group;
    bool arrived, ended; /* a packet; messages */
};

/* Progresses collectives, too: they need this rank, which may wait for a message. */
static int messages_test(void *arg)
{
    struct round *round = arg;
    struct group *group = round->group;
    int rc = operations_advance(group);
    if (rc == COLLRUN_OK)
        rc = messages_test_packet(group, &round->arrived);
    for (struct message *m = group->messages; m && rc == COLLRUN_OK; m = m->next) {
        int done = 0, error = MPI_Testall(2, m->requests, &done, MPI_STATUSES_IGNORE);
        m->ended = done;
        round->ended |= m->ended;
        rc = error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "MPI_Testall", error);
    }
    return rc;
}

/* ---- outside of MPI ---- */

/* Begins what MPI has to do for a message. */
static int message_begin(struct message *m)
{
    struct group *group = m->group;
    struct message **end = &group->messages;
    m->ended = false;
    m->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = m;
    return group_enter(group, message_post, m) == COLLRUN_OK ? COLLRUN_OK : group_report(group);
}

static int message_init(struct group *group, struct collrun_message *shared, bool sends)
{
    const struct collrun_services *s = group->services;
    struct message *m = (struct message *)shared;
    size_t inline_len = shared->len <= EAGER_LEN ? shared->len : 0;
    m->group = group;
    m->sends = sends;
    m->requests[0] = m->requests[1] = MPI_REQUEST_NULL;
    m->packet = sends ? malloc(offsetof(struct packet, data) + inline_len) : NULL;
    m->data = shared->len > EAGER_LEN ? malloc(message_data_len(m)) : NULL;
    if ((m->packet || !sends) && (m->data || shared->len <= EAGER_LEN))
        return COLLRUN_OK;
    free(m->packet);
    free(m->data);
    s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for a message of %zu bytes", shared->len);
    return COLLRUN_ERR_NO_MEMORY;
}

static int message_send(void *handle, struct collrun_message *shared)
{
    struct group *group = handle;
    struct message *m = (struct message *)shared;
    int rc = message_init(group, shared, true);
    if (rc != COLLRUN_OK)
        return rc;
    m->tag = TAG_DATA + (int)shared->id;
    m->packet->group = group->id;
    m->packet->envelope = shared->envelope;
    m->packet->tag = m->tag;
    if (shared->len > 0)
        memcpy(m->data ? m->data : m->packet->data, shared->data, shared->len);
    return message_begin(m);
}

static int message_recv(void *handle, struct collrun_message *shared, const void *bytes, size_t len)
{
    struct group *group = handle;
    struct message *m = (struct message *)shared;
    const struct packet *packet = bytes;
    (void)len;
    if (shared->len <= EAGER_LEN) {
        if (shared->len > 0)
            memcpy(shared->data, packet->data, shared->len);
        group->p2p->done(group->p2p->ctx, shared);
        return COLLRUN_OK;
    }
    int rc = message_init(group, shared, false);
    m->tag = packet->tag;
    return rc == COLLRUN_OK ? message_begin(m) : rc;
}

static void message_end(struct message *m)
{
    const struct collrun_p2p *p2p = m->group->p2p;
    if (!m->sends)
        memcpy(m->shared.data, m->data, m->shared.len);
    free(m->packet);
    free(m->data);
    p2p->done(p2p->ctx, &m->shared);
}

static int messages_progress_once(struct group *group, bool *moved)
{
    const struct communicator *c = group->comm;
    struct round round = {.group = group};
    if (group_enter(group, messages_test, &round) != COLLRUN_OK)
        return group_report(group);
    for (struct message **p = &group->messages, *m; round.ended && (m = *p);) {
        if (!m->ended) {
            p = &m->next;
            continue;
        }
        *p = m->next;
        message_end(m);
    }
    *moved = round.arrived || round.ended;
    return round.arrived ? group->p2p->arrived(group->p2p->ctx, (uint32_t)c->arrived.MPI_SOURCE,
                                               &c->packet.envelope, &c->packet, sizeof c->packet)
                         : COLLRUN_OK;
}

static int messages_progress(void *handle, uint64_t wait_ns)
{
    struct group *group = handle;
    uint64_t start = wait_ns > 0 ? now_ns() : 0;
    bool moved = false;
    int rc = messages_progress_once(group, &moved);
    for (unsigned round = 0; rc == COLLRUN_OK && !moved && wait_ns > 0; round++) {
        if (now_ns() - start >= wait_ns)
            break;
        group_idle(group, round);
        rc = messages_progress_once(group, &moved);
    }
    return rc == COLLRUN_OK && moved ? COLLRUN_AGAIN : rc;
}

/* Later collectives of this rank fail, too. The peers are not reached. */
static void messages_fail(void *handle, uint32_t peer, int status, const char *text)
{
    (void)peer;
    group_fail(handle, status, "%s", text);
}

const struct collrun_transport message_transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct message),
    .send = message_send,
    .recv = message_recv,
    .progress = messages_progress,
    .fail = messages_fail,
};

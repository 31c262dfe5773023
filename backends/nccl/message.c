/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages. NCCL's have no tags, know nobody's name but the peer's, and those of one group progress
 * together while those of the next wait; a send that was launched too early keeps everything behind
 * it waiting. So a message is launched only when both of its ends are there. Each rank tells the
 * group's desk (desk.c) what it would send and receive; the desk matches them as MPI does, by peer
 * and tag, or from anyone, in the order in which they came, and tells both ends, all ranks in one
 * order. What it finds at one time is an epoch: everybody concerned launches their part of it as
 * one NCCL group, one epoch after the other. So the smallest epoch that has not ended is on the
 * GPUs of all whom it concerns, is complete there, and ends.
 *
 * The desk's word holds count and type of the other end: a difference is a MISMATCH here, before
 * anything is moved. A message of no elements is over when both ends are there.
 */
#include "group.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_AT_ONCE = 64, NAMED_AT_MOST = 3 };

struct queue {
    struct message *first, **end;
};

struct slot { /* of a message that the desk knows */
    struct message *message;
    uint32_t next_free;
};

struct mail {
    int fd;              /* to the desk */
    struct queue held;   /* not told yet */
    struct queue agreed; /* with the other end, epoch after epoch */
    struct queue aloft;  /* the epoch on the GPUs */
    uint32_t epochs;     /* complete ones in `agreed` */
    uint32_t ntold;      /* what the desk has not answered */
    uint64_t launched;   /* epochs, so far */
    struct mark **done;  /* nports: behind what is aloft; NULL = not involved */
    struct slot *slots;
    uint32_t nslots, first_free; /* nslots: none is free */
    struct desk_post out[READ_AT_ONCE];
    size_t out_len, out_sent; /* bytes */
    struct desk_match in[READ_AT_ONCE];
    size_t in_len;
};

/* ---- queues ---- */

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->end = &q->first;
}

static void push(struct queue *q, struct message *m)
{
    m->next = NULL;
    *q->end = m;
    q->end = &m->next;
}

static struct message *pop(struct queue *q)
{
    struct message *m = q->first;
    q->first = m->next;
    if (!q->first)
        q->end = &q->first;
    m->next = NULL;
    return m;
}

/* ---- ids ---- */

static bool take_id(struct mail *mail, struct message *m)
{
    if (mail->first_free == mail->nslots) {
        const uint32_t more = mail->nslots ? 2 * mail->nslots : READ_AT_ONCE;
        struct slot *grown = realloc(mail->slots, more * sizeof(*grown));
        if (!grown)
            return false;
        for (uint32_t i = mail->nslots; i < more; i++)
            grown[i] = (struct slot){.next_free = i + 1};
        mail->slots = grown;
        mail->nslots = more;
    }
    m->id = mail->first_free;
    mail->first_free = mail->slots[m->id].next_free;
    mail->slots[m->id].message = m;
    return true;
}

static void give_id(struct mail *mail, uint32_t id)
{
    mail->slots[id] = (struct slot){.next_free = mail->first_free};
    mail->first_free = id;
}

/* ---- posting ---- */

/* Messages of one stream in a row share a mark. */
static int mark_caller(struct nccl_group *g, struct message *m, const struct message *before)
{
    const struct collrun_call *c = m->call, *b = before ? before->call : NULL;
    if (b && b->device == c->device && b->stream == c->stream) {
        m->after = before->after;
        return COLLRUN_OK;
    }
    m->after = port_mark(g, &g->ports[c->device], c->stream);
    m->owns_after = m->after != NULL;
    return m->after ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

int mail_post(struct nccl_group *g, struct flight *f)
{
    f->messages = calloc(f->ncalls, sizeof(*f->messages));
    if (!f->messages)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < f->ncalls; i++) {
        struct message *m = &f->messages[i];
        m->flight = f;
        m->call = &f->calls[i];
        m->state = g->mail ? HELD : TOLD; /* a rank alone: nobody will ever answer */
        m->bound = traffic_binds(&g->home->traffic);
        status = mark_caller(g, m, i ? m - 1 : NULL);
    }
    if (status != COLLRUN_OK)
        return status;
    for (uint32_t i = 0; g->mail && i < f->ncalls; i++)
        push(&g->mail->held, &f->messages[i]);
    f->nopen = f->ncalls;
    return COLLRUN_OK;
}

/* ---- telling the desk ---- */

static void lost(struct nccl_group *g, int error)
{
    char why[256];
    snprintf(why, sizeof(why), "lost rank 0, which matches the group's messages: %s",
             error ? strerror(error) : "it has hung up");
    group_doom(g, COLLRUN_ERR_PEER_FAILED, why);
}

static void flush(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    while (mail->out_sent < mail->out_len) {
        const ssize_t n = send(mail->fd, (char *)mail->out + mail->out_sent,
                               mail->out_len - mail->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            lost(g, errno);
        if (n < 0)
            return;
        mail->out_sent += (size_t)n;
    }
    mail->out_len = mail->out_sent = 0;
}

static void write_post(struct nccl_group *g, struct message *m)
{
    struct mail *mail = g->mail;
    const struct collrun_call *c = m->call;
    const bool any = c->kind == COLLRUN_RECV_ANY;
    mail->out[mail->out_len / sizeof(*mail->out)] = (struct desk_post){
        .count = c->count,
        .id = m->id,
        .place = g->rank * g->nports + (uint32_t)c->device,
        .peer = any ? DESK_ANYONE : (uint32_t)c->peer * g->nports + (uint32_t)c->peer_device,
        .tag = c->tag,
        .kind = (uint32_t)c->kind,
        .dtype = (uint32_t)c->dtype};
    mail->out_len += sizeof(*mail->out);
    mail->ntold++;
    m->state = TOLD;
}

/* Its stream waits for no collective that has not ended. */
static bool is_free(struct nccl_group *g, struct message *m)
{
    if (m->bound && traffic_binds(&g->home->traffic))
        m->bound = g->home->lib.cuda.cudaEventQuery(m->after->event) != cudaSuccess;
    else
        m->bound = false;
    return !m->bound;
}

/* Whether the desk could match one instead of the other. */
static bool compete(const struct collrun_call *a, const struct collrun_call *b)
{
    const bool any = a->kind == COLLRUN_RECV_ANY || b->kind == COLLRUN_RECV_ANY;
    return (a->kind == COLLRUN_SEND) == (b->kind == COLLRUN_SEND) && a->device == b->device &&
           a->tag == b->tag && (any || (a->peer == b->peer && a->peer_device == b->peer_device));
}

/* The first one that may be told: free, as are those before it that it must not overtake. */
static struct message **next_to_tell(struct nccl_group *g)
{
    struct message **link = &g->mail->held.first;
    for (; *link; link = &(*link)->next) {
        const struct message *before = g->mail->held.first;
        while (before != *link && !compete(before->call, (*link)->call))
            before = before->next;
        if (before == *link && is_free(g, *link))
            return link;
    }
    return NULL;
}

static struct message *take_link(struct queue *q, struct message **link)
{
    struct message *m = *link;
    *link = m->next;
    if (!m->next)
        q->end = link;
    return m;
}

static void tell(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    struct message **link;
    while (mail->held.first && (link = next_to_tell(g))) {
        if (mail->out_len == sizeof(mail->out))
            flush(g);
        if (mail->out_len == sizeof(mail->out))
            return; /* the desk is slow */
        if (!take_id(mail, *link)) {
            group_doom(g, COLLRUN_ERR_NO_MEMORY, "out of memory");
            return;
        }
        write_post(g, take_link(&mail->held, link));
    }
    flush(g);
}

/* ---- hearing from it ---- */

/* "rank 0 calls send(301 x int32, to 1, tag 0), rank 1 calls recv(302 x int32)" */
static void disagree(struct nccl_group *g, const struct message *m, const struct desk_match *match)
{
    const struct collrun_services *s = g->services;
    const struct collrun_call *c = m->call;
    const bool sends = c->kind == COLLRUN_SEND;
    const uint32_t me = g->rank, other = match->place / g->nports;
    const size_t theirs = (size_t)match->count;
    const char *their_type = s->dtype_name((enum collrun_dtype)match->dtype);
    const char *my_type = s->dtype_name(c->dtype);
    char why[256];
    snprintf(why, sizeof(why),
             "rank %u calls send(%zu x %s, to %u, tag %u), rank %u calls recv(%zu x %s)",
             sends ? me : other, sends ? c->count : theirs, sends ? my_type : their_type,
             sends ? other : me, c->tag, sends ? other : me, sends ? theirs : c->count,
             sends ? their_type : my_type);
    group_doom(g, COLLRUN_ERR_MISMATCH, why);
}

static void take_match(struct nccl_group *g, const struct desk_match *match)
{
    struct mail *mail = g->mail;
    struct message *m = match->id < mail->nslots ? mail->slots[match->id].message : NULL;
    if (!m || match->place >= g->size) {
        group_doom(g, COLLRUN_ERR_BACKEND, "rank 0 speaks of a message that there is not");
        return;
    }
    give_id(mail, match->id);
    mail->ntold--;
    m->place = match->place;
    m->ends_epoch = match->ends_epoch;
    m->state = AGREED;
    push(&mail->agreed, m);
    mail->epochs += m->ends_epoch;
    if (match->count != m->call->count || match->dtype != (uint32_t)m->call->dtype)
        disagree(g, m, match);
}

static bool is_doomed(const struct nccl_group *g)
{
    return atomic_load_explicit(&g->fate, memory_order_acquire) != 0;
}

static void hear(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    while (mail->ntold && !is_doomed(g)) {
        const ssize_t n = recv(mail->fd, (char *)mail->in + mail->in_len,
                               sizeof(mail->in) - mail->in_len, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(g, n < 0 ? errno : 0);
            return;
        }
        mail->in_len += (size_t)n;
        const size_t whole = mail->in_len / sizeof(*mail->in);
        for (size_t i = 0; i < whole && !is_doomed(g); i++)
            take_match(g, &mail->in[i]);
        mail->in_len -= whole * sizeof(*mail->in);
        memmove(mail->in, mail->in + whole, mail->in_len);
    }
}

/* ---- epochs ---- */

static void end_message(struct nccl_group *g, struct message *m)
{
    if (m->call->kind == COLLRUN_RECV_ANY && m->call->source)
        *m->call->source = (int)(m->place / g->nports);
    m->state = OVER;
    m->flight->nopen--;
}

/* What is aloft has landed if the GPUs have passed its marks. */
static int ask_aloft(struct nccl_group *g)
{
    for (uint32_t i = 0; i < g->nports; i++) {
        const struct mark *mark = g->mail->done[i];
        const cudaError_t error =
            mark ? g->home->lib.cuda.cudaEventQuery(mark->event) : cudaSuccess;
        if (error == cudaErrorNotReady)
            return COLLRUN_AGAIN;
        if (error != cudaSuccess)
            return cuda_failed(g, &g->ports[i], error, "a message");
    }
    return COLLRUN_OK;
}

static void take_marks_back(struct nccl_group *g)
{
    for (uint32_t i = 0; i < g->nports; i++) {
        struct mark **mark = &g->mail->done[i];
        if (*mark)
            atomic_fetch_sub(&g->ports[i].device->flying, 1);
        port_take_back(&g->ports[i], *mark);
        *mark = NULL;
    }
}

static void land(struct nccl_group *g)
{
    if (!g->mail->aloft.first || ask_aloft(g) != COLLRUN_OK)
        return;
    take_marks_back(g);
    while (g->mail->aloft.first)
        end_message(g, pop(&g->mail->aloft));
}

/* The next epoch, less what has nothing to move. */
static void board(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    bool last = false;
    mail->epochs--;
    while (!last) {
        struct message *m = pop(&mail->agreed);
        last = m->ends_epoch;
        if (!m->call->count) {
            end_message(g, m);
            continue;
        }
        m->state = ALOFT;
        push(&mail->aloft, m);
    }
}

static void launch(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    while (!mail->aloft.first && mail->epochs)
        board(g);
    if (!mail->aloft.first)
        return;
    pthread_mutex_lock(&g->lock);
    const int status =
        is_doomed(g) ? group_failure(g) : issue_messages(g, mail->aloft.first, mail->done);
    pthread_mutex_unlock(&g->lock);
    mail->launched++;
    if (status != COLLRUN_OK)
        group_doom(g, status, "a message could not be launched");
}

uint64_t mail_launched(const struct nccl_group *g)
{
    return g->mail ? g->mail->launched : 0;
}

void mail_progress(struct nccl_group *g)
{
    if (!g->mail || is_doomed(g))
        return;
    tell(g);
    hear(g);
    if (!is_doomed(g))
        land(g);
    if (!is_doomed(g) && !g->mail->aloft.first)
        launch(g);
}

void mail_listen(struct nccl_group *g, uint64_t ns)
{
    if (!g->mail || g->mail->aloft.first || !g->mail->ntold) {
        pause_ns(ns);
        return;
    }
    struct pollfd p = {.fd = g->mail->fd, .events = POLLIN};
    ppoll(&p, 1, &(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* ---- the end of a flight ---- */

int mail_settle(struct nccl_group *g, bool in_time)
{
    if (!g->mail || (in_time && ask_aloft(g) == COLLRUN_AGAIN))
        return g->mail ? COLLRUN_AGAIN : COLLRUN_OK;
    take_marks_back(g);
    return COLLRUN_OK;
}

static void forget(struct queue *q, const struct flight *f)
{
    struct message **link = &q->first;
    while (*link) {
        if ((*link)->flight == f)
            *link = (*link)->next;
        else
            link = &(*link)->next;
    }
    q->end = link;
}

void mail_drop(struct flight *f)
{
    struct nccl_group *g = f->group;
    struct mail *mail = f->nopen ? g->mail : NULL;
    for (uint32_t i = 0; f->messages && i < f->ncalls; i++) {
        struct message *m = &f->messages[i];
        if (m->owns_after)
            port_take_back(&g->ports[m->call->device], m->after);
        if (mail && m->state == TOLD)
            mail->slots[m->id].message = NULL; /* the group is doomed: no id is needed again */
    }
    if (mail) {
        forget(&mail->held, f);
        forget(&mail->agreed, f);
        forget(&mail->aloft, f);
    }
    free(f->messages);
}

static void name_place(const struct nccl_group *g, const struct collrun_call *c, char *out,
                       size_t len)
{
    if (c->kind == COLLRUN_RECV_ANY)
        snprintf(out, len, "no rank sent");
    else if (g->nports == 1)
        snprintf(out, len, "rank %d did not %s", c->peer,
                 c->kind == COLLRUN_SEND ? "receive" : "send");
    else
        snprintf(out, len, "GPU %d of rank %d did not %s", c->peer_device, c->peer,
                 c->kind == COLLRUN_SEND ? "receive" : "send");
    if (c->tag)
        snprintf(out + strlen(out), len - strlen(out), " with tag %u", c->tag);
}

static void explain_message(const struct message *m, char *out, size_t len)
{
    const struct nccl_group *g = m->flight->group;
    char peer[96];
    name_place(g, m->call, peer, sizeof(peer));
    if (m->state == TOLD)
        snprintf(out, len, "%s", peer);
    else if (m->state == HELD)
        snprintf(out, len,
                 "a collective that this rank had started did not end, for which the stream of a "
                 "message of it waits,");
    else
        snprintf(out, len, "the message with rank %u was agreed on and did not arrive",
                 m->place / g->nports);
}

bool mail_explain(const struct flight *f, char *out, size_t len)
{
    unsigned named = 0, more = 0;
    bool sends = false;
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < f->ncalls; i++) {
        const struct message *m = &f->messages[i];
        char words[160];
        if (m->state == OVER)
            continue;
        sends = sends || (m->state == TOLD && m->call->kind == COLLRUN_SEND);
        if (++named > NAMED_AT_MOST) {
            more++;
            continue;
        }
        explain_message(m, words, sizeof(words));
        at += (size_t)snprintf(out + at, len - at, "%s%s", named > 1 ? "; " : "", words);
        at = at < len ? at : len - 1;
    }
    if (more)
        snprintf(out + at, len - at, "; and so %u more", more);
    return sends;
}

int mail_order(const struct flight *f, uint32_t device, cudaStream_t stream, cudaError_t *error)
{
    const struct nccl_group *g = f->group;
    bool waits = false;
    for (uint32_t i = 0; i < f->ncalls; i++) {
        const struct message *m = &f->messages[i];
        if (m->state < ALOFT)
            return COLLRUN_AGAIN;
        waits = waits || (m->state == ALOFT && m->call->device == (int)device);
    }
    if (waits)
        *error = g->home->lib.cuda.cudaStreamWaitEvent(stream, g->mail->done[device]->event, 0);
    return COLLRUN_OK;
}

/* ---- opening ---- */

int mail_new(struct nccl_group *g)
{
    struct mail *mail = calloc(1, sizeof(*mail));
    if (mail && !(mail->done = calloc(g->nports, sizeof(struct mark *)))) {
        free(mail);
        mail = NULL;
    }
    if (!mail)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    g->mail = mail;
    mail->fd = -1;
    queue_init(&mail->held);
    queue_init(&mail->agreed);
    queue_init(&mail->aloft);
    return COLLRUN_OK;
}

int mail_dial(struct nccl_group *g, uint64_t deadline_ns)
{
    return invite_connect(g, DESK_MAIL, deadline_ns, &g->mail->fd);
}

/* ---- closing ---- */

void mail_close(struct nccl_group *g)
{
    if (!g->mail)
        return;
    take_marks_back(g);
    if (g->mail->fd >= 0)
        close(g->mail->fd);
    g->mail->fd = -1;
}

void mail_free(struct nccl_group *g)
{
    struct mail *mail = g->mail;
    if (!mail)
        return;
    free(mail->done);
    free(mail->slots);
    free(mail);
    g->mail = NULL;
}

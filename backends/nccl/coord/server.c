/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator of a group: matches messages, counts commitments, joins the cuts of batches.
 * frame.h has the protocol.
 *
 * Happy path
 *   - every rank connects and proves the secret that rank 0 has published among the members;
 *   - a round reads all requests that have arrived, has the engine match sends with receives, in
 *     the order of arrival, and replies to both ends. The matches of one round are an epoch;
 *   - when the count that all ranks have committed to rises, all ranks get the new count;
 *   - when all ranks have sent the cuts of a batch, all ranks get their union;
 *   - when a rank wants communicators, the ranks that they concern form them (forming.c);
 *   - the thread ends when all ranks have connected and disconnected, and close their
 *     communicators (forming.c).
 * Failures
 *   - a connection without the secret, or with a malformed frame, is closed; the others stay;
 *   - a connection without HELLO is closed when a later one needs its slot;
 *   - a rank disconnects early: its requests stay queued. A peer whose request matches one of them
 *     waits until its time-out, or until the runner, which knows why the rank is gone, ends the
 *     job;
 *   - out of memory: all connections are closed.
 */
#include "server.h"

#include "forming.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SPARE_CLIENTS = 16, IN_FRAMES = 128, OUT_FRAMES = 128, MAX_ID = 1 << 22 };

struct coord_conn {
    int fd;            /* -1: free */
    bool has_rank;     /* HELLO was received */
    bool forms;        /* if so: its frames are FORM */
    uint32_t rank;     /* if so */
    bool has_cuts;     /* it has sent those of the batch that the ranks are at */
    uint64_t conn_seq; /* order of arrival */
    struct coord_frame in[IN_FRAMES];
    size_t in_len; /* bytes */
    struct coord_frame *out;
    size_t out_count, out_capacity;  /* frames */
    size_t out_sent;                 /* bytes */
    struct coord_match_req **posted; /* by id: receives that are queued; else NULL */
    uint32_t nposted;
    uint32_t *withdrawn; /* ids that WITHDRAW has named, until the last one of them */
    uint32_t nwithdrawn, withdrawn_capacity;
    size_t last_match; /* 1 + index in `out` of this round's last MATCH_REP; 0: none */
};

struct coord_server {
    const struct collrun_services *services; /* for the log */
    pthread_t thread;
    int listener, stop; /* stop: an eventfd */
    uint64_t secret;
    uint32_t nranks, ndevs;
    uint32_t joined; /* connections with HELLO so far: two per rank */
    uint32_t gone;   /* ranks that have disconnected; none of them comes back */
    bool *met;       /* by rank, twice: its connections have come, the second one to form */
    uint32_t nconns; /* slots: two per rank, and spare ones for those without HELLO */
    uint64_t next_seq;
    struct coord_conn *conns;
    struct coord_conn **of_rank; /* NULL: not connected */
    struct coord_conn **forms_of_rank;
    struct coord_forming forming;
    uint64_t *committed; /* by each rank */
    uint64_t ready;      /* by all */
    bool ready_rose;     /* in this round */
    uint64_t cuts;       /* of the ranks that have sent theirs */
    uint32_t ncuts;      /* the number of these ranks */
    const struct collrun_match_ops *match_ops;
    /* Indexed by the rank that receives; the items are struct coord_match_req. */
    struct collrun_match **matches;
    struct pollfd *polled; /* stop, listener, connections */
    bool failed;           /* out of memory */
};

/* ---- connections ---- */

static void coord_server_disconnect(struct coord_server *s, struct coord_conn *c)
{
    COLLRUN_DEBUG(s->services, COORD,
                  "connection %llu of rank %d (%s) ends; %u of %u ranks are gone",
                  (unsigned long long)c->conn_seq, c->has_rank ? (int)c->rank : -1,
                  c->has_rank && c->forms ? "forming" : "messages", s->gone, s->nranks);
    close(c->fd);
    if (c->has_rank && c->forms) {
        s->forms_of_rank[c->rank] = NULL;
        coord_forming_leave(&s->forming, c->rank);
    } else if (c->has_rank) {
        s->of_rank[c->rank] = NULL;
        if (++s->gone == s->nranks)
            coord_forming_all_closed(&s->forming);
    }
    free(c->out);
    free(c->posted);
    free(c->withdrawn);
    c->fd = -1;
    c->has_rank = c->has_cuts = c->forms = false;
    c->out = NULL;
    c->posted = NULL;
    c->withdrawn = NULL;
    c->nposted = c->nwithdrawn = c->withdrawn_capacity = 0;
    c->in_len = c->out_count = c->out_capacity = c->out_sent = c->last_match = 0;
}

static void coord_server_flush(struct coord_server *s, struct coord_conn *c)
{
    size_t len = c->out_count * sizeof *c->out;
    while (c->out_sent < len) {
        ssize_t n = send(c->fd, (const char *)c->out + c->out_sent, len - c->out_sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            coord_server_disconnect(s, c);
        if (n < 0)
            return;
        c->out_sent += (size_t)n;
    }
    c->out_count = c->out_sent = 0;
}

static void coord_server_queue_frame(struct coord_server *s, struct coord_conn *c,
                                     const struct coord_frame *frame)
{
    if (c->out_count == c->out_capacity) {
        size_t more = c->out_capacity ? 2 * c->out_capacity : OUT_FRAMES;
        struct coord_frame *grown = realloc(c->out, more * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        c->out = grown;
        c->out_capacity = more;
    }
    c->out[c->out_count++] = *frame;
}

/* The matches of this round are an epoch, and ranks get the count of commitments if it rose. */
static void coord_server_end_round(struct coord_server *s)
{
    struct coord_frame ready = {.type = COORD_READY, .count = s->ready};
    for (uint32_t i = 0; s->ready_rose && i < s->nranks; i++)
        if (s->of_rank[i])
            coord_server_queue_frame(s, s->of_rank[i], &ready);
    s->ready_rose = false;
    for (uint32_t i = 0; i < s->nconns; i++) {
        struct coord_conn *c = &s->conns[i];
        if (c->last_match)
            c->out[c->last_match - 1].match_rep.ends_epoch = 1;
        c->last_match = 0;
        if (c->fd >= 0)
            coord_server_flush(s, c);
    }
}

/* ---- matching ---- */

/* Keeps or drops the pointer by which WITHDRAW finds a receive. */
static void coord_server_note_posted(struct coord_server *s, const struct coord_match_req *req,
                                     struct coord_match_req *item)
{
    struct coord_conn *c = s->of_rank[req->comm_rank / s->ndevs];
    if (req->kind == COLLRUN_SEND || req->direct || !c || (!item && req->id >= c->nposted))
        return;
    if (req->id >= c->nposted) {
        uint32_t more = 2 * req->id + IN_FRAMES;
        struct coord_match_req **grown = realloc(c->posted, more * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        memset(grown + c->nposted, 0, (more - c->nposted) * sizeof *grown);
        c->posted = grown;
        c->nposted = more;
    }
    c->posted[req->id] = item;
}

static void coord_server_reply_match(struct coord_server *s, const struct coord_match_req *to,
                                     const struct coord_match_req *other)
{
    struct coord_conn *c = s->of_rank[to->comm_rank / s->ndevs];
    struct coord_frame frame = {.type = COORD_MATCH_REP,
                                .match_rep = {.id = to->id,
                                              .count = other->count,
                                              .dtype = other->dtype,
                                              .peer = other->comm_rank,
                                              .tag = other->tag,
                                              .at_most = other->at_most,
                                              .direct = to->direct}};
    if (!c)
        return;
    coord_server_note_posted(s, to, NULL);
    coord_server_queue_frame(s, c, &frame);
    c->last_match = to->direct ? c->last_match : c->out_count;
}

/* The send function of struct coord_forming. */
static void coord_server_send_form(void *server, uint32_t rank, const struct coord_form *form)
{
    struct coord_server *s = server;
    COLLRUN_DEBUG(s->services, COORD, "to rank %u: FORM of communicator %u (%u, %u), step %u%s",
                  rank, form->handle, form->from, form->to, form->step,
                  s->forms_of_rank[rank] ? "" : ", but it has no connection");
    if (s->forms_of_rank[rank])
        coord_server_queue_frame(s, s->forms_of_rank[rank],
                                 &(struct coord_frame){.type = COORD_FORM, .form = *form});
}

static void coord_server_want(struct coord_server *s, const struct coord_want *want)
{
    COLLRUN_DEBUG(s->services, COORD, "communicator %u of %u and %u is wanted", want->handle,
                  want->from, want->to);
    s->failed = s->failed || !coord_forming_want(&s->forming, want);
}

/* False if there is no such communicator; the caller closes the connection. */
static bool coord_server_on_want(struct coord_server *s, const struct coord_conn *c,
                                 const struct coord_want *want)
{
    uint32_t size = s->nranks * s->ndevs;
    bool direct = want->handle == COORD_DIRECT;
    if (direct && (want->from >= size || want->to >= size || want->from == want->to ||
                   (want->from / s->ndevs != c->rank && want->to / s->ndevs != c->rank)))
        return false;
    if (!direct && (want->handle >= COORD_HANDLES || want->from || want->to))
        return false;
    coord_server_want(s, want);
    return true;
}

/* False if the request is malformed; the caller closes the connection. */
static bool coord_server_on_match_req(struct coord_server *s, const struct coord_conn *c,
                                      const struct coord_match_req *req)
{
    uint32_t size = s->nranks * s->ndevs;
    bool sends = req->kind == COLLRUN_SEND;
    if (req->kind < COLLRUN_SEND || req->kind > COLLRUN_RECV_ANY || req->comm_rank >= size ||
        req->comm_rank / s->ndevs != c->rank || req->id >= MAX_ID ||
        (req->peer >= size && (sends || req->peer != COLLRUN_ANY_SOURCE)))
        return false;
    if (sends && req->count && !req->direct)
        coord_server_want(s, &(struct coord_want){.handle = COORD_MESSAGES});
    struct coord_match_req *item = malloc(sizeof *item);
    struct collrun_match *match = s->matches[sends ? req->peer : req->comm_rank];
    void *other = NULL;
    if (item)
        *item = *req;
    int status = !item   ? COLLRUN_ERR_NO_MEMORY
                 : sends ? s->match_ops->arrive(match, req->comm_rank, req->tag, item, &other)
                         : s->match_ops->post(match, req->peer, req->tag, item, &other);
    s->failed = s->failed || status != COLLRUN_OK;
    COLLRUN_DEBUG(s->services, COORD, "rank %u: %s %u, peer %d, tag %u, %llu elements: %s",
                  req->comm_rank, sends ? "send" : "receive", req->id, (int)req->peer, req->tag,
                  (unsigned long long)req->count, other ? "matched" : "queued");
    if (other) {
        coord_server_reply_match(s, other, req);
        coord_server_reply_match(s, req, other);
        free(other);
    }
    if (other || status != COLLRUN_OK)
        free(item);
    else
        coord_server_note_posted(s, req, item);
    return true;
}

/* ---- questions ---- */

static bool coord_server_on_probe(struct coord_server *s, struct coord_conn *c,
                                  const struct coord_question *q)
{
    const struct coord_match_req *found =
        s->match_ops->probe(s->matches[q->comm_rank], q->peer, q->tag);
    struct coord_frame frame = {.type = COORD_ANSWER, .answer.number = q->number};
    if (found)
        frame.answer = (struct coord_answer){.count = found->count,
                                             .peer = found->comm_rank,
                                             .tag = found->tag,
                                             .dtype = found->dtype,
                                             .yes = 1,
                                             .number = q->number};
    coord_server_queue_frame(s, c, &frame);
    return true;
}

static void coord_server_withdraw(struct coord_server *s, struct coord_conn *c, uint32_t id)
{
    struct coord_match_req *item = c->posted[id];
    s->match_ops->withdraw(s->matches[item->comm_rank], item->peer, item->tag, item);
    c->posted[id] = NULL;
    free(item);
}

/* Withdraws the receives that the rank has named if all of them are queued still. False: it has
 * named one twice, or more than it can have posted. */
static bool coord_server_on_withdraw(struct coord_server *s, struct coord_conn *c,
                                     const struct coord_question *q)
{
    if (c->nwithdrawn == c->withdrawn_capacity) {
        uint32_t more = 2 * c->withdrawn_capacity + IN_FRAMES;
        uint32_t *grown = realloc(c->withdrawn, more * sizeof *grown);
        s->failed = s->failed || !grown;
        if (!grown)
            return true;
        c->withdrawn = grown;
        c->withdrawn_capacity = more;
    }
    c->withdrawn[c->nwithdrawn++] = q->id;
    if (q->more)
        return c->nwithdrawn <= MAX_ID;
    bool all = true;
    for (uint32_t i = 0; i < c->nwithdrawn; i++)
        all = all && c->withdrawn[i] < c->nposted && c->posted[c->withdrawn[i]];
    for (uint32_t i = 0; all && i < c->nwithdrawn; i++) {
        if (!c->posted[c->withdrawn[i]])
            return false;
        coord_server_withdraw(s, c, c->withdrawn[i]);
    }
    c->nwithdrawn = 0;
    const struct coord_frame frame = {.type = COORD_ANSWER,
                                      .answer = {.yes = all, .number = q->number}};
    coord_server_queue_frame(s, c, &frame);
    return true;
}

/* False if the question is malformed; the caller closes the connection. */
static bool coord_server_on_question(struct coord_server *s, struct coord_conn *c,
                                     const struct coord_frame *frame)
{
    const struct coord_question *q = &frame->question;
    uint32_t size = s->nranks * s->ndevs;
    if (q->comm_rank >= size || q->comm_rank / s->ndevs != c->rank)
        return false;
    if (frame->type == COORD_WITHDRAW)
        return coord_server_on_withdraw(s, c, q);
    return (q->peer < size || q->peer == COLLRUN_ANY_SOURCE) && coord_server_on_probe(s, c, q);
}

/* ---- commitments ---- */

/* False if the count does not rise: a commitment cannot be withdrawn. */
static bool coord_server_on_commit(struct coord_server *s, const struct coord_conn *c,
                                   uint64_t count)
{
    if (count <= s->committed[c->rank])
        return false;
    bool was_lowest = s->committed[c->rank] == s->ready;
    s->committed[c->rank] = count;
    if (!was_lowest)
        return true;
    for (uint32_t i = 0; i < s->nranks; i++)
        count = s->committed[i] < count ? s->committed[i] : count;
    if (count > s->ready)
        COLLRUN_DEBUG(s->services, COORD, "all ranks have committed %llu launches",
                      (unsigned long long)count);
    s->ready_rose = s->ready_rose || count > s->ready;
    s->ready = count;
    return true;
}

/* ---- batches ---- */

/* False if the rank has sent its cuts before: it must wait for the reply. */
static bool coord_server_on_cuts(struct coord_server *s, struct coord_conn *c, uint64_t cuts)
{
    if (c->has_cuts)
        return false;
    c->has_cuts = true;
    s->cuts |= cuts;
    if (++s->ncuts < s->nranks)
        return true;
    const struct coord_frame joined = {.type = COORD_CUTS, .cuts = s->cuts};
    for (uint32_t i = 0; i < s->nranks; i++)
        if (s->of_rank[i]) {
            s->of_rank[i]->has_cuts = false;
            coord_server_queue_frame(s, s->of_rank[i], &joined);
        }
    s->cuts = s->ncuts = 0;
    return true;
}

/* ---- reading ---- */

static bool coord_server_on_hello(struct coord_server *s, struct coord_conn *c,
                                  const struct coord_hello *hello)
{
    if (hello->secret != s->secret || hello->rank >= s->nranks)
        return false;
    bool *met = &s->met[2 * hello->rank + (hello->forms != 0)];
    if (*met)
        return false;
    *met = true;
    (hello->forms ? s->forms_of_rank : s->of_rank)[hello->rank] = c;
    c->has_rank = true;
    c->forms = hello->forms;
    c->rank = hello->rank;
    s->joined++;
    COLLRUN_DEBUG(s->services, COORD, "HELLO of rank %u (%s), %u of %u connections", c->rank,
                  c->forms ? "forming" : "messages", s->joined, 2 * s->nranks);
    return !c->forms || coord_forming_join(&s->forming, c->rank, hello->world_rank);
}

/* False: the connection has to be closed. */
static bool coord_server_on_frame(struct coord_server *s, struct coord_conn *c,
                                  const struct coord_frame *frame)
{
    if (!c->has_rank)
        return frame->type == COORD_HELLO && coord_server_on_hello(s, c, &frame->hello);
    if (c->forms)
        return frame->type == COORD_FORM &&
               coord_forming_on_frame(&s->forming, c->rank, &frame->form);
    if (frame->type == COORD_MATCH_REQ)
        return coord_server_on_match_req(s, c, &frame->match_req);
    if (frame->type == COORD_PROBE || frame->type == COORD_WITHDRAW)
        return coord_server_on_question(s, c, frame);
    if (frame->type == COORD_CUTS)
        return coord_server_on_cuts(s, c, frame->cuts);
    if (frame->type == COORD_COMMIT)
        return coord_server_on_commit(s, c, frame->count);
    return frame->type == COORD_WANT && coord_server_on_want(s, c, &frame->want);
}

static bool coord_server_parse(struct coord_server *s, struct coord_conn *c)
{
    size_t whole = c->in_len / sizeof *c->in;
    for (size_t i = 0; i < whole; i++)
        if (!coord_server_on_frame(s, c, &c->in[i]))
            return false;
    c->in_len -= whole * sizeof *c->in;
    memmove(c->in, c->in + whole, c->in_len);
    return true;
}

static void coord_server_read(struct coord_server *s, struct coord_conn *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, (char *)c->in + c->in_len, sizeof c->in - c->in_len, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0)
            c->in_len += (size_t)n;
        if (n <= 0 || !coord_server_parse(s, c)) {
            coord_server_disconnect(s, c);
            return;
        }
    }
}

/* Returns a free slot, or evicts the oldest connection without HELLO. There are more slots than
 * ranks, so one or the other exists. */
static struct coord_conn *coord_server_free_slot(struct coord_server *s)
{
    struct coord_conn *oldest = NULL;
    for (uint32_t i = 0; i < s->nconns; i++) {
        struct coord_conn *c = &s->conns[i];
        if (c->fd < 0)
            return c;
        if (!c->has_rank && (!oldest || c->conn_seq < oldest->conn_seq))
            oldest = c;
    }
    COLLRUN_DEBUG(s->services, COORD, "no slot is free: connection %llu, without HELLO, is evicted",
                  (unsigned long long)oldest->conn_seq);
    coord_server_disconnect(s, oldest);
    return oldest;
}

static void coord_server_accept(struct coord_server *s)
{
    int fd;
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct coord_conn *c = coord_server_free_slot(s);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        c->fd = fd;
        c->conn_seq = s->next_seq++;
    }
}

/* ---- the thread ---- */

static void coord_server_prepare_poll(struct coord_server *s)
{
    s->polled[0] = (struct pollfd){.fd = s->stop, .events = POLLIN};
    s->polled[1] =
        (struct pollfd){.fd = s->joined < 2 * s->nranks ? s->listener : -1, .events = POLLIN};
    for (uint32_t i = 0; i < s->nconns; i++) {
        const struct coord_conn *c = &s->conns[i];
        s->polled[2 + i] = (struct pollfd){.fd = c->fd, .events = POLLIN};
        if (c->out_count)
            s->polled[2 + i].events |= POLLOUT;
    }
}

/* Ranks that have closed the group do not all close its communicators yet. */
static bool coord_server_closes(const struct coord_server *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->nranks; i++)
        any = any || s->forms_of_rank[i];
    return any && !coord_forming_is_over(&s->forming);
}

static void *coord_server_thread(void *arg)
{
    struct coord_server *s = arg;
    while (!s->failed && (s->gone < s->nranks || coord_server_closes(s))) {
        coord_server_prepare_poll(s);
        if (poll(s->polled, 2 + s->nconns, -1) < 0 && errno != EINTR)
            break;
        if (s->polled[0].revents)
            break;
        for (uint32_t i = 0; i < s->nconns; i++)
            if (s->polled[2 + i].revents & ~POLLOUT && s->conns[i].fd >= 0)
                coord_server_read(s, &s->conns[i]);
        if (s->polled[1].revents)
            coord_server_accept(s);
        coord_server_end_round(s);
    }
    for (uint32_t i = 0; i < s->nconns; i++) /* a rank that still waits sees its connection end */
        if (s->conns[i].fd >= 0)
            coord_server_disconnect(s, &s->conns[i]);
    return NULL;
}

/* ---- life ---- */

static void coord_server_release(struct coord_server *s)
{
    for (uint32_t i = 0; s->matches && i < s->nranks * s->ndevs; i++)
        s->match_ops->close(s->matches[i], free);
    if (s->stop >= 0)
        close(s->stop);
    free(s->conns);
    free(s->met);
    free(s->of_rank);
    free(s->forms_of_rank);
    coord_forming_fini(&s->forming);
    free(s->committed);
    free(s->matches);
    free(s->polled);
    free(s);
}

static bool coord_server_alloc(struct coord_server *s)
{
    uint32_t size = s->nranks * s->ndevs;
    s->conns = calloc(s->nconns, sizeof *s->conns);
    s->met = calloc(s->nranks, 2 * sizeof *s->met);
    s->of_rank = calloc(s->nranks, sizeof(struct coord_conn *));
    s->forms_of_rank = calloc(s->nranks, sizeof(struct coord_conn *));
    s->committed = calloc(s->nranks, sizeof *s->committed);
    s->matches = calloc(size, sizeof(struct collrun_match *));
    s->polled = calloc(2 + s->nconns, sizeof *s->polled);
    if (!coord_forming_init(&s->forming, s->nranks, s->ndevs, coord_server_send_form, s) ||
        !s->forms_of_rank || !s->conns || !s->met || !s->of_rank || !s->committed || !s->matches ||
        !s->polled || s->stop < 0)
        return false;
    for (uint32_t i = 0; i < s->nconns; i++)
        s->conns[i].fd = -1;
    for (uint32_t i = 0; i < size; i++)
        if (!(s->matches[i] = s->match_ops->open()))
            return false;
    return true;
}

struct coord_server *coord_server_new(const struct collrun_services *services, int listener,
                                      uint64_t secret, uint32_t nranks, uint32_t ndevs)
{
    struct coord_server *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct coord_server){.services = services,
                                   .listener = listener,
                                   .stop = eventfd(0, EFD_CLOEXEC),
                                   .secret = secret,
                                   .nranks = nranks,
                                   .ndevs = ndevs,
                                   .nconns = 2 * nranks + SPARE_CLIENTS,
                                   .match_ops = services->match};
        if (coord_server_alloc(s) &&
            services->thread_start(services->ctx, coord_server_thread, s, &s->thread) == COLLRUN_OK)
            return s;
        coord_server_release(s);
    }
    services->fail(services->ctx, COLLRUN_ERR_NO_MEMORY,
                   "out of memory or threads for the coordinator");
    return NULL;
}

void coord_server_free(struct coord_server *s, bool at_once)
{
    if (at_once)
        eventfd_write(s->stop, 1);
    pthread_join(s->thread, NULL);
    close(s->listener);
    coord_server_release(s);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's side of the connection to the coordinator; frame.h has the protocol.
 *
 * Happy path
 *   - rank 0 listens and publishes address and secret; every rank connects and sends HELLO;
 *   - whichever handle polls, frames of every kind are received: READY count and cuts are stored,
 *     and MATCH_REP frames are queued until the handle for messages takes them.
 * Failures
 *   - the connection is lost: coord_poll returns the error, from then on.
 */
#include "client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { CLIENT_FRAMES = 64, ASK_SLEEP_NS = 1000000 };

struct coord_client {
    pthread_mutex_t lock;
    int fd;
    int error;                 /* an errno: the connection is lost */
    uint64_t committed, ready; /* committed: as sent */
    struct coord_frame out[CLIENT_FRAMES];
    size_t out_count; /* frames */
    size_t out_sent;  /* bytes */
    struct coord_frame in[CLIENT_FRAMES];
    size_t in_len;                   /* bytes */
    struct coord_match_rep *matches; /* received and not taken: from match_first on */
    size_t match_first, nmatches, match_capacity;
    uint32_t asked; /* the number of the last question */
    struct coord_answer answer;
    bool has_answer; /* to that question */
    uint64_t cuts;
    bool has_cuts;
    uint64_t (*now_ns)(void); /* of the services */
};

/* ---- connecting ---- */

int coord_listen(const struct collrun_services *s, const char *address, struct coord_addr *out,
                 int *fd)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    socklen_t len = sizeof out->address;
    if (getaddrinfo(address, "0", &hints, &found) != 0)
        return s->fail(s->ctx, COLLRUN_ERR_INVALID, "\"%s\" is not a numeric address", address);
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = *fd >= 0 && bind(*fd, found->ai_addr, found->ai_addrlen) == 0 &&
                listen(*fd, SOMAXCONN) == 0 &&
                getsockname(*fd, (struct sockaddr *)&out->address, &len) == 0 &&
                getrandom(&out->secret, sizeof out->secret, 0) == sizeof out->secret;
    int error = errno;
    out->len = len;
    freeaddrinfo(found);
    if (good)
        return COLLRUN_OK;
    if (*fd >= 0)
        close(*fd);
    return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "cannot listen on %s for the group's ranks: %s",
                   address, strerror(error));
}

static void coord_client_queue(struct coord_client *c, const struct coord_frame *frame)
{
    c->out[c->out_count++] = *frame;
}

int coord_connect(const struct collrun_services *s, const struct coord_addr *to, uint32_t rank,
                  uint64_t deadline_ns, struct coord_client **out)
{
    const struct coord_frame hello = {.type = COORD_HELLO,
                                      .hello = {.secret = to->secret, .rank = rank}};
    struct coord_client *c = calloc(1, sizeof *c);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int status =
        s->connect(s->ctx, (const struct sockaddr *)&to->address, to->len, deadline_ns, &c->fd);
    if (status != COLLRUN_OK) {
        free(c);
        return status;
    }
    c->now_ns = s->now_ns;
    pthread_mutex_init(&c->lock, NULL);
    coord_client_queue(c, &hello);
    *out = c;
    int error = coord_poll(c);
    return error ? s->fail(s->ctx, COLLRUN_ERR_SYSTEM,
                           "lost the connection to rank 0, the group's coordinator: %s",
                           strerror(error))
                 : COLLRUN_OK;
}

void coord_client_close(struct coord_client *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->error = ENOTCONN;
    pthread_mutex_unlock(&c->lock);
}

void coord_client_free(struct coord_client *c)
{
    if (!c)
        return;
    coord_client_close(c);
    pthread_mutex_destroy(&c->lock);
    free(c->matches);
    free(c);
}

/* ---- sending and receiving; with the lock ---- */

static void coord_client_send(struct coord_client *c)
{
    size_t len = c->out_count * sizeof *c->out;
    while (!c->error && c->out_sent < len) {
        ssize_t n = send(c->fd, (const char *)c->out + c->out_sent, len - c->out_sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            c->error = errno;
        c->out_sent += n > 0 ? (size_t)n : 0;
    }
    c->out_count = c->out_sent = 0;
}

static bool coord_client_keep_match(struct coord_client *c, const struct coord_match_rep *rep)
{
    if (c->nmatches == c->match_capacity) {
        size_t more = c->match_capacity ? 2 * c->match_capacity : CLIENT_FRAMES;
        struct coord_match_rep *grown = realloc(c->matches, more * sizeof *grown);
        if (!grown)
            return false;
        c->matches = grown;
        c->match_capacity = more;
    }
    c->matches[c->nmatches++] = *rep;
    return true;
}

static void coord_client_on_frame(struct coord_client *c, const struct coord_frame *frame)
{
    if (frame->type == COORD_READY) {
        c->ready = frame->count;
    } else if (frame->type == COORD_ANSWER) {
        c->answer = frame->answer;
        c->has_answer = frame->answer.number == c->asked; /* others were given up */
    } else if (frame->type == COORD_CUTS) {
        c->cuts = frame->cuts;
        c->has_cuts = true;
    } else if (frame->type != COORD_MATCH_REP) {
        c->error = EPROTO;
    } else if (!coord_client_keep_match(c, &frame->match_rep)) {
        c->error = ENOMEM;
    }
}

static void coord_client_receive(struct coord_client *c)
{
    while (!c->error) {
        ssize_t n = recv(c->fd, (char *)c->in + c->in_len, sizeof c->in - c->in_len, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            c->error = n < 0 ? errno : ECONNRESET;
            return;
        }
        c->in_len += (size_t)n;
        size_t whole = c->in_len / sizeof *c->in;
        for (size_t i = 0; i < whole; i++)
            coord_client_on_frame(c, &c->in[i]);
        c->in_len -= whole * sizeof *c->in;
        memmove(c->in, c->in + whole, c->in_len);
    }
}

/* ---- the interface ---- */

int coord_poll(struct coord_client *c)
{
    pthread_mutex_lock(&c->lock);
    coord_client_send(c);
    coord_client_receive(c);
    int error = c->error;
    pthread_mutex_unlock(&c->lock);
    return error;
}

uint64_t coord_commit(struct coord_client *c, uint64_t committed)
{
    struct coord_frame frame = {.type = COORD_COMMIT, .count = committed};
    pthread_mutex_lock(&c->lock);
    if (!c->error && committed > c->committed && c->out_count < CLIENT_FRAMES) {
        coord_client_queue(c, &frame);
        c->committed = committed;
    }
    coord_client_send(c);
    if (c->ready < c->committed)
        coord_client_receive(c);
    uint64_t ready = c->ready;
    pthread_mutex_unlock(&c->lock);
    return ready;
}

/* False: there is no room. */
static bool coord_client_try_queue(struct coord_client *c, const struct coord_frame *frame)
{
    pthread_mutex_lock(&c->lock);
    if (c->out_count == CLIENT_FRAMES)
        coord_client_send(c);
    bool room = c->out_count < CLIENT_FRAMES;
    if (room)
        coord_client_queue(c, frame);
    pthread_mutex_unlock(&c->lock);
    return room;
}

bool coord_request_match(struct coord_client *c, const struct coord_match_req *req)
{
    return coord_client_try_queue(
        c, &(struct coord_frame){.type = COORD_MATCH_REQ, .match_req = *req});
}

bool coord_want(struct coord_client *c, const struct coord_want *want)
{
    return coord_client_try_queue(c, &(struct coord_frame){.type = COORD_WANT, .want = *want});
}

bool coord_send_cuts(struct coord_client *c, uint64_t cuts)
{
    return coord_client_try_queue(c, &(struct coord_frame){.type = COORD_CUTS, .cuts = cuts});
}

bool coord_next_cuts(struct coord_client *c, uint64_t *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->has_cuts;
    if (any)
        *out = c->cuts;
    c->has_cuts = false;
    pthread_mutex_unlock(&c->lock);
    return any;
}

bool coord_next_match(struct coord_client *c, struct coord_match_rep *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->match_first < c->nmatches;
    if (any)
        *out = c->matches[c->match_first++];
    if (c->match_first == c->nmatches)
        c->match_first = c->nmatches = 0;
    pthread_mutex_unlock(&c->lock);
    return any;
}

static void coord_client_sleep(struct coord_client *c, uint64_t ns)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    ppoll(&p, 1, &(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static bool coord_client_take_answer(struct coord_client *c, struct coord_answer *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->has_answer;
    *out = c->answer;
    c->has_answer = false;
    pthread_mutex_unlock(&c->lock);
    return any;
}

static uint32_t coord_client_next_question(struct coord_client *c)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t number = ++c->asked;
    c->has_answer = false;
    pthread_mutex_unlock(&c->lock);
    return number;
}

bool coord_ask(struct coord_client *c, enum coord_frame_type type,
               const struct coord_question *questions, uint32_t n, uint64_t deadline_ns,
               struct coord_answer *out)
{
    const uint32_t number = coord_client_next_question(c);
    for (uint32_t i = 0; i < n;) {
        struct coord_frame frame = {.type = type, .question = questions[i]};
        frame.question.number = number;
        if (coord_client_try_queue(c, &frame))
            i++;
        else if (coord_poll(c) || c->now_ns() >= deadline_ns)
            return false;
    }
    while (coord_poll(c) == 0) {
        if (coord_client_take_answer(c, out))
            return true;
        if (c->now_ns() >= deadline_ns)
            return false;
        coord_client_sleep(c, ASK_SLEEP_NS);
    }
    return false;
}

void coord_wait(struct coord_client *c, uint64_t ns)
{
    pthread_mutex_lock(&c->lock);
    bool arrived = c->match_first < c->nmatches;
    pthread_mutex_unlock(&c->lock);
    if (!arrived)
        coord_client_sleep(c, ns);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The desk of a group: a thread of its rank 0, to which every process of the group has two
 * connections on the job's network. On one it hears what each would send and receive, matches the
 * two ends of a message, and tells both. What it has matched in one round, between waiting and
 * waiting again, is an epoch (message.c); a client's last message of a round is marked as such. On
 * the other it hears how many collectives each has promised to launch, and tells all what all have
 * promised (tally.c).
 *
 * Who does not begin with the secret that rank 0 has published among the members is turned away,
 * and who says nothing has to make room for those who come later. A client that hangs up is done,
 * or dead; what it had posted stays, and matches nobody's new posts to its harm: its peers wait,
 * and the runner tells them why. The thread ends when the tallies of all have come and gone: they
 * are the last to do so.
 */
#include "group.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STRANGERS = 16, READ_LEN = 4096 };

struct entry {
    struct desk_post post;
    struct entry *next;
};

struct pile { /* in the order in which they came */
    struct entry *first, **end;
};

struct client {
    int fd;              /* -1: free, or gone */
    uint32_t rank, sort; /* once it has said hello: `known` */
    bool known;
    uint64_t came; /* the how manyeth */
    char in[READ_LEN];
    size_t in_len;
    char *out;
    size_t out_len, out_sent, out_capacity;
    size_t last; /* 1 + where its last match of this round lies in `out`; 0 = it has none */
};

struct desk {
    pthread_t thread;
    int listener, stop;
    uint64_t secret;
    uint32_t nranks, nports, joined, gone; /* gone: tallies */
    uint32_t nclients; /* those of all ranks and some that have not said hello */
    uint64_t came;
    struct client *clients;
    struct client **of_rank[DESK_SORTS]; /* NULL: not yet, or gone */
    uint64_t *promised, ready;           /* by each rank, by all */
    bool risen;                          /* `ready` has, in this round */
    struct pile *sends, *recvs;          /* by the receiver's place */
    struct pollfd *polled;               /* stop, listener, clients */
    bool failed;                         /* out of memory */
};

/* ---- clients ---- */

static void hang_up(struct desk *d, struct client *c)
{
    close(c->fd);
    if (c->known) {
        d->of_rank[c->sort][c->rank] = NULL;
        d->gone += c->sort == DESK_TALLY;
    }
    free(c->out);
    c->fd = -1;
    c->known = false;
    c->out = NULL;
    c->in_len = c->out_len = c->out_sent = c->out_capacity = c->last = 0;
}

static void write_out(struct desk *d, struct client *c)
{
    while (c->out_sent < c->out_len) {
        const ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            hang_up(d, c);
        if (n < 0)
            return;
        c->out_sent += (size_t)n;
    }
    c->out_len = c->out_sent = 0;
}

static void append(struct desk *d, struct client *c, const void *words, size_t len)
{
    if (c->out_len + len > c->out_capacity) {
        const size_t more = c->out_capacity ? 2 * c->out_capacity : READ_LEN;
        char *grown = realloc(c->out, more);
        if (!grown) {
            d->failed = true;
            return;
        }
        c->out = grown;
        c->out_capacity = more;
    }
    memcpy(c->out + c->out_len, words, len);
    c->out_len += len;
}

static void say(struct desk *d, uint32_t place, const struct desk_match *match)
{
    struct client *c = d->of_rank[DESK_MAIL][place / d->nports];
    if (!c)
        return;
    c->last = c->out_len + 1;
    append(d, c, match, sizeof(*match));
}

/* The round is over: what it has matched is an epoch, and what all have promised is news. */
static void end_round(struct desk *d)
{
    const uint32_t ends = 1;
    for (uint32_t i = 0; d->risen && i < d->nranks; i++)
        if (d->of_rank[DESK_TALLY][i])
            append(d, d->of_rank[DESK_TALLY][i], &d->ready, sizeof(d->ready));
    d->risen = false;
    for (uint32_t i = 0; i < d->nclients; i++) {
        struct client *c = &d->clients[i];
        if (c->last)
            memcpy(c->out + c->last - 1 + offsetof(struct desk_match, ends_epoch), &ends,
                   sizeof(ends));
        c->last = 0;
        if (c->fd >= 0)
            write_out(d, c);
    }
}

/* ---- matching ---- */

static bool fits(const struct desk_post *send, const struct desk_post *recv)
{
    return send->tag == recv->tag && (recv->peer == DESK_ANYONE || recv->peer == send->place);
}

/* The oldest one that fits, taken out; NULL: none. */
static struct entry *take_fitting(struct pile *pile, const struct desk_post *post)
{
    for (struct entry **link = &pile->first, *e; (e = *link) != NULL; link = &e->next) {
        const bool sends = e->post.kind == COLLRUN_SEND;
        if (!fits(sends ? &e->post : post, sends ? post : &e->post))
            continue;
        *link = e->next;
        if (!e->next)
            pile->end = link;
        return e;
    }
    return NULL;
}

static void keep(struct desk *d, struct pile *pile, const struct desk_post *post)
{
    struct entry *e = malloc(sizeof(*e));
    if (!e) {
        d->failed = true;
        return;
    }
    *e = (struct entry){.post = *post};
    *pile->end = e;
    pile->end = &e->next;
}

static void say_both(struct desk *d, const struct desk_post *a, const struct desk_post *b)
{
    say(d, a->place,
        &(struct desk_match){.id = a->id, .count = b->count, .dtype = b->dtype, .place = b->place});
    say(d, b->place,
        &(struct desk_match){.id = b->id, .count = a->count, .dtype = a->dtype, .place = a->place});
}

/* False: nobody in their right mind would post this. */
static bool take_post(struct desk *d, const struct client *c, const struct desk_post *post)
{
    const uint32_t places = d->nranks * d->nports;
    const bool sends = post->kind == COLLRUN_SEND;
    if (post->kind < COLLRUN_SEND || post->kind > COLLRUN_RECV_ANY || post->place >= places ||
        post->place / d->nports != c->rank ||
        (post->peer >= places && (sends || post->peer != DESK_ANYONE)))
        return false;
    const uint32_t receiver = sends ? post->peer : post->place;
    struct entry *other = take_fitting(sends ? &d->recvs[receiver] : &d->sends[receiver], post);
    if (other)
        say_both(d, &other->post, post);
    else
        keep(d, sends ? &d->sends[receiver] : &d->recvs[receiver], post);
    free(other);
    return true;
}

/* ---- promises ---- */

/* False: it takes some back. */
static bool take_promise(struct desk *d, const struct client *c, uint64_t count)
{
    if (count <= d->promised[c->rank])
        return false;
    const bool was_last = d->promised[c->rank] == d->ready;
    d->promised[c->rank] = count;
    if (!was_last)
        return true;
    for (uint32_t i = 0; i < d->nranks; i++)
        count = d->promised[i] < count ? d->promised[i] : count;
    d->risen = d->risen || count > d->ready;
    d->ready = count;
    return true;
}

/* ---- reading ---- */

static bool greet(struct desk *d, struct client *c, const struct desk_hello *hello)
{
    if (hello->secret != d->secret || hello->rank >= d->nranks || hello->sort >= DESK_SORTS ||
        d->of_rank[hello->sort][hello->rank])
        return false;
    c->known = true;
    c->rank = hello->rank;
    c->sort = hello->sort;
    d->of_rank[c->sort][c->rank] = c;
    d->joined++;
    return true;
}

static size_t frame_len(const struct client *c)
{
    return !c->known               ? sizeof(struct desk_hello)
           : c->sort == DESK_TALLY ? sizeof(uint64_t)
                                   : sizeof(struct desk_post);
}

static bool take_frame(struct desk *d, struct client *c, const char *frame)
{
    struct desk_hello hello;
    struct desk_post post;
    uint64_t count;
    if (!c->known) {
        memcpy(&hello, frame, sizeof(hello));
        return greet(d, c, &hello);
    }
    if (c->sort == DESK_TALLY) {
        memcpy(&count, frame, sizeof(count));
        return take_promise(d, c, count);
    }
    memcpy(&post, frame, sizeof(post));
    return take_post(d, c, &post);
}

/* False: it is none of us. */
static bool digest(struct desk *d, struct client *c)
{
    size_t at = 0, len;
    bool good = true;
    while (good && c->in_len - at >= (len = frame_len(c))) {
        good = take_frame(d, c, c->in + at);
        at += len;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
    return good;
}

static void hear(struct desk *d, struct client *c)
{
    for (;;) {
        const ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0)
            c->in_len += (size_t)n;
        if (n <= 0 || !digest(d, c)) {
            hang_up(d, c);
            return;
        }
    }
}

/* A free one, or that of the stranger who has been silent for the longest time: there are always
 * more places than ranks have. */
static struct client *make_room(struct desk *d)
{
    struct client *oldest = NULL;
    for (uint32_t i = 0; i < d->nclients; i++) {
        struct client *c = &d->clients[i];
        if (c->fd < 0)
            return c;
        if (!c->known && (!oldest || c->came < oldest->came))
            oldest = c;
    }
    hang_up(d, oldest);
    return oldest;
}

static void let_in(struct desk *d)
{
    int fd;
    while ((fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct client *c = make_room(d);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        c->fd = fd;
        c->came = d->came++;
    }
}

/* ---- the thread ---- */

static void prepare(struct desk *d)
{
    d->polled[0] = (struct pollfd){.fd = d->stop, .events = POLLIN};
    d->polled[1] = (struct pollfd){.fd = d->joined < DESK_SORTS * d->nranks ? d->listener : -1,
                                   .events = POLLIN};
    for (uint32_t i = 0; i < d->nclients; i++) {
        const struct client *c = &d->clients[i];
        d->polled[2 + i] = (struct pollfd){.fd = c->fd, .events = POLLIN};
        if (c->out_sent < c->out_len)
            d->polled[2 + i].events |= POLLOUT;
    }
}

static void *serve(void *arg)
{
    struct desk *d = arg;
    while (!d->failed && d->gone < d->nranks) {
        prepare(d);
        if (poll(d->polled, 2 + d->nclients, -1) < 0 && errno != EINTR)
            break;
        if (d->polled[0].revents)
            break;
        for (uint32_t i = 0; i < d->nclients; i++)
            if (d->polled[2 + i].revents & ~POLLOUT && d->clients[i].fd >= 0)
                hear(d, &d->clients[i]);
        if (d->polled[1].revents)
            let_in(d);
        end_round(d);
    }
    for (uint32_t i = 0; i < d->nclients; i++) /* who still waits hears of it */
        if (d->clients[i].fd >= 0)
            hang_up(d, &d->clients[i]);
    return NULL;
}

/* ---- life ---- */

static void pile_free(struct pile *pile)
{
    for (struct entry *e = pile->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
}

static void release(struct desk *d)
{
    for (uint32_t i = 0; i < d->nranks * d->nports; i++) {
        if (d->sends)
            pile_free(&d->sends[i]);
        if (d->recvs)
            pile_free(&d->recvs[i]);
    }
    if (d->stop >= 0)
        close(d->stop);
    free(d->clients);
    for (int i = 0; i < DESK_SORTS; i++)
        free(d->of_rank[i]);
    free(d->promised);
    free(d->sends);
    free(d->recvs);
    free(d->polled);
    free(d);
}

static bool furnish(struct desk *d)
{
    const uint32_t places = d->nranks * d->nports;
    d->clients = calloc(d->nclients, sizeof(*d->clients));
    for (int i = 0; i < DESK_SORTS; i++)
        d->of_rank[i] = calloc(d->nranks, sizeof(struct client *));
    d->promised = calloc(d->nranks, sizeof(*d->promised));
    d->sends = calloc(places, sizeof(*d->sends));
    d->recvs = calloc(places, sizeof(*d->recvs));
    d->polled = calloc(2 + d->nclients, sizeof(*d->polled));
    if (!d->clients || !d->of_rank[DESK_MAIL] || !d->of_rank[DESK_TALLY] || !d->promised ||
        !d->sends || !d->recvs || !d->polled || d->stop < 0)
        return false;
    for (uint32_t i = 0; i < d->nclients; i++)
        d->clients[i].fd = -1;
    for (uint32_t i = 0; i < places; i++) {
        d->sends[i].end = &d->sends[i].first;
        d->recvs[i].end = &d->recvs[i].first;
    }
    return true;
}

struct desk *desk_new(int listener, uint64_t secret, uint32_t nranks, uint32_t nports)
{
    struct desk *d = calloc(1, sizeof(*d));
    sigset_t all, before;
    if (!d)
        return NULL;
    *d = (struct desk){.listener = listener,
                       .stop = eventfd(0, EFD_CLOEXEC),
                       .secret = secret,
                       .nranks = nranks,
                       .nports = nports,
                       .nclients = DESK_SORTS * nranks + STRANGERS};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool good = furnish(d) && pthread_create(&d->thread, NULL, serve, d) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (good)
        return d;
    release(d);
    return NULL;
}

void desk_free(struct desk *d, bool at_once)
{
    if (at_once)
        eventfd_write(d->stop, 1);
    pthread_join(d->thread, NULL);
    close(d->listener);
    release(d);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for the connections of the tcp backend, from the first byte on: HELLO and ANSWER
 * of peers that know the keys or do not, in any order, and frames after them. The input is a series
 * of operations of two bytes, some with bytes behind them. The process under test is rank 1; this
 * one plays rank 0 and 2, and other programs, over real sockets.
 *
 * Beside the sanitizers, what link.h says is the oracle: the loss of a peer is reported once, and
 * no packet after it.
 */
#include "link.c" /* link_free, which waits for no peer */

#include <netinet/in.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SELF = 1, RANKS = 3, SOCKETS = 6, PUT_LEN = 600000 };

enum operation {
    OPEN_SOCKET, /* to the listener of rank 1 */
    SEND_HELLO,  /* valid: its rank and channel follow */
    SEND_BYTES,  /* the length and the bytes follow */
    CLOSE_SOCKET,
    OPEN_PEER,
    CONNECT,     /* rank 1 dials; this process accepts */
    SEND_ANSWER, /* valid: its verdict follows */
    SEND_PACKET,
    PUT, /* begins, or is given up */
    PROGRESS,
    OPERATIONS
};

static const char zeros[PUT_LEN];

struct world {
    struct link *link;
    struct link_peer *peers[RANKS];
    int lost[RANKS];
    int sockets[SOCKETS];
    int listen_fd; /* of the ranks that this process plays */
    struct handshake_address address;
    struct link_put put; /* of data that needs several sockets */
    bool putting;
};

struct input {
    const uint8_t *at, *end;
};

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static uint8_t take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* ---- the caller of the link ---- */

static void on_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    (void)ctx, (void)level, (void)format;
}

static int on_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx, (void)format;
    return status;
}

static const char *on_option(void *ctx, const char *key)
{
    (void)ctx;
    return strcmp(key, "sockets") == 0 ? "3" : NULL;
}

static void on_packet(void *ctx, void *cookie, const void *header, const void *data, size_t len)
{
    const struct world *w = ctx;
    volatile uint8_t sum = 0;
    must(!w->lost[(uintptr_t)cookie], "no packet comes after the loss of its peer");
    for (size_t i = 0; i < LINK_HEADER_LEN; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)header)[i]);
    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
}

/* Dropped. */
static bool on_long_packet(void *ctx, void *cookie, const void *header, size_t len,
                           struct link_landing **landing)
{
    on_packet(ctx, cookie, header, NULL, 0);
    must(len > 0, "a long packet has data");
    *landing = NULL;
    return true;
}

static void on_lost(void *ctx, void *cookie, const struct link_loss *loss)
{
    struct world *w = ctx;
    must(loss->text != NULL, "a loss has a text");
    must(w->lost[(uintptr_t)cookie]++ == 0, "the loss of a peer is reported once");
}

static void on_sent(struct link_put *put)
{
    struct world *w = (struct world *)(void *)((char *)put - offsetof(struct world, put));
    must(w->putting, "a put ends once");
    w->putting = false;
}

/* ---- the peers ---- */

static void open_listener(struct world *w)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    w->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(w->listen_fd >= 0 && bind(w->listen_fd, (void *)&at, sizeof at) == 0 &&
             listen(w->listen_fd, SOCKETS) == 0 &&
             getsockname(w->listen_fd, (void *)&at, &len) == 0,
         "there is a loopback");
    memcpy(&w->address.socket, &at, sizeof at);
    w->address.len = sizeof at;
    memset(w->address.hello_key, 1, sizeof w->address.hello_key);
    memset(w->address.answer_key, 2, sizeof w->address.answer_key);
}

/* At once, without a connection in TIME_WAIT. */
static void close_socket(int *fd)
{
    if (*fd < 0)
        return;
    setsockopt(*fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(*fd);
    *fd = -1;
}

static void keep_socket(struct world *w, uint8_t slot, int fd)
{
    close_socket(&w->sockets[slot % SOCKETS]);
    w->sockets[slot % SOCKETS] = fd;
}

static void send_bytes(int fd, const void *bytes, size_t len)
{
    if (fd >= 0 && send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* rank 1 has closed it */
}

static void send_hello(const struct world *w, int fd, struct input *in)
{
    struct handshake_hello hello = {.from = take(in) % RANKS, .to = SELF, .channel = take(in)};
    handshake_hello_seal(&hello, &w->link->self);
    send_bytes(fd, &hello, sizeof hello);
}

static void send_answer(const struct world *w, int fd, struct input *in)
{
    struct handshake_hello hello;
    struct handshake_answer answer = {.verdict = take(in) % 5};
    if (fd < 0 || recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != (ssize_t)sizeof hello)
        return;
    handshake_answer_seal(&answer, &hello, &w->address);
    send_bytes(fd, &answer, sizeof answer);
}

/* ---- operations ---- */

static void open_socket(struct world *w, uint8_t slot)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0, "there are sockets");
    if (connect(fd, (void *)&w->link->self.socket, w->link->self.len) != 0)
        close_socket(&fd); /* no port is free */
    keep_socket(w, slot, fd);
}

static void open_peer(struct world *w, uint32_t rank)
{
    struct link_peer_config config = {.world_rank = rank,
                                      .address = &w->address,
                                      .len = sizeof w->address,
                                      .name = "a peer",
                                      .cookie = (void *)(uintptr_t)rank};
    if (rank != SELF && !w->peers[rank])
        must(link_peer_open(w->link, &config, &w->peers[rank]) == COLLRUN_OK, "a peer opens");
}

static void connect_peer(struct world *w, uint32_t rank, uint8_t slot)
{
    if (w->peers[rank])
        link_connect(w->peers[rank]);
    link_accept(w->link);
    int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        keep_socket(w, slot, fd);
}

static void start_put(struct world *w, uint32_t rank)
{
    if (w->putting)
        link_unput(w->link, &w->put);
    w->putting = !w->putting && w->peers[rank] && w->peers[rank]->state == PEER_UP;
    if (!w->putting)
        return;
    w->put = (struct link_put){
        .peer = w->peers[rank], .token = 1, .data = zeros, .len = PUT_LEN, .sent = on_sent};
    link_put(w->link, &w->put);
}

static void send_input(int fd, struct input *in)
{
    size_t len = take(in), left = (size_t)(in->end - in->at);
    len = len < left ? len : left;
    send_bytes(fd, in->at, len);
    in->at += len;
}

static void operate(struct world *w, struct input *in)
{
    const uint8_t operation = take(in) % OPERATIONS, which = take(in);
    const uint32_t rank = which % RANKS;
    int *fd = &w->sockets[which % SOCKETS];
    if (operation == OPEN_SOCKET)
        open_socket(w, which);
    else if (operation == SEND_HELLO)
        send_hello(w, *fd, in);
    else if (operation == SEND_BYTES)
        send_input(*fd, in);
    else if (operation == CLOSE_SOCKET)
        close_socket(fd);
    else if (operation == OPEN_PEER)
        open_peer(w, rank);
    else if (operation == CONNECT)
        connect_peer(w, rank, which);
    else if (operation == SEND_ANSWER)
        send_answer(w, *fd, in);
    else if (operation == SEND_PACKET && w->peers[rank])
        link_send(w->peers[rank], zeros, zeros, which);
    else if (operation == PUT)
        start_put(w, rank);
    link_accept(w->link);
    if (operation == PROGRESS)
        link_progress(w->link);
}

static uint64_t on_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void open_world(struct world *w)
{
    static const struct collrun_services services = {
        .log = on_log, .fail = on_fail, .option = on_option, .now_ns = on_now_ns};
    const struct link_config config = {.services = &services,
                                       .options = &services,
                                       .world_rank = SELF,
                                       .address = "127.0.0.1",
                                       .upcalls = {w, on_packet, on_long_packet, on_lost}};
    *w = (struct world){0};
    for (int i = 0; i < SOCKETS; i++)
        w->sockets[i] = -1;
    open_listener(w);
    must(link_open(&config, &w->link) == COLLRUN_OK, "a link opens");
    link_add_group(w->link, &services);
}

static void close_world(struct world *w)
{
    for (int i = 0; i < SOCKETS; i++)
        close_socket(&w->sockets[i]);
    close_socket(&w->listen_fd);
    link_accept(w->link);
    link_progress(w->link);
    if (w->putting)
        link_unput(w->link, &w->put);
    link_free(w->link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct world w;
    open_world(&w);
    while (in.at < in.end)
        operate(&w, &in);
    close_world(&w);
    return 0;
}

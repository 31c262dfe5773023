/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs in which rank 1 is late for an allreduce of all ranks, for `ms` milliseconds. The
 * parameter `program` says how: it sleeps, spins, reads from a pipe, or waits in system calls that
 * are not restarted after a stop (`epoll`). The other ranks wait in the call, or start it and poll
 * it (`poll`); with `tick` each rank has a thread that wakes every few milliseconds. With `recv`,
 * rank 0 receives a message of rank 1 instead, which it polls; before, it has posted a receive for
 * the last message of the job. `beat` is for a background workload.
 */
#include <collrun/workload.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void *write_later(void *arg)
{
    const int *fd = arg;
    pause_ms(fd[1]);
    if (write(fd[0], "x", 1) != 1)
        abort();
    return NULL;
}

static int read_slowly(long ms)
{
    int ends[2];
    char c;
    pthread_t writer;
    if (pipe(ends) != 0)
        return 98;
    int later[2] = {ends[1], (int)ms};
    if (pthread_create(&writer, NULL, write_later, later) != 0)
        return 98;
    ssize_t n = read(ends[0], &c, 1); /* the line of read */
    pthread_join(writer, NULL);
    return n == 1 ? 0 : 98;
}

/* Without a signal: no EINTR. */
static void *receive_slowly(void *arg)
{
    const long *ms = arg;
    int ends[2];
    char c;
    struct timeval t = {*ms / 1000, *ms % 1000 * 1000};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 ||
        setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0)
        return "no socket";
    return recv(ends[0], &c, 1, 0) < 0 && errno == EAGAIN ? NULL : "recv was interrupted";
}

static int epoll_slowly(long ms)
{
    struct epoll_event event;
    pthread_t receiver;
    void *why = NULL;
    int fd = epoll_create1(0);
    if (fd < 0 || pthread_create(&receiver, NULL, receive_slowly, &ms) != 0)
        return 98;
    int n = epoll_wait(fd, &event, 1, (int)ms); /* the line of epoll_wait */
    pthread_join(receiver, &why);
    if (n != 0)
        why = "epoll_wait was interrupted";
    if (why)
        fprintf(stderr, "%s\n", (const char *)why);
    return why ? 98 : 0;
}

static int spin(long ms)
{
    long end = now_ms() + ms;
    volatile unsigned turns = 0;
    while (turns++ % 65536 || now_ms() < end)
        continue;
    return 0;
}

static __attribute__((noinline)) int load_batch(const char *program, long ms)
{
    if (strcmp(program, "read") == 0)
        return read_slowly(ms);
    if (strcmp(program, "epoll") == 0)
        return epoll_slowly(ms);
    if (strcmp(program, "spin") == 0)
        return spin(ms);
    pause_ms(ms);
    return 0;
}

static void *tick(void *arg)
{
    const volatile bool *stop = arg;
    while (!*stop)
        pause_ms(3);
    return NULL;
}

static int start_and_poll(struct collrun_group *g, const struct collrun_call *call)
{
    struct collrun_request *request;
    int status = collrun_start(g, call, &request);
    while (status == COLLRUN_OK && (status = collrun_test(request)) == COLLRUN_AGAIN) {
        pause_ms(1);
        status = COLLRUN_OK;
    }
    return status;
}

static int allreduce(struct collrun_group *g, bool poll)
{
    static int one = 1, sum;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    if (!poll)
        return collrun_allreduce(g, &one, &sum, 1, COLLRUN_INT32, COLLRUN_SUM);
    call.send = &one;
    call.recv = &sum;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    call.op = COLLRUN_SUM;
    return start_and_poll(g, &call);
}

static struct collrun_call recv_call(int *in, int peer, unsigned tag)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    call.recv = in;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    call.tag = tag;
    return call;
}

/* Rank 2 sends when the others are done. */
static int messages(struct collrun_group *g, int me, long ms)
{
    int one = 1, in, last;
    struct collrun_call call = recv_call(&in, 1, 7), call_last = recv_call(&last, 2, 9);
    struct collrun_request *request = NULL;
    int status = me == 0 ? collrun_start(g, &call_last, &request) : COLLRUN_OK;
    call.send = &one;
    for (int i = 0; status == COLLRUN_OK && i < 8 && me < 2; i++) {
        if (i == 3)
            pause_ms(me == 1 ? ms : 200);
        call.kind = me ? COLLRUN_SEND : COLLRUN_RECV;
        call.peer = !me;
        status = start_and_poll(g, &call);
    }
    if (me == 2) {
        pause_ms(ms);
        call.kind = COLLRUN_SEND;
        call.peer = 0;
        call.tag = 9;
        status = start_and_poll(g, &call);
    }
    return request ? collrun_wait(request) : status;
}

/* The ranks agree on the last iteration. */
static int beat(struct collrun_ctx *ctx)
{
    struct collrun_group *g;
    int all_stop = 0, status = collrun_group_get(ctx, "beat", &g);
    while (status == COLLRUN_OK && !all_stop) {
        const int mine = collrun_stopping(ctx);
        status = collrun_allreduce(g, &mine, &all_stop, 1, COLLRUN_INT32, COLLRUN_MIN);
        pause_ms(20);
    }
    return status;
}

/* Rank 1 is late for the creation of a group, or for a split. */
static int form(struct collrun_ctx *ctx, struct collrun_group *world, bool split)
{
    struct collrun_group_options options = {.size = sizeof options};
    struct collrun_group *made;
    const int ranks[] = {1, 2};
    options.name = "pair";
    options.ranks = ranks;
    options.nranks = 2;
    if (collrun_world_rank(ctx) == 1)
        pause_ms((long)collrun_param_int(ctx, "ms"));
    if (split)
        return collrun_group_split(world, 0, 0, "part", &made);
    return collrun_world_rank(ctx) ? collrun_group_create(ctx, &options, &made) : 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    const char *program = collrun_param_string(ctx, "program");
    struct collrun_group *g;
    pthread_t ticker;
    bool stop = false, ticks = strcmp(program, "tick") == 0;
    (void)state;
    if (strcmp(program, "beat") == 0)
        return beat(ctx);
    if (ticks && pthread_create(&ticker, NULL, tick, &stop) != 0)
        return 98;
    int status = collrun_group_get(ctx, "world", &g);
    if (status == COLLRUN_OK && strcmp(program, "recv") == 0)
        return messages(g, collrun_world_rank(ctx), (long)collrun_param_int(ctx, "ms"));
    if (status == COLLRUN_OK && (strcmp(program, "create") == 0 || strcmp(program, "split") == 0))
        return form(ctx, g, strcmp(program, "split") == 0);
    for (int i = 0; status == COLLRUN_OK && i < 8; i++) {
        status = allreduce(g, strcmp(program, "poll") == 0);
        if (i == 3 && collrun_world_rank(ctx) == 1 && status == COLLRUN_OK)
            status = load_batch(program, (long)collrun_param_int(ctx, "ms"));
    }
    stop = true;
    if (ticks)
        pthread_join(ticker, NULL);
    return status;
}

static const struct collrun_param params[] = {
    {.name = "program", .type = COLLRUN_PARAM_STRING, .def = "sleep", .help = "what rank 1 does"},
    {.name = "ms", .type = COLLRUN_PARAM_INT, .def = "2500", .help = "for how long"},
    {.name = NULL},
};

COLLRUN_WORKLOAD(.name = "stall_programs", .summary = "rank 1 is late", .params = params,
                 .run = run);

/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs without a fault whose messages need progress at a certain moment, and many short-lived
 * groups.
 *   what    send_later     each rank starts a receive from the left, works, starts a send to the
 *                          right, and waits for both
 *           receive_later  the same with the send first
 *           threads        one thread waits for the left; another one works, and sends to the right
 *           polled         rank 1 takes messages of rank 0 by collrun_test alone
 *           looks          one thread of rank 0 waits for a message of rank 1; another one looks
 * for the message that has to come first, every `ms`, `times` times at most groups         the
 * group is split, used and destroyed, again and again; then many of its kind are open at the same
 * time ms      of work count   int32 in a message times   messages, or groups held    groups that
 * are open at the same time sockets rank 0 prints at the end how many sockets it has
 */
#include <collrun/workload.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD_MAX = 1000 };

struct program {
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    int rank, size, ms, times, held;
    size_t count;
    int32_t *in, *out; /* `count` elements each */
};

static const struct collrun_param params[] = {
    {.name = "what", .type = COLLRUN_PARAM_STRING, .help = "which program", .def = "groups"},
    {.name = "ms", .type = COLLRUN_PARAM_INT, .help = "of work", .def = "0"},
    {.name = "count", .type = COLLRUN_PARAM_INT, .help = "int32 in a message", .def = "1"},
    {.name = "times", .type = COLLRUN_PARAM_INT, .help = "messages, or groups", .def = "1"},
    {.name = "held", .type = COLLRUN_PARAM_INT, .help = "groups open at a time", .def = "0"},
    {.name = "sockets", .type = COLLRUN_PARAM_BOOL, .help = "print them", .def = "false"},
    {0}};

static struct collrun_call message(struct program *p, bool sends)
{
    struct collrun_call call = COLLRUN_CALL(sends ? COLLRUN_SEND : COLLRUN_RECV);
    call.peer = (p->rank + (sends ? 1 : p->size - 1)) % p->size;
    call.send = p->out;
    call.recv = p->in;
    call.count = p->count;
    call.dtype = COLLRUN_INT32;
    return call;
}

static int verify(const struct program *p, int from)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->in[i] != from + (int32_t)i)
            return collrun_fail(p->ctx, "element %zu is %d instead of %d", i, p->in[i],
                                from + (int32_t)i);
    }
    return COLLRUN_OK;
}

/* ---- a ring, in which each rank works between its two starts ---- */

static int ring(struct program *p, bool send_first)
{
    const struct collrun_call first = message(p, send_first), second = message(p, !send_first);
    struct collrun_request *requests[2];
    int rc = collrun_start(p->g, &first, &requests[0]);
    if (rc != COLLRUN_OK)
        return rc;
    usleep(1000 * (useconds_t)p->ms);
    rc = collrun_start(p->g, &second, &requests[1]);
    if (rc == COLLRUN_OK)
        rc = collrun_wait_all(requests, 2);
    return rc == COLLRUN_OK ? verify(p, (p->rank + p->size - 1) % p->size) : rc;
}

static void *send_later(void *arg)
{
    struct program *p = arg;
    usleep(1000 * (useconds_t)p->ms);
    return (void *)(intptr_t)collrun_send(p->g, p->out, p->count, COLLRUN_INT32,
                                          (p->rank + 1) % p->size);
}

static int two_threads(struct program *p)
{
    const int left = (p->rank + p->size - 1) % p->size;
    pthread_t sender;
    void *sent;
    if (pthread_create(&sender, NULL, send_later, p) != 0)
        return COLLRUN_ERR_SYSTEM;
    int rc = collrun_recv(p->g, p->in, p->count, COLLRUN_INT32, left);
    pthread_join(sender, &sent);
    rc = rc == COLLRUN_OK ? (int)(intptr_t)sent : rc;
    return rc == COLLRUN_OK ? verify(p, left) : rc;
}

/* ---- polling ---- */

static int polled(struct program *p)
{
    struct collrun_call call = message(p, p->rank == 0);
    int rc = COLLRUN_OK;
    for (int i = 0; i < p->times && rc == COLLRUN_OK; i++) {
        struct collrun_request *request;
        rc = collrun_start(p->g, &call, &request);
        if (rc == COLLRUN_OK && p->rank == 0)
            rc = collrun_wait(request);
        while (rc == COLLRUN_OK && p->rank == 1 && (rc = collrun_test(request)) == COLLRUN_AGAIN) {
            sched_yield();
            rc = COLLRUN_OK;
        }
        if (rc == COLLRUN_OK && p->rank == 1)
            rc = verify(p, 0);
    }
    return rc;
}

/* ---- looking ---- */

static void *receive_last(void *arg)
{
    struct program *p = arg;
    return (void *)(intptr_t)collrun_recv(p->g, p->in, p->count, COLLRUN_INT32, 1);
}

/* Rank 1 sends the last message when it knows that the first one was found. */
static int looked_at(struct program *p, const struct collrun_call *first)
{
    int rc = collrun_run(p->g, first, 1);
    if (rc == COLLRUN_OK)
        rc = collrun_recv(p->g, p->in, p->count, COLLRUN_INT32, 0);
    return rc == COLLRUN_OK ? collrun_send(p->g, p->out, p->count, COLLRUN_INT32, 0) : rc;
}

static int looks(struct program *p)
{
    struct collrun_message_info info = {.size = sizeof info};
    struct collrun_call first = message(p, p->rank == 1);
    pthread_t receiver;
    void *received;
    int rc = COLLRUN_AGAIN;
    first.tag = 7;
    if (p->rank == 1)
        return looked_at(p, &first);
    if (pthread_create(&receiver, NULL, receive_last, p) != 0)
        return COLLRUN_ERR_SYSTEM;
    for (int i = 0; i < p->times && rc == COLLRUN_AGAIN; i++) {
        usleep(1000 * (useconds_t)p->ms);
        rc = collrun_iprobe(p->g, 1, 7, &info);
    }
    if (rc == COLLRUN_AGAIN)
        return collrun_fail(p->ctx, "no look has found the message");
    first.recv = calloc(p->count, sizeof *p->in);
    if (rc == COLLRUN_OK)
        rc = first.recv ? collrun_run(p->g, &first, 1) : COLLRUN_ERR_NO_MEMORY;
    free(first.recv);
    if (rc == COLLRUN_OK)
        rc = collrun_send(p->g, p->out, p->count, COLLRUN_INT32, 1);
    pthread_join(receiver, &received);
    rc = rc == COLLRUN_OK ? (int)(intptr_t)received : rc;
    return rc == COLLRUN_OK ? verify(p, 1) : rc;
}

/* ---- groups ---- */

/* Both handles of a group are used. */
static int form(struct program *p, int number, struct collrun_group **g)
{
    char name[16];
    snprintf(name, sizeof name, "part%d", number);
    int rc = collrun_group_split(p->g, 0, p->rank, name, g);
    const int right = (p->rank + 1) % p->size, left = (p->rank + p->size - 1) % p->size;
    if (rc == COLLRUN_OK)
        rc = collrun_barrier(*g);
    if (rc == COLLRUN_OK)
        rc = collrun_sendrecv(*g, p->out, p->count, right, p->in, p->count, left, COLLRUN_INT32);
    return rc == COLLRUN_OK ? verify(p, left) : rc;
}

static int groups(struct program *p)
{
    static struct collrun_group *held[HELD_MAX];
    int rc = COLLRUN_OK, nheld = 0;
    for (int i = 0; i < p->times && rc == COLLRUN_OK; i++) {
        rc = form(p, 0, &held[0]);
        if (rc == COLLRUN_OK)
            rc = collrun_group_destroy(held[0]);
    }
    for (; nheld < p->held && nheld < HELD_MAX && rc == COLLRUN_OK; nheld++)
        rc = form(p, nheld, &held[nheld]);
    while (nheld > 0 && rc == COLLRUN_OK)
        rc = collrun_group_destroy(held[--nheld]);
    return rc;
}

static void print_sockets(void)
{
    DIR *folder = opendir("/proc/self/fd");
    char path[64], target[64];
    int n = 0;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%.16s", e->d_name);
        const ssize_t len = readlink(path, target, sizeof target);
        n += len > 7 && memcmp(target, "socket:", 7) == 0;
    }
    if (folder)
        closedir(folder);
    printf("%d sockets\n", n);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    const char *what = collrun_param_string(ctx, "what");
    struct program p = {.ctx = ctx,
                        .ms = (int)collrun_param_int(ctx, "ms"),
                        .times = (int)collrun_param_int(ctx, "times"),
                        .held = (int)collrun_param_int(ctx, "held"),
                        .count = (size_t)collrun_param_int(ctx, "count")};
    (void)state;
    int rc = collrun_group_get(ctx, "world", &p.g);
    if (rc != COLLRUN_OK)
        return rc;
    p.rank = collrun_rank(p.g);
    p.size = collrun_size(p.g);
    p.in = calloc(p.count, sizeof *p.in);
    p.out = calloc(p.count, sizeof *p.out);
    if (!p.in || !p.out)
        return COLLRUN_ERR_NO_MEMORY;
    for (size_t i = 0; i < p.count; i++)
        p.out[i] = p.rank + (int32_t)i;
    rc = strcmp(what, "send_later") == 0      ? ring(&p, false)
         : strcmp(what, "receive_later") == 0 ? ring(&p, true)
         : strcmp(what, "threads") == 0       ? two_threads(&p)
         : strcmp(what, "polled") == 0        ? polled(&p)
         : strcmp(what, "looks") == 0         ? looks(&p)
                                              : groups(&p);
    if (rc == COLLRUN_OK && p.rank == 0 && collrun_param_bool(ctx, "sockets"))
        print_sockets();
    if (rc == COLLRUN_OK && p.rank == 0)
        printf("done\n");
    free(p.in);
    free(p.out);
    return rc;
}

COLLRUN_WORKLOAD(.name = "progress", .params = params, .run = run);

/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL called directly and through collrun, in one process, on the same GPU, alternately. A
 * workload: `host` is a group for host memory, which carries NCCL's id and the results; `gpu` is
 * the group under test. For every size it prints
 *
 *   call   host time until an allreduce is issued (ncclAllReduce against collrun_start)
 *   op     time of one allreduce that is waited for (stream query against the blocking call)
 *
 * each as the median of `iters`, the worst over the ranks, and the ratio of bandwidths. With
 * `messages` it measures a message to rank 1 and back instead: ncclSend and ncclRecv against
 * collrun_send and collrun_recv, which the group's coordinator matches first, unless the group has
 * `messages: direct`; and for comparison
 * the round trip of a byte on a TCP connection between the two, which a matched message costs; and
 * the CPU time until a message is started (ncclSend and ncclRecv against collrun_start).
 */
#include "backends/nccl/library.h"

#include <collrun/workload.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST_ITERS = 2000 };

struct bench {
    struct collrun_ctx *ctx;
    struct collrun_group *host, *gpu;
    struct libraries lib;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event;
    void *send, *recv;
    const char *port_file;
    int iters;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, by_value);
    return us[n / 2];
}

/* ---- directly ---- */

static int settle(struct bench *b, ncclResult_t result)
{
    while (result == ncclInProgress)
        if (b->lib.nccl.ncclCommGetAsyncError(b->comm, &result) != ncclSuccess)
            break;
    return result == ncclSuccess
               ? 0
               : collrun_fail(b->ctx, "NCCL: %s", b->lib.nccl.ncclGetErrorString(result));
}

static int connect_directly(struct bench *b, int blocking)
{
    ncclUniqueId id;
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = blocking,
                                 .cgaClusterSize = NCCL_UNDEFINED,
                                 .minCTAs = NCCL_UNDEFINED,
                                 .maxCTAs = NCCL_UNDEFINED,
                                 .splitShare = NCCL_UNDEFINED,
                                 .trafficClass = NCCL_UNDEFINED,
                                 .commName = "direct",
                                 .collnetEnable = NCCL_UNDEFINED,
                                 .CTAPolicy = NCCL_UNDEFINED,
                                 .shrinkShare = NCCL_UNDEFINED,
                                 .nvlsCTAs = NCCL_UNDEFINED,
                                 .nChannelsPerNetPeer = NCCL_UNDEFINED,
                                 .nvlinkCentricSched = NCCL_UNDEFINED};
    if (collrun_rank(b->host) == 0 && b->lib.nccl.ncclGetUniqueId(&id) != ncclSuccess)
        return collrun_fail(b->ctx, "no id from NCCL");
    int rc = collrun_broadcast(b->host, &id, sizeof id, COLLRUN_UINT8, 0);
    return rc ? rc
              : settle(b, b->lib.nccl.ncclCommInitRankConfig(&b->comm, collrun_size(b->host), id,
                                                             collrun_rank(b->host), &config));
}

static int finish_direct(struct bench *b)
{
    b->lib.cuda.cudaEventRecord(b->event, b->stream);
    while (b->lib.cuda.cudaEventQuery(b->event) == cudaErrorNotReady)
        ;
    return 0;
}

static int issue_direct(struct bench *b, size_t count)
{
    return settle(b, b->lib.nccl.ncclAllReduce(b->send, b->recv, count, ncclFloat32, ncclSum,
                                               b->comm, b->stream));
}

/* ---- both ---- */

struct figures {
    double call_us, op_us;
};

static int measure_direct(struct bench *b, size_t count, struct figures *out)
{
    static double call[MOST_ITERS], op[MOST_ITERS];
    for (int i = -10; i < b->iters; i++) {
        double begun = now_us();
        if (issue_direct(b, count))
            return 1;
        double issued = now_us();
        finish_direct(b);
        if (i >= 0) {
            call[i] = issued - begun;
            op[i] = now_us() - begun;
        }
    }
    *out = (struct figures){median(call, b->iters), median(op, b->iters)};
    return 0;
}

static int measure_collrun(struct bench *b, size_t count, struct figures *out)
{
    static double call[MOST_ITERS], op[MOST_ITERS];
    struct collrun_call c = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    c.send = b->send;
    c.recv = b->recv;
    c.count = count;
    c.dtype = COLLRUN_FLOAT32;
    c.op = COLLRUN_SUM;
    c.stream = b->stream;
    for (int i = -10; i < b->iters; i++) {
        struct collrun_request *r;
        double begun = now_us();
        int rc = collrun_start(b->gpu, &c, &r);
        double issued = now_us();
        if (rc || (rc = collrun_wait(r)))
            return rc;
        double again = now_us();
        rc = collrun_allreduce(b->gpu, b->send, b->recv, count, COLLRUN_FLOAT32, COLLRUN_SUM);
        if (rc)
            return rc;
        if (i >= 0) {
            call[i] = issued - begun;
            op[i] = now_us() - again;
        }
    }
    *out = (struct figures){median(call, b->iters), median(op, b->iters)};
    return 0;
}

static int compare(struct bench *b, size_t bytes)
{
    struct figures direct[2], through[2];
    double all[4];
    for (int i = 0; i < 2; i++) { /* twice, alternately; the better of each counts */
        int rc = measure_direct(b, bytes / 4, &direct[i]);
        if (!rc)
            rc = measure_collrun(b, bytes / 4, &through[i]);
        if (rc)
            return rc;
    }
    const struct figures *d = &direct[direct[1].op_us < direct[0].op_us],
                         *t = &through[through[1].op_us < through[0].op_us];
    all[0] = d->call_us, all[1] = t->call_us, all[2] = d->op_us, all[3] = t->op_us;
    int rc = collrun_allreduce(b->host, all, all, 4, COLLRUN_FLOAT64, COLLRUN_MAX);
    if (!rc && collrun_rank(b->host) == 0)
        printf("%12zu %10.2f %10.2f %+10.2f %10.1f %10.1f %8.3f\n", bytes, all[0], all[1],
               all[1] - all[0], all[2], all[3], all[2] / all[3]);
    fflush(stdout);
    return rc;
}

/* ---- messages ---- */

/* There and back, as rank 0 and rank 1 see it. */
static int round_trip(struct bench *b, size_t count, bool directly)
{
    const int rank = collrun_rank(b->host), peer = 1 - rank;
    for (int turn = 0; turn < 2; turn++) {
        const bool sends = turn == rank;
        int rc;
        if (directly)
            rc = settle(b, sends ? b->lib.nccl.ncclSend(b->send, count, ncclFloat32, peer, b->comm,
                                                        b->stream)
                                 : b->lib.nccl.ncclRecv(b->recv, count, ncclFloat32, peer, b->comm,
                                                        b->stream)) ||
                 finish_direct(b);
        else
            rc = sends ? collrun_send(b->gpu, b->send, count, COLLRUN_FLOAT32, peer)
                       : collrun_recv(b->gpu, b->recv, count, COLLRUN_FLOAT32, peer);
        if (rc)
            return rc;
    }
    return 0;
}

/* A connection between the two, by a file that holds the port: with libraries that do nothing, what
 * is broadcast does not come. -1: there is none. */
static int connect_by_tcp(struct bench *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    const bool listens = collrun_rank(b->host) == 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (listens && (bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) ||
                    getsockname(fd, (struct sockaddr *)&at, &len)))
        return -1;
    for (int turn = 0; turn < 2; turn++) {
        FILE *f = turn == !listens ? fopen(b->port_file, listens ? "w" : "r") : NULL;
        if (f && (listens ? fprintf(f, "%hu", at.sin_port) : fscanf(f, "%hu", &at.sin_port)) < 1)
            return -1;
        if (f)
            fclose(f);
        if (collrun_barrier(b->host))
            return -1;
    }
    if (listens)
        fd = accept(fd, NULL, NULL);
    else if (connect(fd, (struct sockaddr *)&at, sizeof at))
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
}

static int round_trip_by_tcp(struct bench *b, int fd)
{
    char byte = 0;
    for (int turn = 0; turn < 2; turn++)
        if ((turn == collrun_rank(b->host) ? send(fd, &byte, 1, 0) : recv(fd, &byte, 1, 0)) != 1)
            return collrun_fail(b->ctx, "the TCP connection broke");
    return 0;
}

/* CPU time of the calling thread: other programs of the machine do not count. */
static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The CPU time of each call, from rank 0 to rank 1: the calls of a window, which is waited for. */
static int time_calls(struct bench *b, size_t count, bool directly, double *us)
{
    enum { WINDOW = 16 };
    static double all[MOST_ITERS];
    const int rank = collrun_rank(b->host);
    struct collrun_call c = COLLRUN_CALL(rank == 0 ? COLLRUN_SEND : COLLRUN_RECV);
    struct collrun_request *requests[WINDOW];
    c.send = b->send;
    c.recv = b->recv;
    c.count = count;
    c.dtype = COLLRUN_FLOAT32;
    c.peer = 1 - rank;
    c.stream = b->stream;
    for (int i = 0, rc = 0; i < b->iters; i++) {
        const double begun = cpu_us();
        for (int k = 0; !rc && k < WINDOW; k++)
            if (!directly)
                rc = collrun_start(b->gpu, &c, &requests[k]);
            else if (rank == 0)
                rc = settle(
                    b, b->lib.nccl.ncclSend(b->send, count, ncclFloat32, 1, b->comm, b->stream));
            else
                rc = settle(
                    b, b->lib.nccl.ncclRecv(b->recv, count, ncclFloat32, 0, b->comm, b->stream));
        all[i] = (cpu_us() - begun) / WINDOW;
        if (!rc)
            rc = directly ? finish_direct(b) : collrun_wait_all(requests, WINDOW);
        if (rc)
            return rc;
    }
    *us = median(all, b->iters);
    return 0;
}

static int compare_calls(struct bench *b)
{
    double direct, through;
    int rc = time_calls(b, 256, true, &direct);
    if (!rc)
        rc = time_calls(b, 256, false, &through);
    if (!rc && collrun_rank(b->host) == 0)
        printf("#%11s %10s %10s %10s\n%12d %10.2f %10.2f %+10.2f\n", "bytes", "direct", "collrun",
               "more call us", 1024, direct, through, through - direct);
    return rc;
}

static int compare_messages(struct bench *b, size_t bytes, int fd)
{
    static double us[3][MOST_ITERS];
    for (int i = -10; i < b->iters; i++)
        for (int way = 0; way < 3; way++) {
            const double begun = now_us();
            const int rc = way == 2 ? round_trip_by_tcp(b, fd) : round_trip(b, bytes / 4, way == 0);
            if (rc)
                return rc;
            if (i >= 0)
                us[way][i] = now_us() - begun;
        }
    const double direct = median(us[0], b->iters), through = median(us[1], b->iters),
                 tcp = median(us[2], b->iters);
    if (collrun_rank(b->host) == 0)
        printf("%12zu %10.1f %10.1f %+10.1f %10.1f %10.2f\n", bytes, direct, through,
               through - direct, tcp, (through - direct) / tcp);
    fflush(stdout);
    return 0;
}

static int bench_messages(struct bench *b, size_t most)
{
    const int fd = connect_by_tcp(b);
    int rc = fd < 0 ? collrun_fail(b->ctx, "a TCP connection between the two ranks: %m") : 0;
    if (!rc && collrun_rank(b->host) == 0)
        printf("#%11s %10s %10s %10s %10s %10s\n", "bytes", "direct us", "collrun us", "more us",
               "tcp us", "more/tcp");
    for (size_t bytes = 1024; !rc && bytes <= most; bytes *= 1024)
        rc = compare_messages(b, bytes, fd);
    return rc ? rc : compare_calls(b);
}

/* ---- the workload ---- */

static int prepare(struct bench *b, size_t most)
{
    char why[256];
    int least = 0, greatest = 0;
    if (libraries_load(&b->lib, why, sizeof why) != 0)
        return collrun_fail(b->ctx, "%s", why);
    const struct cuda_api *cuda = &b->lib.cuda;
    cuda->cudaSetDevice(0);
    cuda->cudaDeviceGetStreamPriorityRange(&least, &greatest);
    int error = cuda->cudaStreamCreateWithPriority(&b->stream, cudaStreamNonBlocking, greatest);
    if (!error)
        error = cuda->cudaEventCreateWithFlags(&b->event, cudaEventDisableTiming);
    if (!error)
        error = cuda->cudaMalloc(&b->send, most);
    if (!error)
        error = cuda->cudaMalloc(&b->recv, most);
    if (!error)
        error = cuda->cudaMemsetAsync(b->send, 0, most, b->stream);
    return error ? collrun_fail(b->ctx, "CUDA: %s", cuda->cudaGetErrorString(error)) : 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct bench b = {.ctx = ctx,
                      .iters = (int)collrun_param_int(ctx, "iters"),
                      .port_file = collrun_param_string(ctx, "port_file")};
    size_t most = collrun_param_size(ctx, "max");
    int rc = collrun_group_get(ctx, "host", &b.host);
    if (!rc)
        rc = collrun_group_get(ctx, "gpu", &b.gpu);
    if (!rc)
        rc = prepare(&b, most);
    if (!rc)
        rc = connect_directly(&b, (int)collrun_param_int(ctx, "blocking"));
    if (!rc && collrun_param_bool(ctx, "messages"))
        return bench_messages(&b, most);
    if (!rc && collrun_rank(b.host) == 0)
        printf("#%11s %10s %10s %10s %10s %10s %8s\n#%11s %10s %10s %10s %10s %10s %8s\n", "bytes",
               "direct", "collrun", "more", "direct", "collrun", "ratio", "", "call us", "call us",
               "us", "op us", "op us", "of bw");
    for (size_t bytes = 8; !rc && bytes <= most; bytes *= 8)
        rc = compare(&b, bytes);
    if (b.comm)
        b.lib.nccl.ncclCommAbort(b.comm);
    return rc;
}

static const struct collrun_param params[] = {
    {.name = "iters", .type = COLLRUN_PARAM_INT, .def = "200", .min = "1", .max = "2000"},
    {.name = "max", .type = COLLRUN_PARAM_SIZE, .def = "128MiB", .min = "8"},
    {.name = "blocking",
     .type = COLLRUN_PARAM_INT,
     .def = "0",
     .min = "0",
     .max = "1",
     .help = "whether the communicator that is used directly blocks"},
    {.name = "messages",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "messages between two ranks instead"},
    {.name = "port_file", .type = COLLRUN_PARAM_STRING, .def = "", .help = "for a TCP port"},
    {0},
};

COLLRUN_WORKLOAD(.name = "nccl_vs_direct", .summary = "NCCL beside collrun on NCCL",
                 .params = params, .run = run);

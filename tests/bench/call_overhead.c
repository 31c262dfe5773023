/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's part of a blocking call: argument checks, numbering, the progress queue, the flight
 * recorder. The group's backend does nothing, so that the difference between a public call and a
 * call of the backend's function is the engine's part. Messages go through a transport, as those of
 * shm, tcp, ucx and gloo do, which takes and has each short one at once; and through a backend that
 * executes them. Prints the best of ROUNDS means, in nanoseconds, of rounds without and with the
 * calls of threads in the record (group/thread_record.h), which alternate. At the end, what the log
 * for developers adds while it is off: no operation passes a call of debug_log, so it is put before
 * one; the ratio of rounds with and without it, and a confidence interval (paired.h).
 */
#include "base/debug.h"
#include "base/loop.h"
#include "base/record_writer.h"
#include "bench/paired.h"
#include "core/backend.h"
#include "ops/request.h"
#include "unit/null_group.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALLS = 2000, ROUNDS = 1500 };

static float in[4], out[4];

static int allreduce(struct collrun_group *g)
{
    return collrun_allreduce(g, in, out, 4, COLLRUN_FLOAT32, COLLRUN_SUM);
}

static int logged_allreduce(struct collrun_group *g)
{
    debug_log(DEBUG_GROUP, "group \"%s\": allreduce of %d elements", g->id.name, 4);
    return allreduce(g);
}

static int barrier(struct collrun_group *g)
{
    return collrun_barrier(g);
}

static int send_to_peer(struct collrun_group *g)
{
    return collrun_send(g, in, 4, COLLRUN_FLOAT32, 1);
}

static int recv_from_peer(struct collrun_group *g)
{
    return collrun_recv(g, out, 4, COLLRUN_FLOAT32, 1);
}

static int start_and_wait(struct collrun_group *g, const struct collrun_call *call)
{
    struct collrun_request *request;
    int rc = collrun_start(g, call, &request);
    return rc == COLLRUN_OK ? collrun_wait(request) : rc;
}

static int started_allreduce(struct collrun_group *g)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = in;
    call.recv = out;
    call.count = 4;
    call.dtype = COLLRUN_FLOAT32;
    call.op = COLLRUN_SUM;
    return start_and_wait(g, &call);
}

static int started_send(struct collrun_group *g)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    call.send = in;
    call.count = 4;
    call.dtype = COLLRUN_FLOAT32;
    call.peer = 1;
    return start_and_wait(g, &call);
}

static int overhead_send(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_ERR_UNSUPPORTED; /* none is long */
}

static int overhead_short(void *group, const struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_OK;
}

static const struct collrun_transport overhead_transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = overhead_send,
    .recv = null_transport_recv,
    .progress = null_transport_progress,
    .send_short = overhead_short,
    .recv_short = overhead_short,
};

static int overhead_exec(struct collrun_group *g)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    return g->backends[0].backend->table.exec(g->backends[0].queues[0].config.handle, &call, 1);
}

static double round_ns(struct collrun_group *g, int (*call)(struct collrun_group *))
{
    uint64_t start = now_ns();
    for (int i = 0; i < CALLS; i++) {
        if (call(g) != COLLRUN_OK) {
            fprintf(stderr, "a call failed: %s\n", collrun_error());
            exit(1);
        }
    }
    return (double)(now_ns() - start) / (double)CALLS;
}

/* best[1]: with the calls of threads. */
static void best_ns(struct collrun_group *g, struct record_writer *writer,
                    int (*call)(struct collrun_group *), double best[2])
{
    best[0] = best[1] = 1e9;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        g->process->writer = round % 2 ? writer : NULL;
        const double ns = round_ns(g, call);
        best[round % 2] = ns < best[round % 2] ? ns : best[round % 2];
    }
    g->process->writer = NULL;
}

static struct collrun_group *overhead_group(struct record_head *record, bool carried)
{
    const uint64_t flags = carried ? COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS : 0;
    struct collrun_group *g = null_group_new(0, carried ? 2 : 4, flags);
    if (!g || (carried && !null_group_carry(g, &overhead_transport))) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int i = 0; i < 2; i++)
        record_queue_open(&g->calls.record[i], record,
                          &(struct record_queue_info){.name = "test",
                                                      .scope = carried ? "test#1" : "test#0",
                                                      .members = g->nranks,
                                                      .id = 2,
                                                      .world = g->id.members.items,
                                                      .messages = i == 1});
    g->process->record = record;
    g->calls.eager_limit = GROUP_EAGER_LIMIT;
    return g;
}

static void print_log_cost(struct collrun_group *g)
{
    double ratios[PAIRED_MOST];
    for (int i = 0; i < PAIRED_MOST; i++) {
        /* The order changes, so that a clock that speeds up favours neither. */
        const double first = round_ns(g, i % 2 ? logged_allreduce : allreduce);
        const double second = round_ns(g, i % 2 ? allreduce : logged_allreduce);
        ratios[i] = i % 2 ? first / second : second / first;
    }
    const struct interval r = paired_interval(ratios, PAIRED_MOST);
    printf("an allreduce with a call of the log that is off takes %.3f [%.3f, %.3f] of the time\n",
           r.median, r.low, r.high);
}

int main(void)
{
    static const struct {
        const char *name;
        int (*call)(struct collrun_group *);
        bool carried; /* by a transport */
    } cases[] = {{"allreduce", allreduce, false},
                 {"barrier", barrier, false},
                 {"send", send_to_peer, true},
                 {"recv", recv_from_peer, true},
                 {"send, executed", send_to_peer, false},
                 {"started allreduce", started_allreduce, false},
                 {"started send", started_send, true}};
    int fd = record_make(0, RECORD_ENTRIES);
    struct record_head *record = record_map(fd);
    record->timed = 0; /* as of a job without a run directory */
    struct record_writer *writer =
        record_writer_open(record, RECORD_TAP_ENGINE, RECORD_LEVEL_MULTIPLE);
    struct collrun_group *groups[2];
    double bare[2], best[2];
    for (int i = 0; i < 2; i++)
        groups[i] = overhead_group(record, i == 1);
    best_ns(groups[0], NULL, overhead_exec, bare);
    printf("%-18s %28s %10s\n", "call", "ns above the backend's call", "recorded");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        best_ns(groups[cases[i].carried], writer, cases[i].call, best);
        printf("%-18s %28.1f %10.1f\n", cases[i].name, best[0] - bare[0], best[1] - bare[0]);
    }
    print_log_cost(groups[0]);
    for (int i = 0; i < 2; i++) {
        request_spare_close(groups[i]);
        null_group_free(groups[i]);
    }
    record_writer_close(writer);
    record_unmap(record, record_len(record));
    close(fd);
    return 0;
}

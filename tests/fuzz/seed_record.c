/* SPDX-License-Identifier: Apache-2.0
 *
 * Records are made as ranks make them. The copy of the ring of counts is cut: it is most of a
 * record, and of little interest.
 */
#include "fuzz/seed_record.h"

#include "base/record_queue.h"
#include "base/record_view.h"
#include "base/record_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 16, COUNTS = 64, CALLS = 12, MESSAGES = 4 };

static void seed_must(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "no seed: %s\n", what);
    exit(1);
}

static void seed_call(struct record_queue *q, uint64_t number, const struct record_call *call,
                      bool ends)
{
    uint64_t index = record_queue_reserve(q, 1), ticks = record_ticks(q->head);
    record_queue_write(q, index, call, number, RECORD_STARTED, ticks);
    q->signature += call->kind + 7 * call->count + number;
    record_queue_mark(q, number, ticks);
    record_queue_enter(q, call, number, call->count, ticks);
    if (!ends)
        return;
    record_queue_leave(q, number);
    record_queue_end(q, index, RECORD_DONE, ticks + 1);
}

/* A thread that has sent, received and called, and waits for a request and for its peer. */
static void seed_thread(struct record_head *head, const struct record_group *g, uint32_t rank)
{
    struct record_writer *w = record_writer_open(head, RECORD_TAP_ENGINE, RECORD_LEVEL_MULTIPLE);
    const struct record_at at = {.since = record_ticks(head)};
    struct record_part part = {.group = g, .peer = (int32_t)(1 - rank), .count = 5, .tag = 7};
    seed_must(w != NULL, "a writer");
    record_queue_thread = 0; /* it was that of another record */
    struct record_thread *t = record_enter(w);
    seed_must(t != NULL, "a thread");
    part.kind = COLLRUN_SEND;
    record_begin(w, t, &part);
    record_inside(t, RECORD_ALL, &at);
    record_leave(t);
    record_take(w, t, &part);
    record_outside(t);
    t = record_enter(w);
    part.kind = COLLRUN_RECV;
    record_wait(w, t, record_post(w, t, &part, &at));
    part.kind = COLLRUN_BARRIER;
    record_begin(w, t, &part);
    record_inside(t, RECORD_ALL, &at);
    record_writer_close(w);
}

static void seed_calls(struct record_head *head, uint32_t rank, bool wrong)
{
    const size_t counts[2] = {3, 4};
    const struct record_counts kept = {counts, counts, 2, 2, 0};
    const uint32_t world[2] = {0, 1};
    struct record_queue q[2];
    for (int i = 0; i < 2; i++)
        record_queue_open(&q[i], head,
                          &(struct record_queue_info){.name = "world",
                                                      .scope = "world#1:7",
                                                      .members = 2,
                                                      .rank = rank,
                                                      .messages = i == 1,
                                                      .id = 9,
                                                      .world = world});
    for (uint32_t n = 1; n <= CALLS; n++) {
        struct record_call c = {.count = n, .root_or_peer = -1, .kind = COLLRUN_ALLREDUCE};
        c.kind = n % 4 ? COLLRUN_ALLREDUCE : COLLRUN_ALLTOALLV;
        c.count += wrong && n == CALLS;
        c.site = (uint64_t)(uintptr_t)seed_calls;
        if (c.kind == COLLRUN_ALLTOALLV)
            c.tag = record_queue_keep_counts(&q[0], &kept);
        seed_call(&q[0], n, &c, n < CALLS);
    }
    for (uint32_t n = 1; n <= MESSAGES; n++)
        seed_call(&q[1], n,
                  &(struct record_call){.count = 5,
                                        .root_or_peer = (int32_t)(1 - rank),
                                        .kind = rank ? COLLRUN_RECV : COLLRUN_SEND,
                                        .tag = n},
                  true);
    seed_thread(head, q[0].group, rank);
}

void seed_record(uint32_t rank, bool wrong, struct buf *out)
{
    const struct record_view_part part = {.entries = ENTRIES, .marks = true};
    int fd = record_make(rank, ENTRIES);
    struct record_head *head = fd < 0 ? NULL : record_map(fd), copy;
    struct record_view v;
    struct buf all;
    buf_init(&all);
    seed_must(head != NULL, "memory of a record");
    seed_calls(head, rank, wrong);
    seed_must(record_view_save(head, record_len(head), &part, &all) &&
                  record_view_init(&v, all.data, all.len, NULL) == 0,
              "a copy of a record");
    memcpy(&copy, all.data, sizeof copy);
    copy.ncounts = COUNTS;
    buf_put(out, &copy, sizeof copy);
    buf_put(out, v.bytes + sizeof copy, v.at.counts - sizeof copy + COUNTS * sizeof(uint64_t));
    buf_put(out, v.bytes + v.at.entries, all.len - v.at.entries);
    record_unmap(head, record_len(head));
    close(fd);
    buf_fini(&all);
}

void seed_write(const char *folder, const char *name, const void *bytes, size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    seed_must(f && fwrite(bytes, 1, len, f) == len && fclose(f) == 0, path);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the shm backend: random ones between two and three ranks, several at a time, of every
 * length that is moved in its own way. The engine's part, matching, is done here: one receive for
 * each message of a peer, in order.
 */
#include "memory_model/model.h"
#include "memory_model/shm_world.h"

#include "transport/transfer.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGES = 100, FEW = 16, BATCH = 4, RANKS_MAX = 3, LEN_MAX = 70000, PACKET_MAX = 512 };

struct message {
    uint32_t from, to;
    size_t len;
};

/* An RTS whose receive has not begun. */
struct unexpected {
    struct collrun_envelope envelope;
    uint32_t source;
    size_t len;
    bool taken;
    _Alignas(64) char packet[PACKET_MAX];
};

static struct {
    struct message messages[MESSAGES];
    uint32_t n, batch;
    bool short_forms;
} program;

static struct engine {
    struct transfer transfers[MESSAGES];
    bool posted[MESSAGES], done[MESSAGES];
    struct unexpected early[MESSAGES];
    uint32_t nearly;
    _Alignas(64) unsigned char send[LEN_MAX + 64], recv[MESSAGES][LEN_MAX];
} engines[RANKS_MAX];

static int statuses[RANKS_MAX];
#define TRANSPORT (*collrun_backend_v1.transport)

/* ---- the engine's part ---- */

static uint32_t rank_of(const struct engine *e)
{
    return (uint32_t)(e - engines);
}

static struct collrun_message *message_of(struct engine *e, uint32_t i)
{
    return &e->transfers[i].message;
}

static int engine_take(struct engine *e, uint32_t i, uint32_t source,
                       const struct collrun_envelope *envelope, const void *packet, size_t len)
{
    struct collrun_message *m = message_of(e, i);
    MODEL_CHECK(envelope->tag == i && envelope->count == m->len);
    m->envelope = *envelope;
    m->peer = source;
    e->posted[i] = false;
    return TRANSPORT.recv(shm_world.groups[rank_of(e)], m, packet, len);
}

static int engine_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                          const void *packet, size_t len)
{
    struct engine *e = ctx;
    for (uint32_t i = 0; i < program.n; i++)
        if (e->posted[i] && program.messages[i].from == source)
            return engine_take(e, i, source, envelope, packet, len);
    struct unexpected *kept = &e->early[e->nearly++];
    MODEL_CHECK(e->nearly <= MESSAGES && len <= PACKET_MAX);
    kept->envelope = *envelope;
    kept->source = source;
    kept->len = len;
    kept->taken = false;
    memcpy(kept->packet, packet, len);
    return COLLRUN_OK;
}

static void engine_done(void *ctx, struct collrun_message *message)
{
    struct engine *e = ctx;
    MODEL_CHECK(!e->done[message->id]);
    e->done[message->id] = true;
}

static void engine_announced(void *ctx, const struct collrun_message *message)
{
    const struct engine *e = ctx;
    MODEL_CHECK(!e->done[message->id]);
}

static struct collrun_message *engine_find(void *ctx, uint32_t id)
{
    struct engine *e = ctx;
    return id < program.n && !e->done[id] ? message_of(e, id) : NULL;
}

/* ---- messages ---- */

static unsigned char byte_of(uint32_t i, size_t at)
{
    return (unsigned char)(31 * i + at * 7 + at / 251);
}

static void fill(uint32_t i, unsigned char *out)
{
    for (size_t at = 0; at < program.messages[i].len; at++)
        out[at] = byte_of(i, at);
}

static void describe(struct engine *e, uint32_t i, void *data, uint32_t peer)
{
    memset(&e->transfers[i], 0, sizeof e->transfers[i]);
    struct collrun_message *m = message_of(e, i);
    m->envelope = (struct collrun_envelope){program.messages[i].len, i, COLLRUN_UINT8};
    m->data = data;
    m->len = program.messages[i].len;
    m->peer = peer;
    m->id = i;
}

static int begin_receive(struct engine *e, uint32_t i)
{
    struct collrun_message *m = message_of(e, i);
    for (uint32_t k = 0; k < e->nearly; k++) {
        struct unexpected *kept = &e->early[k];
        if (kept->taken || kept->source != program.messages[i].from)
            continue;
        kept->taken = true;
        int status = TRANSPORT.post(shm_world.groups[rank_of(e)], m);
        return status ? status
                      : engine_take(e, i, kept->source, &kept->envelope, kept->packet, kept->len);
    }
    e->posted[i] = true;
    return TRANSPORT.post(shm_world.groups[rank_of(e)], m);
}

/* Messages `first` to `end` of this rank, together. */
static int run_batch(struct engine *e, uint32_t first, uint32_t end)
{
    const uint32_t self = rank_of(e);
    void *g = shm_world.groups[self];
    int status = COLLRUN_OK;
    for (uint32_t i = first; i < end && status == COLLRUN_OK; i++) {
        const struct message *m = &program.messages[i];
        e->done[i] = m->from != self && m->to != self;
        if (m->from == self) {
            fill(i, e->recv[i]);
            describe(e, i, e->recv[i], m->to);
            status = TRANSPORT.send(g, message_of(e, i));
        } else if (m->to == self) {
            describe(e, i, e->recv[i], m->from);
            status = begin_receive(e, i);
        }
    }
    if (status == COLLRUN_OK)
        status = TRANSPORT.flush(g);
    for (uint32_t i = first; i < end && status == COLLRUN_OK; i++)
        while (!e->done[i] && status == COLLRUN_OK) {
            status = TRANSPORT.progress(g, 1000000000);
            status = status == COLLRUN_AGAIN ? COLLRUN_OK : status;
        }
    return status;
}

/* One message by the short form, if the backend takes it. */
static bool run_short(struct engine *e, uint32_t i)
{
    const uint32_t self = rank_of(e);
    const struct message *m = &program.messages[i];
    void *g = shm_world.groups[self];
    if (m->from != self && m->to != self)
        return true;
    for (uint32_t k = 0; k < e->nearly; k++)
        if (!e->early[k].taken)
            return false;
    describe(e, i, e->recv[i], m->from == self ? m->to : m->from);
    if (m->from == self) {
        fill(i, e->recv[i]);
        e->done[i] = TRANSPORT.send_short(g, message_of(e, i)) == COLLRUN_OK;
    } else {
        e->done[i] = TRANSPORT.recv_short(g, message_of(e, i)) == COLLRUN_OK;
    }
    return e->done[i];
}

static int run_messages(struct engine *e)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0, end; i < program.n && status == COLLRUN_OK; i = end) {
        end = i + program.batch < program.n ? i + program.batch : program.n;
        if (program.batch > 1 || !program.short_forms || !run_short(e, i))
            status = run_batch(e, i, end);
    }
    return status;
}

static void run_program(uint32_t self)
{
    struct engine *e = &engines[self];
    int status = run_messages(e);
    if (status != COLLRUN_OK)
        model_fail("status %d: %s", status, shm_world.errors[self]);
    for (uint32_t i = 0; i < program.n; i++)
        for (size_t at = 0; program.messages[i].to == self && at < program.messages[i].len; at++)
            if (e->recv[i][at] != byte_of(i, at))
                model_fail("message %u of %zu bytes: byte %zu is wrong", i, program.messages[i].len,
                           at);
}

/* ---- programs ---- */

static void open_world(uint32_t nranks, bool oversubscribed)
{
    static struct collrun_p2p p2p[RANKS_MAX];
    for (uint32_t r = 0; r < nranks; r++) {
        struct engine *e = &engines[r];
        e->nearly = 0;
        memset(e->posted, 0, sizeof e->posted);
        memset(e->done, 0, sizeof e->done);
        p2p[r] = (struct collrun_p2p){.size = sizeof p2p[r],
                                      .ctx = e,
                                      .arrived = engine_arrived,
                                      .done = engine_done,
                                      .find = engine_find,
                                      .announced = engine_announced};
    }
    shm_world_open(nranks, oversubscribed, p2p);
}

static void open_random(uint32_t nranks, bool oversubscribed)
{
    static const size_t lens[] = {0, 8, 40, 232, 233, 4096, 20000, 32768, 32769, LEN_MAX};
    program.n = 1 + model_choose(FEW);
    program.batch = 1 + model_choose(BATCH);
    program.short_forms = model_choose(4) > 0;
    const uint32_t few = model_choose(8) ? 5 : sizeof lens / sizeof lens[0];
    for (uint32_t i = 0; i < program.n; i++) {
        struct message *m = &program.messages[i];
        m->from = model_choose(nranks);
        m->to = (m->from + 1 + model_choose(nranks - 1)) % nranks;
        m->len = lens[model_choose(few)];
    }
    open_world(nranks, oversubscribed);
}

/* More from one rank to the other than there is room for, in packets and in blocks. */
static void many(void)
{
    program.n = MESSAGES;
    program.batch = 1 + model_choose(BATCH);
    program.short_forms = model_choose(2);
    const size_t len = model_choose(2) ? 8 : 240;
    for (uint32_t i = 0; i < program.n; i++)
        program.messages[i] = (struct message){0, 1, len};
    open_world(2, false);
}

static void two(void)
{
    open_random(2, false);
}

static void three(void)
{
    open_random(3, false);
}

static void two_on_one_core(void)
{
    open_random(2, true);
}

static void three_on_one_core(void)
{
    open_random(3, true);
}

/* The last thread is none of the ranks. */
static void run_until_aborted(uint32_t self)
{
    if (self == shm_world.nranks) {
        for (uint32_t i = model_choose(20); i > 0; i--)
            model_yield();
        for (uint32_t r = 0; r < shm_world.nranks; r++)
            collrun_backend_v1.group_abort(shm_world.groups[r]);
        return;
    }
    statuses[self] = run_messages(&engines[self]);
}

static void check_aborted(void)
{
    for (uint32_t r = 0; r < shm_world.nranks; r++)
        MODEL_CHECK(statuses[r] == COLLRUN_OK || statuses[r] == COLLRUN_ERR_ABORTED);
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "two ranks", .nthreads = 2, .setup = two, .thread = run_program},
        {.name = "three ranks", .nthreads = 3, .setup = three, .thread = run_program},
        {.name = "two ranks, one core",
         .nthreads = 2,
         .setup = two_on_one_core,
         .thread = run_program},
        {.name = "three ranks, one core",
         .nthreads = 3,
         .setup = three_on_one_core,
         .thread = run_program},
        {.name = "two ranks, one core, each sleep is ended by another rank",
         .nthreads = 2,
         .setup = two_on_one_core,
         .thread = run_program,
         .strict = true},
        {.name = "two ranks, more than there is room for",
         .nthreads = 2,
         .setup = many,
         .thread = run_program,
         .runs_one_in = 4},
        {.name = "two ranks, aborted",
         .nthreads = 3,
         .setup = two,
         .thread = run_until_aborted,
         .check = check_aborted},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

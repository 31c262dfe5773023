/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what a peer whose memory is damaged may write into the segment of shm. Rank 0 of two
 * sends, receives, and calls collectives; the input says what it does next, and what rank 1 writes:
 * packets, blocks that it returns, and the record and reference of a step. Rank 0 may fail; it
 * touches nothing outside its buffers and the segment, ends no message twice, and does not hang.
 */
#include "coll/step.h"
#include "group.h"
#include "transport/fifo.h"
#include "transport/transfer.h"
#include "transport/wait.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
extern const struct collrun_backend collrun_backend_v1;
#define TRANSPORT (*collrun_backend_v1.transport)

enum { MESSAGES = 16, STEPS = 200 };

static struct fuzz {
    const uint8_t *bytes;
    size_t len;
    int file;
    struct shm_group *groups[2];
    struct transfer messages[MESSAGES];
    bool receive[MESSAGES], posted[MESSAGES], live[MESSAGES];
    uint32_t n;
} fuzz;

/* The next bytes of the input; 0 after its end. */
static void fuzz_take(void *out, size_t len)
{
    const size_t n = len < fuzz.len ? len : fuzz.len;
    memset(out, 0, len);
    memcpy(out, fuzz.bytes, n);
    fuzz.bytes += n;
    fuzz.len -= n;
}

static uint8_t fuzz_byte(void)
{
    uint8_t byte;
    fuzz_take(&byte, 1);
    return byte;
}

/* ---- what the engine lends ---- */

static int fuzz_fail(void *ctx, int status, const char *format, ...)
{
    static char text[1024];
    va_list ap;
    (void)ctx;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return status;
}

static void fuzz_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                               uint32_t rank_b, const struct collrun_call *b, char *out, size_t len)
{
    (void)ctx, (void)rank_a, (void)a, (void)rank_b, (void)b;
    snprintf(out, len, "mismatch");
}

static void fuzz_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                              uint64_t waited_ns, char *out, size_t len)
{
    (void)ctx, (void)rank, (void)missing, (void)nmissing, (void)waited_ns;
    snprintf(out, len, "time-out");
}

static size_t fuzz_dtype_size(enum collrun_dtype dtype)
{
    (void)dtype;
    return 1;
}

static void fuzz_reduce(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                        enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor)
{
    (void)dtype, (void)op, (void)divisor;
    for (size_t i = 0; i < count; i++) {
        uint8_t sum = 0;
        for (uint32_t s = 0; s < nsrcs; s++)
            sum = (uint8_t)(sum + ((const uint8_t *)srcs[s])[i]);
        ((uint8_t *)dst)[i] = sum;
    }
}

static uint64_t fuzz_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t fuzz_stopped_ns(void *ctx)
{
    (void)ctx;
    return 0;
}

static int fuzz_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    (void)ctx;
    if (ftruncate(fuzz.file, (off_t)len) != 0)
        abort();
    *fd = fuzz.file;
    *offset = 0;
    return COLLRUN_OK;
}

/* As the engine: a message and a receive agree about type and count. */
static int fuzz_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                        const void *packet, size_t len)
{
    (void)ctx, (void)source;
    for (uint32_t i = 0; i < fuzz.n; i++) {
        struct collrun_message *m = &fuzz.messages[i].message;
        if (!fuzz.posted[i] || m->envelope.tag != envelope->tag)
            continue;
        if (m->envelope.dtype != envelope->dtype || envelope->count > m->len)
            return COLLRUN_ERR_MISMATCH;
        fuzz.posted[i] = false;
        m->len = (size_t)envelope->count;
        return TRANSPORT.recv(fuzz.groups[0], m, packet, len);
    }
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < len; i++) /* the engine keeps a copy */
        sum = (uint8_t)(sum + ((const uint8_t *)packet)[i]);
    return COLLRUN_OK;
}

static void fuzz_announced(void *ctx, const struct collrun_message *message)
{
    (void)ctx;
    if (!fuzz.live[message->id])
        abort();
}

static void fuzz_done(void *ctx, struct collrun_message *message)
{
    (void)ctx;
    if (!fuzz.live[message->id])
        abort();
    fuzz.live[message->id] = false;
    free(message->data);
}

static struct collrun_message *fuzz_find(void *ctx, uint32_t id)
{
    (void)ctx;
    return id < fuzz.n && fuzz.live[id] ? &fuzz.messages[id].message : NULL;
}

static const char *fuzz_option(void *ctx, const char *key)
{
    (void)ctx;
    (void)key;
    return NULL;
}

static const struct collrun_services services = {.size = sizeof services,
                                                 .option = fuzz_option,
                                                 .fail = fuzz_fail,
                                                 .mismatch_text = fuzz_mismatch_text,
                                                 .timeout_text = fuzz_timeout_text,
                                                 .dtype_size = fuzz_dtype_size,
                                                 .reduce = fuzz_reduce,
                                                 .stopped_ns = fuzz_stopped_ns,
                                                 .now_ns = fuzz_now_ns};
static const struct collrun_rendezvous rendezvous = {.size = sizeof rendezvous,
                                                     .segment = fuzz_segment};
static const struct collrun_p2p p2p = {.size = sizeof p2p,
                                       .arrived = fuzz_arrived,
                                       .done = fuzz_done,
                                       .find = fuzz_find,
                                       .announced = fuzz_announced};

static void fuzz_open(void)
{
    static const uint32_t ranks[2] = {0, 1}, hosts[2];
    fuzz.file = memfd_create("fuzz", MFD_CLOEXEC);
    for (uint32_t r = 0; r < 2; r++) {
        const struct collrun_group_desc desc = {.size = sizeof desc,
                                                .rank = r,
                                                .nranks = 2,
                                                .local_rank = r,
                                                .nlocal = 2,
                                                .ncpus = 2,
                                                .name = "fuzz",
                                                .world_rank = ranks,
                                                .host_of = hosts,
                                                .timeout_ns = 1000000,
                                                .rendezvous = &rendezvous,
                                                .services = &services,
                                                .p2p = &p2p};
        void *group;
        if (collrun_backend_v1.group_open(NULL, &desc, &group) != COLLRUN_OK)
            abort();
        fuzz.groups[r] = group;
        if (!segment_map_messages(&fuzz.groups[r]->seg) || !segment_map_rings(&fuzz.groups[r]->seg))
            abort();
    }
}

/* ---- what rank 0 does ---- */

static size_t fuzz_size(void)
{
    static const size_t sizes[] = {0, 8, 232, 233, 4096, 32768, 32769, 300000};
    return sizes[fuzz_byte() % 8];
}

static void fuzz_begin(bool receive)
{
    if (fuzz.n == MESSAGES)
        return;
    struct collrun_message *m = &fuzz.messages[fuzz.n].message;
    memset(&fuzz.messages[fuzz.n], 0, sizeof fuzz.messages[fuzz.n]);
    m->len = fuzz_size();
    m->envelope = (struct collrun_envelope){m->len, fuzz_byte() % 4, 0};
    m->peer = 1;
    m->id = fuzz.n;
    m->data = malloc(m->len ? m->len : 1); /* so that AddressSanitizer knows its end */
    memset(m->data, 1, m->len ? m->len : 1);
    fuzz.receive[fuzz.n] = fuzz.posted[fuzz.n] = receive;
    fuzz.live[fuzz.n++] = true;
    if (receive)
        TRANSPORT.post(fuzz.groups[0], m);
    else
        TRANSPORT.send(fuzz.groups[0], m);
}

static void fuzz_short(bool receive)
{
    struct collrun_message m = {.len = fuzz_size(), .peer = 1};
    m.envelope = (struct collrun_envelope){m.len, fuzz_byte() % 4, 0};
    m.data = calloc(1, m.len ? m.len : 1);
    if (receive)
        TRANSPORT.recv_short(fuzz.groups[0], &m);
    else
        TRANSPORT.send_short(fuzz.groups[0], &m);
    free(m.data);
}

/* ---- what rank 1 writes ---- */

static void fuzz_push(void)
{
    struct shm_group *g = fuzz.groups[1];
    struct packet *packet = fifo_room(g, 0);
    if (!packet)
        return;
    fuzz_take((char *)packet + sizeof packet->seq, 64 - sizeof packet->seq);
    if (fuzz_byte() % 2)
        packet->count = fuzz_size();
    if (fuzz_byte() % 2)
        packet->tag = fuzz_byte() % 4;
    fifo_push(g, 0, packet);
}

/* A collective of rank 0 whose first step rank 1 has published, with a location and references of
 * its own. */
static void fuzz_collective(void)
{
    static const enum collrun_kind kinds[] = {COLLRUN_ALLREDUCE, COLLRUN_ALLGATHER,
                                              COLLRUN_ALLTOALL,  COLLRUN_BROADCAST,
                                              COLLRUN_GATHER,    COLLRUN_REDUCE};
    struct collrun_call call = COLLRUN_CALL(kinds[fuzz_byte() % 6]);
    call.count = fuzz_size();
    call.timeout_ns = 300000;
    call.root = call.kind == COLLRUN_BROADCAST;
    struct shm_group *g = fuzz.groups[1];
    const struct signature s = signature_of(&call);
    step_reserve(g, 0);
    struct step_rec *rec = (struct step_rec *)(void *)step_rec_of(g, 1, g->step.last + 1);
    fuzz_take(&rec->location, sizeof rec->location);
    if (fuzz_byte() % 2)
        rec->location = UINT32_MAX - rec->location % 4;
    fuzz_take(rec->payload, 32);
    step_publish(g, &s);
    char *send = calloc(2, call.count + 1), *recv = calloc(2, call.count + 1);
    call.send = send;
    call.recv = recv;
    collrun_backend_v1.exec(fuzz.groups[0], &call, 1);
    free(send);
    free(recv);
}

static void fuzz_step(void)
{
    switch (fuzz_byte() % 10) {
    case 0:
    case 1:
        fuzz_begin(true);
        break;
    case 2:
        fuzz_begin(false);
        break;
    case 3:
        fuzz_short(true);
        break;
    case 4:
        fuzz_short(false);
        break;
    case 5:
        fuzz_take((void *)&fuzz.groups[0]->seg.returned[0].blocks, sizeof(uint64_t));
        fuzz_take((void *)&fuzz.groups[0]->seg.written[BLOCK_COUNT].len, sizeof(uint32_t));
        break;
    case 6:
        fuzz_collective();
        break;
    case 7:
        TRANSPORT.progress(fuzz.groups[0], 0);
        break;
    default:
        fuzz_push();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    fuzz = (struct fuzz){.bytes = bytes, .len = len};
    fuzz_open();
    for (int i = 0; i < STEPS && fuzz.len; i++)
        fuzz_step();
    for (int i = 0; i < 20; i++)
        TRANSPORT.progress(fuzz.groups[0], 0);
    for (int r = 1; r >= 0; r--)
        collrun_backend_v1.group_close(fuzz.groups[r]);
    for (uint32_t i = 0; i < fuzz.n; i++)
        if (fuzz.live[i])
            free(fuzz.messages[i].message.data);
    close(fuzz.file);
    return 0;
}

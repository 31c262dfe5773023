/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for what is above the framing of tcp and ucx (backends/net): packets and data
 * of peers while this rank sends, receives and is in collectives. The link is one of this file,
 * and the input decides what it delivers next; so the process under test is rank 0 of three, each
 * on a host alone.
 *
 * Beside the sanitizers, the contracts of link.h and of struct collrun_transport are the oracle: a
 * put or a landing is in the link once, is taken back before its memory is used again, and none is
 * left when the group is closed; a message is done once; a failure has a status.
 */
#include "backend.h"
#include "group.h"
#include "packet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3, MESSAGES = 16, ITEMS = 64, MIRRORED = 8, TURNS = 40, MOST = 200000 };
enum { CALL_NS = 200000, PROGRESS_NS = 1000 };

static const size_t sizes[8] = {0, 1, 8, 2000, 20000, 70000, LINK_PACKET_MAX, MOST};

struct link_peer {
    void *cookie;
};

struct link {
    struct link_upcalls upcalls;
    struct link_peer peers[RANKS];
    int rouse_fd;
    struct link_put *puts[ITEMS];
    struct link_landing *landings[ITEMS], *longs[ITEMS]; /* longs: of long packets */
    uint32_t nputs, nlandings, nlongs;
    uint64_t tokens;
    const struct link_peer *takes; /* its long packet waits for link_take; or NULL */
    size_t takes_len;
    struct packet sent[MIRRORED]; /* of collectives, the last ones of nsent */
    uint32_t sent_to[MIRRORED], nsent;
};

/* A message of this rank, as the engine has it. */
struct slot {
    struct net_message message; /* first */
    bool busy, posted, announced;
    char *data;
};

/* A message that has arrived before its receive. */
struct unexpected {
    uint32_t source;
    struct collrun_envelope envelope;
    char *packet;
    size_t len;
};

static struct {
    struct link link;
    void *backend, *handle;
    struct net_group *group;
    struct collrun_p2p p2p;
    struct slot slots[MESSAGES];
    struct unexpected unexpected[MESSAGES];
    uint32_t nunexpected;
    const uint8_t *at, *end; /* the input */
    char card[2048];         /* what each member has published */
    size_t card_len;
} world;

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static uint8_t take(void)
{
    return world.at < world.end ? *world.at++ : 0;
}

static size_t take_size(void)
{
    return sizes[take() % 8];
}

static uint32_t take_peer(void)
{
    return 1u + (take() & 1);
}

/* ---- the link ---- */

int link_open(const struct link_config *config, struct link **link)
{
    world.link = (struct link){.upcalls = config->upcalls, .rouse_fd = eventfd(0, EFD_CLOEXEC)};
    *link = &world.link;
    return COLLRUN_OK;
}

#include "unit/plugins/link_stubs.h"

static void read_all(const void *bytes, size_t len)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
}

void link_send(struct link_peer *peer, const void *header, const void *data, size_t len)
{
    const struct packet *packet = header;
    struct link *link = &world.link;
    must(peer > link->peers && peer < link->peers + RANKS, "a packet goes to a peer");
    must(len <= LINK_PACKET_MAX, "a packet has a bounded length");
    read_all(header, LINK_HEADER_LEN);
    read_all(data, len);
    if (packet->type != PACKET_OP && packet->type != PACKET_GRANT)
        return;
    link->sent[link->nsent % MIRRORED] = *packet;
    link->sent_to[link->nsent++ % MIRRORED] = (uint32_t)(peer - link->peers);
}

static void link_keep_put(struct link *link, struct link_put *put)
{
    for (uint32_t i = 0; i < link->nputs; i++)
        must(link->puts[i] != put, "a put is in the link once");
    must(link->nputs < ITEMS, "puts are bounded");
    link->puts[link->nputs++] = put;
}

enum link_sending link_send_long(struct link_peer *peer, const void *header, struct link_put *put)
{
    (void)peer, (void)header;
    if (take() & 1)
        return LINK_BUSY;
    must(put->len > 0 && put->len <= LINK_LONG_MAX, "a long packet has a bounded length");
    link_keep_put(&world.link, put);
    return LINK_BEGUN;
}

static void link_keep_long(struct link *link, struct link_landing *landing, size_t len)
{
    if (!landing)
        return;
    must(landing->len == len, "a long packet lands in memory of its length");
    must(link->nlongs < ITEMS, "long packets are bounded");
    link->longs[link->nlongs++] = landing;
}

void link_take(struct link_peer *peer, struct link_landing *landing)
{
    struct link *link = &world.link;
    if (link->takes != peer)
        return;
    link->takes = NULL;
    link_keep_long(link, landing, link->takes_len);
}

int link_land(struct link *link, struct link_landing *landing)
{
    for (uint32_t i = 0; i < link->nlandings; i++)
        must(link->landings[i] != landing, "a landing is in the link once");
    if (link->nlandings == ITEMS)
        return COLLRUN_ERR_NO_MEMORY;
    landing->token = ++link->tokens;
    link->landings[link->nlandings++] = landing;
    return COLLRUN_OK;
}

static bool link_drop_landing(struct link_landing **list, uint32_t *n,
                              const struct link_landing *landing)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (list[i] == landing) {
            list[i] = list[--*n];
            return true;
        }
    }
    return false;
}

void link_unland(struct link *link, struct link_landing *landing)
{
    must(link_drop_landing(link->landings, &link->nlandings, landing) ||
             link_drop_landing(link->longs, &link->nlongs, landing),
         "what is taken back has landed");
}

void link_put(struct link *link, struct link_put *put)
{
    link_keep_put(link, put);
}

void link_unput(struct link *link, struct link_put *put)
{
    uint32_t i = 0;
    while (i < link->nputs && link->puts[i] != put)
        i++;
    must(i < link->nputs, "what is taken back is in the link");
    link->puts[i] = link->puts[--link->nputs];
}

void link_wait(struct link *link, uint64_t timeout_ns)
{
    (void)link, (void)timeout_ns;
}

bool link_accept(struct link *link)
{
    (void)link;
    return false;
}

void link_serve(struct link *link, bool output)
{
    eventfd_t ignored;
    (void)output;
    eventfd_read(link->rouse_fd, &ignored);
}

void link_rouse(struct link *link)
{
    eventfd_write(link->rouse_fd, 1);
}

/* ---- what the link delivers ---- */

static uint32_t take_u32(void)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value << 8 | take();
    return value;
}

/* Like what a member sends for a call that this rank may make, or for another one. */
static struct packet_op take_op(void)
{
    static const enum collrun_kind kinds[] = {COLLRUN_BROADCAST, COLLRUN_ALLREDUCE,
                                              COLLRUN_ALLTOALL, COLLRUN_ALLGATHERV};
    const struct net_ops *ops = &world.group->ops;
    const uint8_t how = take();
    struct packet_op op = {.kind = (uint8_t)kinds[how & 3],
                           .dtype = COLLRUN_UINT8,
                           .root = how >> 2 & 1,
                           .number = ops->next_number - (ops->current != NULL) + (how >> 7)};
    op.slot = take() & 3;
    op.len = take_size();
    op.token = take();
    op.count = op.kind == COLLRUN_ALLGATHERV ? 0 : take_size();
    if (how != 0x55)
        return op;
    op.kind = take();
    op.dtype = take();
    op.root = (int32_t)take_u32();
    return op;
}

static struct packet take_packet(void)
{
    struct packet p = {.context = world.group->context.id, .source = take_peer()};
    const uint8_t how = take();
    p.type = 1 + how % PACKET_ASK;
    if (how >= 250)
        p.type = take_u32();
    else if (how == 249)
        p.source = take_u32();
    else if (how == 248)
        p.context++;
    if (p.type == PACKET_OP || p.type == PACKET_GRANT) {
        p.op = take_op();
        return p;
    }
    p.message = (struct packet_message){.count = take_size(), .dtype = COLLRUN_UINT8};
    p.message.token = take();
    p.message.tag = take();
    p.message.id = take();
    p.message.status = how & 128 ? (int32_t)take_u32() : -(int)take();
    p.message.credit_bytes = take();
    p.message.credit_messages = take();
    p.message.alignment = take();
    return p;
}

static void deliver(const struct link_peer *peer, const struct packet *packet, size_t len)
{
    const struct link_upcalls *up = &world.link.upcalls;
    char *data = malloc(len + !len); /* of the length, so that the sanitizer knows it */
    must(data != NULL, "there is memory");
    memset(data, 'x', len);
    up->packet(up->ctx, peer->cookie, packet, data, len);
    free(data);
}

static void deliver_any(void)
{
    const struct packet packet = take_packet();
    const size_t len = take_size();
    deliver(&world.link.peers[take_peer()], &packet, len < LINK_PACKET_MAX ? len : LINK_PACKET_MAX);
}

static void deliver_long(void)
{
    struct link *link = &world.link;
    struct packet packet = take_packet();
    const struct link_peer *peer = &link->peers[take_peer()];
    const size_t size = take_size(), len = size + !size;
    struct link_landing *landing = NULL;
    if (link->takes) /* its peer is read no further; one is enough */
        return;
    if (take() & 3)
        packet.type = PACKET_LONG;
    if (link->upcalls.long_packet(link->upcalls.ctx, peer->cookie, &packet, len, &landing)) {
        link_keep_long(link, landing, len);
        return;
    }
    link->takes = peer;
    link->takes_len = len;
}

/* A peer does as this rank has done, which fits more often than what the input makes up. */
static void deliver_mirrored(void)
{
    const struct link *link = &world.link;
    const uint8_t how = take();
    if (link->nsent == 0)
        return;
    const uint32_t i = how % (link->nsent < MIRRORED ? link->nsent : MIRRORED);
    struct packet packet = link->sent[i];
    packet.source = link->sent_to[i];
    packet.type = how & 64 ? PACKET_GRANT : PACKET_OP;
    packet.op.token = 1;
    if (how & 128)
        packet.op.len = take_size();
    size_t len = how & 32 ? packet.op.len : how & 16 ? NET_EAGER_LIMIT : 0;
    if (packet.type == PACKET_GRANT)
        len = 0;
    deliver(&link->peers[packet.source], &packet, len < LINK_PACKET_MAX ? len : LINK_PACKET_MAX);
}

static void land_one(struct link_landing **list, uint32_t *n)
{
    const uint8_t which = take();
    if (*n == 0)
        return;
    struct link_landing **at = &list[which % *n], *landing = *at;
    *at = list[--*n];
    memset(landing->data, 'y', landing->len);
    landing->landed(landing);
}

static void finish_put(struct link *link)
{
    const uint8_t which = take();
    if (link->nputs == 0)
        return;
    struct link_put **at = &link->puts[which % link->nputs], *put = *at;
    *at = link->puts[--link->nputs];
    read_all(put->data, put->len);
    put->sent(put);
}

bool link_progress(struct link *link)
{
    if (world.at == world.end)
        return false;
    switch (take() % 8) {
    case 0:
    case 1:
        deliver_any();
        break;
    case 2:
    case 3:
        deliver_mirrored();
        break;
    case 4:
        deliver_long();
        break;
    case 5:
        land_one(link->landings, &link->nlandings);
        break;
    case 6:
        land_one(link->longs, &link->nlongs);
        break;
    default:
        finish_put(link);
    }
    return true;
}

/* ---- the engine ---- */

static void on_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    (void)ctx, (void)level, (void)format;
}

static int on_fail(void *ctx, int status, const char *format, ...)
{
    char text[1024];
    va_list args;
    (void)ctx;
    must(status < 0, "a failure has a status");
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return status;
}

static const char *on_option(void *ctx, const char *key)
{
    (void)ctx;
    return strcmp(key, "local") == 0 ? "tcp" : NULL;
}

static int on_thread_start(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    (void)ctx;
    return pthread_create(thread, NULL, run, arg) == 0 ? COLLRUN_OK : COLLRUN_ERR_SYSTEM;
}

static size_t on_dtype_size(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_INT32 ? 4 : 1;
}

static uint64_t on_stopped_ns(void *ctx)
{
    (void)ctx;
    return 0;
}

/* The parameters of the three are the ABI's. NOLINTNEXTLINE(readability-function-size) */
static void on_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                            uint64_t waited_ns, char *out, size_t len)
{
    (void)ctx, (void)waited_ns;
    read_all(missing, nmissing * sizeof *missing);
    snprintf(out, len, "rank %u waits for %u", rank, nmissing);
}

/* NOLINTNEXTLINE(readability-function-size) */
static void on_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                             uint32_t rank_b, const struct collrun_call *b, char *out, size_t len)
{
    (void)ctx;
    snprintf(out, len, "%u: %d, %u: %d", rank_a, (int)a->kind, rank_b, (int)b->kind);
}

static void on_count_mismatch_text(void *ctx, const struct collrun_count_mismatch *counts,
                                   char *out, size_t len)
{
    (void)ctx;
    snprintf(out, len, "%zu, not %zu", (size_t)counts->sent, (size_t)counts->received);
}

/* NOLINTNEXTLINE(readability-function-size) */
static void on_reduce(void *result, const void *const *inputs, uint32_t ninputs, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor)
{
    (void)ninputs, (void)op, (void)divisor;
    memmove(result, inputs[0], count * on_dtype_size(dtype));
}

static uint64_t on_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct collrun_services services = {.size = sizeof services,
                                                 .log = on_log,
                                                 .fail = on_fail,
                                                 .option = on_option,
                                                 .thread_start = on_thread_start,
                                                 .dtype_size = on_dtype_size,
                                                 .stopped_ns = on_stopped_ns,
                                                 .now_ns = on_now_ns,
                                                 .timeout_text = on_timeout_text,
                                                 .mismatch_text = on_mismatch_text,
                                                 .count_mismatch_text = on_count_mismatch_text,
                                                 .reduce = on_reduce};

static int on_share(void *ctx, const char *key, const void *value, size_t len)
{
    (void)ctx, (void)key;
    memcpy(world.card, value, len);
    world.card_len = len;
    return COLLRUN_OK;
}

static int on_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    (void)ctx, (void)key;
    must(world.card_len <= capacity, "there is room for what a member has published");
    memcpy(value, world.card, world.card_len);
    *len = world.card_len;
    return COLLRUN_OK;
}

static int on_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    (void)ctx, (void)len, (void)fd, (void)offset;
    return COLLRUN_ERR_UNAVAILABLE;
}

static const struct collrun_rendezvous rendezvous = {
    .size = sizeof rendezvous, .get = on_get, .share = on_share, .segment = on_segment};

static bool is_for(const struct slot *slot, uint32_t source)
{
    const struct collrun_message *m = &slot->message.head;
    return slot->busy && slot->posted && (m->peer == source || m->peer == COLLRUN_ANY_SOURCE);
}

static int receive(struct slot *slot, uint32_t source, const struct collrun_envelope *envelope,
                   const void *packet, size_t len)
{
    struct collrun_message *m = &slot->message.head;
    if (m->len != envelope->count)
        return COLLRUN_ERR_MISMATCH;
    slot->posted = false;
    m->peer = source;
    m->envelope = *envelope;
    return net_transport.recv(world.handle, m, packet, len);
}

static int on_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                      const void *packet, size_t len)
{
    (void)ctx;
    must(source > 0 && source < RANKS, "a message comes from a peer");
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (is_for(&world.slots[i], source))
            return receive(&world.slots[i], source, envelope, packet, len);
    }
    if (world.nunexpected == MESSAGES)
        return COLLRUN_ERR_NO_MEMORY;
    struct unexpected u = {source, *envelope, malloc(len + !len), len};
    must(u.packet != NULL, "there is memory");
    memcpy(u.packet, packet, len);
    world.unexpected[world.nunexpected++] = u;
    return COLLRUN_OK;
}

static void on_done(void *ctx, struct collrun_message *message)
{
    struct slot *slot = (struct slot *)(void *)message;
    (void)ctx;
    must(slot >= world.slots && slot < world.slots + MESSAGES, "a message is done");
    must(slot->busy, "a message is done once");
    slot->busy = false;
    free(slot->data);
    slot->data = NULL;
}

static void on_announced(void *ctx, const struct collrun_message *message)
{
    const struct slot *slot = (const struct slot *)(const void *)message;
    (void)ctx;
    must(slot->busy && !slot->announced, "a send is announced once");
    world.slots[slot - world.slots].announced = true;
}

static struct collrun_message *on_find(void *ctx, uint32_t id)
{
    (void)ctx;
    return id < MESSAGES && world.slots[id].busy ? &world.slots[id].message.head : NULL;
}

/* ---- what this rank does ---- */

static struct slot *slot_new(uint32_t peer, size_t len)
{
    uint32_t i = 0;
    while (i < MESSAGES && world.slots[i].busy)
        i++;
    if (i == MESSAGES)
        return NULL;
    struct slot *slot = &world.slots[i];
    *slot = (struct slot){.busy = true, .data = calloc(1, len + !len)};
    must(slot->data != NULL, "there is memory");
    slot->message.head =
        (struct collrun_message){.data = slot->data,
                                 .len = len,
                                 .peer = peer,
                                 .id = i,
                                 .envelope = {.count = len, .dtype = COLLRUN_UINT8}};
    return slot;
}

static int do_send(void)
{
    struct slot *slot = slot_new(take_peer(), take_size());
    return slot ? net_transport.send(world.handle, &slot->message.head) : COLLRUN_OK;
}

static int do_receive(void)
{
    const uint32_t from = take() & 64 ? COLLRUN_ANY_SOURCE : take_peer();
    struct slot *slot = slot_new(from, take_size());
    const int status = slot ? net_transport.post(world.handle, &slot->message.head) : COLLRUN_OK;
    if (!slot || status != COLLRUN_OK)
        return status;
    slot->posted = true;
    for (uint32_t i = 0; i < world.nunexpected; i++) {
        const struct unexpected u = world.unexpected[i];
        if (!is_for(slot, u.source))
            continue;
        world.nunexpected--;
        memmove(&world.unexpected[i], &world.unexpected[i + 1], (world.nunexpected - i) * sizeof u);
        const int received = receive(slot, u.source, &u.envelope, u.packet, u.len);
        free(u.packet);
        return received;
    }
    return COLLRUN_OK;
}

static int do_collective(void)
{
    static const enum collrun_kind kinds[] = {COLLRUN_BROADCAST, COLLRUN_ALLREDUCE,
                                              COLLRUN_ALLTOALL, COLLRUN_ALLTOALL};
    static char out[RANKS * MOST], in[RANKS * MOST];
    const uint8_t how = take();
    struct collrun_call call = COLLRUN_CALL(kinds[how & 3]);
    call.dtype = COLLRUN_UINT8;
    call.op = COLLRUN_SUM;
    call.root = how >> 2 & 1;
    call.count = take_size();
    call.send = out;
    call.recv = call.kind == COLLRUN_BROADCAST ? out : in;
    call.timeout_ns = CALL_NS;
    return net_exec(world.handle, &call, 1);
}

static int do_one(void)
{
    int status;
    switch (take() % 5) {
    case 0:
        return do_send();
    case 1:
        return do_receive();
    case 2:
        return do_collective();
    default:
        status = net_transport.progress(world.handle, take() & 32 ? PROGRESS_NS : 0);
        return status == COLLRUN_AGAIN ? COLLRUN_OK : status;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t ranks[RANKS] = {0, 1, 2};
    memset(&world, 0, sizeof world);
    world.p2p = (struct collrun_p2p){.size = sizeof world.p2p,
                                     .arrived = on_arrived,
                                     .done = on_done,
                                     .find = on_find,
                                     .announced = on_announced};
    const struct collrun_group_desc desc = {.size = sizeof desc,
                                            .nranks = RANKS,
                                            .nlocal = 1,
                                            .ncpus = 64,
                                            .name = "world",
                                            .world_rank = ranks,
                                            .host_of = ranks,
                                            .address = "127.0.0.1",
                                            .interface = "lo",
                                            .rendezvous = &rendezvous,
                                            .services = &services,
                                            .p2p = &world.p2p};
    must(net_open(&services, &world.backend) == COLLRUN_OK &&
             net_group_open(world.backend, &desc, &world.handle) == COLLRUN_OK,
         "the group opens");
    world.group = world.handle;
    world.at = data;
    world.end = data + size;
    /* After a failure the engine calls the transport no more. */
    for (int i = 0; i < TURNS && world.at < world.end && do_one() == COLLRUN_OK; i++)
        ;
    world.at = world.end;
    net_group_close(world.handle);
    must(world.link.nlandings == 0 && world.link.nputs == 0 && world.link.nlongs == 0,
         "no memory is left in the link");
    net_close(world.backend);
    for (uint32_t i = 0; i < MESSAGES; i++)
        free(world.slots[i].data);
    for (uint32_t i = 0; i < world.nunexpected; i++)
        free(world.unexpected[i].packet);
    return 0;
}

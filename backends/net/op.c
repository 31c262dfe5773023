/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives inside one collective; see op.h and ops.h.
 *
 * The link, in whichever thread makes progress, finishes a request under the lock of the endpoint.
 * The thread of the operation then sets `done`, so that the algorithm reads it without the lock.
 */
#include "ops.h"

#include "group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct net_op {
    struct net_group *group;
    const struct collrun_call *call;
    struct packet_op mine;       /* what each packet carries */
    bool is_bounded;             /* see op_ahead_add: no data leaves without a grant */
    struct net_request *pending; /* requests that are not done */
    struct net_request *finished;
    uint64_t deadline_ns;
    uint64_t stopped_ns; /* how long the process had stood still when the deadline was set */
    struct scratch_pieces scratch;
};

/* A packet that no request waits for yet. */
struct net_ops_kept {
    struct net_ops_kept *next;
    struct packet packet;
    size_t len;
    char data[];
};

const struct collrun_call *net_op_call(const struct net_op *op)
{
    return op->call;
}

uint32_t net_op_rank(const struct net_op *op)
{
    return op->group->rank;
}

uint32_t net_op_size(const struct net_op *op)
{
    return op->group->nranks;
}

const struct collrun_services *net_op_services(const struct net_op *op)
{
    return op->group->services;
}

/* ---- failures; with the lock ---- */

/* A group that has failed already says nothing: its ranks may differ in what they call since then.
 */
static void op_fail_everywhere(struct net_group *g, int status, const char *text)
{
    if (!net_group_has_failed(g))
        net_group_send_failure(g, COLLRUN_ANY_SOURCE, status, text);
    net_group_set_failure(g, status, text);
}

static void op_fail_mismatch(struct net_op *op, const struct packet *packet)
{
    struct net_group *g = op->group;
    const struct collrun_services *s = g->services;
    const struct collrun_call theirs = packet_op_call(&packet->op),
                              mine = packet_op_call(&op->mine);
    const bool first = g->rank < packet->source;
    char text[NET_FAILURE_TEXT];
    s->mismatch_text(s->ctx, first ? g->rank : packet->source, first ? &mine : &theirs,
                     first ? packet->source : g->rank, first ? &theirs : &mine, text, sizeof text);
    op_fail_everywhere(g, COLLRUN_ERR_MISMATCH, text);
}

/* The sender's length is another one than the receiver's. */
static void op_fail_count(struct net_op *op, const struct packet *packet, size_t len)
{
    struct net_group *g = op->group;
    const struct collrun_services *s = g->services;
    const size_t elem = s->dtype_size(op->call->dtype);
    const struct collrun_count_mismatch counts = {.call = op->call,
                                                  .sent = packet->op.len / (elem ? elem : 1),
                                                  .received = len / (elem ? elem : 1),
                                                  .sender = packet->source,
                                                  .receiver = g->rank};
    char text[NET_FAILURE_TEXT];
    s->count_mismatch_text(s->ctx, &counts, text, sizeof text);
    op_fail_everywhere(g, COLLRUN_ERR_MISMATCH, text);
}

/* Without the lock. Names the ranks that requests wait for. */
static int op_fail_timeout(struct net_op *op)
{
    struct net_group *g = op->group;
    const struct collrun_services *s = g->services;
    uint32_t n = 0, *missing = calloc(g->nranks, sizeof *missing);
    char text[NET_FAILURE_TEXT];
    endpoint_lock(g->endpoint);
    for (uint32_t r = 0; missing && r < g->nranks; r++) {
        const struct net_request *q = op->pending;
        while (q && q->peer != r)
            q = q->next;
        if (q)
            missing[n++] = r;
    }
    s->timeout_text(s->ctx, g->rank, missing, n, op->call->timeout_ns, text, sizeof text);
    op_fail_everywhere(g, COLLRUN_ERR_TIMEOUT, text);
    endpoint_unlock(g->endpoint);
    free(missing);
    return net_group_failure(g);
}

/* ---- requests; with the lock ---- */

static void op_finish(struct net_request *q)
{
    struct net_op *op = q->op;
    assert(endpoint_is_locked(op->group->endpoint));
    struct net_request **at = &op->pending;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    q->in_link = false;
    q->next_finished = op->finished;
    op->finished = q;
    endpoint_notify(&op->group->context);
}

/* Whether a message leaves at once, without a grant. A root exchanges with ranks that may be in the
 * operation before: it need not wait for them, and the connection stays busy. Elsewhere all ranks
 * send and receive, and the receives have been posted. Pieces of a long operation wait. */
static bool op_is_eager(const struct net_op *op, size_t len)
{
    const struct collrun_call *c = op->call;
    if (op->is_bounded)
        return len == 0;
    if (len <= NET_EAGER_LIMIT || len > NET_ROOT_EAGER_LIMIT)
        return len <= NET_EAGER_LIMIT;
    return collrun_kind_has_root(c->kind) && !collrun_kind_is_vector(c->kind) &&
           c->count <= NET_ROOT_EAGER_LIMIT / op->group->services->dtype_size(c->dtype);
}

/* So much of a longer one of an operation with a root leaves at once; more of it would hold up what
 * comes straight from memory. */
static size_t op_head_len(const struct net_op *op, size_t len)
{
    const bool has = collrun_kind_has_root(op->call->kind) && len > NET_EAGER_LIMIT;
    return has && !op_is_eager(op, len) ? NET_EAGER_LIMIT : 0;
}

static void op_landed(struct link_landing *landing)
{
    struct net_request *q =
        (struct net_request *)(void *)((char *)landing - offsetof(struct net_request, landing));
    q->in_link = false;
    net_group_put_landed(q->op->group, q->peer);
    if (q->has_head)
        op_finish(q);
}

static void op_sent(struct link_put *put)
{
    struct net_request *q =
        (struct net_request *)(void *)((char *)put - offsetof(struct net_request, put));
    net_group_put_sent(q->op->group, q->peer);
    op_finish(q);
}

static struct link *op_link(const struct net_op *op)
{
    return endpoint_link(op->group->endpoint);
}

static void op_send_packet(struct net_op *op, struct net_request *q, size_t len)
{
    struct packet packet = {.type = q->receives ? PACKET_GRANT : PACKET_OP, .op = op->mine};
    packet.op.slot = q->slot;
    packet.op.token = q->receives ? q->landing.token : 0;
    packet.op.len = q->len;
    net_group_send(op->group, q->peer, &packet, q->data, len);
}

/* The packet for this request is here. */
static void op_take(struct net_op *op, struct net_request *q, const struct packet *packet,
                    const void *data, size_t len)
{
    const size_t head = op_head_len(op, q->len);
    if (packet->type == PACKET_GRANT) {
        if (packet->op.len != q->len) /* the other end says so, when it gets OP */
            return;
        if (q->in_link) { /* the put is the link's until `sent` */
            net_group_set_failure(op->group, COLLRUN_ERR_BACKEND,
                                  "malformed data: a second landing for the same data");
            return;
        }
        q->in_link = true;
        q->put = (struct link_put){.peer = op->group->peers[q->peer]->link,
                                   .token = packet->op.token,
                                   .data = (const char *)q->data + head,
                                   .len = q->len - head,
                                   .sent = op_sent};
        link_put(op_link(op), &q->put);
        return;
    }
    const bool is_long = !op_is_eager(op, q->len);
    if (packet->op.len != q->len || len != (is_long ? head : q->len)) {
        op_fail_count(op, packet, q->len);
        return;
    }
    if (len)
        memcpy(q->data, data, len);
    q->has_head = true;
    if (!is_long || (head && !q->in_link))
        op_finish(q);
}

static bool op_is_for(const struct net_request *q, const struct packet *packet)
{
    return q->peer == packet->source && q->slot == packet->op.slot &&
           q->receives == (packet->type == PACKET_OP);
}

static void ops_keep(struct net_group *g, const struct packet *packet, const void *data, size_t len)
{
    struct net_ops_kept *kept = malloc(sizeof *kept + len);
    if (!kept) {
        net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for a packet");
        return;
    }
    kept->next = NULL;
    kept->packet = *packet;
    kept->len = len;
    if (len)
        memcpy(kept->data, data, len);
    *g->ops.kept_end = kept;
    g->ops.kept_end = &kept->next;
}

void net_ops_handle_packet(struct net_group *g, const struct packet *packet, const void *data,
                           size_t len)
{
    struct net_op *op = g->ops.current;
    assert(endpoint_is_locked(g->endpoint));
    const int32_t ahead =
        (int32_t)(packet->op.number - (op ? op->mine.number : g->ops.next_number));
    if (ahead < 0) /* of an operation that is over */
        return;
    if (!op || ahead > 0) {
        ops_keep(g, packet, data, len);
        return;
    }
    if (!packet_op_agrees(&packet->op, &op->mine)) {
        op_fail_mismatch(op, packet);
        return;
    }
    struct net_request *q = op->pending;
    while (q && !op_is_for(q, packet))
        q = q->next;
    if (q)
        op_take(op, q, packet, data, len);
    else
        ops_keep(g, packet, data, len);
}

/* Looks for kept packets of a new request. */
static void op_take_kept(struct net_op *op, struct net_request *q)
{
    struct net_ops *ops = &op->group->ops;
    for (struct net_ops_kept **at = &ops->kept, *kept; (kept = *at);) {
        if (kept->packet.op.number != op->mine.number || !op_is_for(q, &kept->packet)) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        if (!kept->next)
            ops->kept_end = at;
        op_take(op, q, &kept->packet, kept->data, kept->len);
        free(kept);
        return;
    }
}

bool net_ops_wait_for(const struct net_group *g, uint32_t rank)
{
    const struct net_request *q = g->ops.current ? g->ops.current->pending : NULL;
    while (q && q->peer != rank)
        q = q->next;
    return q != NULL;
}

void net_ops_fail(struct net_group *g)
{
    struct net_op *op = g->ops.current;
    if (!op)
        return;
    for (struct net_request *q; (q = op->pending); op->pending = q->next) {
        if (q->in_link && q->receives)
            link_unland(op_link(op), &q->landing);
        else if (q->in_link)
            link_unput(op_link(op), &q->put);
        q->in_link = false;
    }
}

/* ---- what algorithms call ---- */

/* The requests that the link has finished are done. */
static void op_reap(struct net_op *op)
{
    struct net_request *q = op->finished;
    op->finished = NULL;
    for (; q; q = q->next_finished)
        q->done = true;
}

static int op_leave(struct net_op *op)
{
    struct net_group *g = op->group;
    op_reap(op);
    const bool failed = net_group_has_failed(g);
    endpoint_unlock_attended(g->endpoint);
    return failed ? net_group_failure(g) : COLLRUN_OK;
}

static void op_add(struct net_op *op, struct net_request *q)
{
    q->done = false;
    q->in_link = false;
    q->op = op;
    q->next = op->pending;
    op->pending = q;
}

int net_op_send(struct net_op *op, struct net_request *q, uint32_t peer, uint32_t slot,
                const void *data, size_t len)
{
    struct net_group *g = op->group;
    q->receives = false;
    q->peer = peer;
    q->slot = slot;
    q->data = (void *)(uintptr_t)data;
    q->len = len;
    endpoint_lock(g->endpoint);
    if (net_group_has_failed(g))
        return op_leave(op);
    const bool eager = op_is_eager(op, len);
    const size_t head = op_head_len(op, len);
    if (eager || head || op->is_bounded || collrun_kind_is_vector(op->call->kind))
        op_send_packet(op, q, eager ? len : head);
    if (!eager) {
        op_add(op, q);
        op_take_kept(op, q);
    }
    q->done = eager;
    return op_leave(op);
}

/* Grants the landing that the sender of a long message needs. */
static void op_grant(struct net_op *op, struct net_request *q)
{
    const size_t head = op_head_len(op, q->len);
    q->has_head = head == 0;
    q->landing = (struct link_landing){.peer = op->group->peers[q->peer]->link,
                                       .data = (char *)q->data + head,
                                       .len = q->len - head,
                                       .landed = op_landed};
    if (link_land(op_link(op), &q->landing) != COLLRUN_OK) {
        net_group_set_failure(op->group, COLLRUN_ERR_NO_MEMORY, "out of memory for a landing");
        return;
    }
    q->in_link = true;
    op_send_packet(op, q, 0);
}

int net_op_recv(struct net_op *op, struct net_request *q, uint32_t peer, uint32_t slot, void *data,
                size_t len)
{
    struct net_group *g = op->group;
    q->receives = true;
    q->peer = peer;
    q->slot = slot;
    q->data = data;
    q->len = len;
    endpoint_lock(g->endpoint);
    if (net_group_has_failed(g))
        return op_leave(op);
    op_add(op, q);
    if (!op_is_eager(op, len))
        op_grant(op, q);
    if (!net_group_has_failed(g))
        op_take_kept(op, q);
    return op_leave(op);
}

static bool op_has_news(const struct endpoint_context *context)
{
    const struct net_group *g = (const struct net_group *)context;
    return g->ops.current->finished || g->peer_has_left || net_group_has_failed(g);
}

/* A peer that a request waits for has left. */
static void op_check_left(struct net_op *op)
{
    struct net_group *g = op->group;
    g->peer_has_left = false;
    const struct net_request *q = g->nleft ? op->pending : NULL;
    while (q && !g->has_left[q->peer])
        q = q->next;
    if (q && !net_group_has_failed(g))
        net_group_fail_left(g, q->peer);
}

/* The deadline has passed, and moves if the process stood still meanwhile. */
static bool op_stood_still(struct net_op *op)
{
    const struct collrun_services *s = op->group->services;
    const uint64_t stopped_ns = s->stopped_ns(s->ctx), more = stopped_ns - op->stopped_ns;
    op->stopped_ns = stopped_ns;
    op->deadline_ns += more;
    return more != 0;
}

/* Until a request is done, for a while. */
static int op_wait_once(struct net_op *op)
{
    struct net_group *g = op->group;
    if (op->deadline_ns == 0) {
        const uint64_t now = endpoint_now_ns(g->endpoint), timeout = op->call->timeout_ns;
        op->deadline_ns = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
        op->stopped_ns = g->services->stopped_ns(g->services->ctx);
    }
    endpoint_lock(g->endpoint);
    if (!op->finished)
        op_check_left(op);
    if (!op_has_news(&g->context))
        endpoint_wait(&g->context, op_has_news, op->deadline_ns);
    const bool news = op_has_news(&g->context);
    const int status = op_leave(op);
    if (status != COLLRUN_OK || news || endpoint_now_ns(g->endpoint) < op->deadline_ns ||
        op_stood_still(op))
        return status;
    return op_fail_timeout(op);
}

int net_op_wait(struct net_op *op, struct net_request *q)
{
    int status = COLLRUN_OK;
    while (status == COLLRUN_OK && !q->done)
        status = op_wait_once(op);
    return status;
}

int net_op_wait_all(struct net_op *op, struct net_request *requests, uint32_t n)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < n; i++)
        status = net_op_wait(op, &requests[i]);
    return status;
}

/* The first that is done since net_op_wait_any was called; n: none. */
static uint32_t op_find_done(const struct net_request *requests, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && (!requests[i].done || requests[i].was_done))
        i++;
    return i;
}

int net_op_wait_any(struct net_op *op, struct net_request *requests, uint32_t n, uint32_t *index)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; i < n; i++)
        requests[i].was_done = requests[i].done;
    while (status == COLLRUN_OK && (*index = op_find_done(requests, n)) == n)
        status = op_wait_once(op);
    return status;
}

int net_op_progress(struct net_op *op)
{
    endpoint_lock(op->group->endpoint);
    endpoint_progress(op->group->endpoint);
    return op_leave(op);
}

void net_op_hand_over(struct net_op *op)
{
    endpoint_lock(op->group->endpoint);
    endpoint_unlock(op->group->endpoint);
}

int net_op_fail(struct net_op *op, int status, const char *text)
{
    endpoint_lock(op->group->endpoint);
    op_fail_everywhere(op->group, status, text);
    endpoint_unlock(op->group->endpoint);
    return net_group_failure(op->group);
}

void net_op_abandon(struct net_op *op)
{
    endpoint_lock(op->group->endpoint);
    net_ops_fail(op->group);
    endpoint_unlock(op->group->endpoint);
}

void *net_op_scratch(struct net_op *op, size_t len)
{
    struct net_group *g = op->group;
    void *piece = scratch_get(&g->ops.scratch, &op->scratch, len);
    if (!piece) {
        endpoint_lock(g->endpoint);
        net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for a collective");
        endpoint_unlock(g->endpoint);
        net_group_failure(g);
    }
    return piece;
}

/* ---- how far a rank may be ahead ----
 *
 * struct net_ahead: how far a rank may be ahead of others in the collectives of a group.
 *
 * In an operation with a root, and in a vector form, some ranks wait for no other: they send what
 * is short at once, return, and begin the next operation. What they send waits for slower ranks in
 * memory, here or there. So after NET_AHEAD_BYTES of such operations one of them is bounded: it
 * sends no data without a grant, for which its receiver has to be in the same operation. All
 * members compute alike which operation that is. */

/* What an operation counts at least, for its packet; and in a vector form, where ranks know
 * different counts: less than such an operation may have. Most have less, and to wait for a grant
 * takes as long as a few small ones. */
enum { AHEAD_LEAST = 128, AHEAD_VECTOR = 4096 };

/* Counts every operation of the group, in order; `elem`: bytes of an element. True: the operation
 * bounds how far ranks are ahead. */
static bool op_ahead_add(struct net_ahead *ahead, const struct collrun_call *call, size_t elem)
{
    const bool vector = collrun_kind_is_vector(call->kind);
    if (!vector && !collrun_kind_has_root(call->kind)) { /* each rank waits for all others */
        ahead->bytes = 0;
        return false;
    }
    const size_t bytes = vector                                 ? AHEAD_VECTOR
                         : call->count > NET_AHEAD_BYTES / elem ? NET_AHEAD_BYTES
                                                                : call->count * elem;
    if (bytes == 0) /* there is nothing to wait for a grant with */
        return false;
    ahead->bytes += bytes < AHEAD_LEAST ? AHEAD_LEAST : bytes;
    if (ahead->bytes < NET_AHEAD_BYTES)
        return false;
    ahead->bytes = 0;
    return true;
}

/* ---- operations ---- */

/* Kept packets of this operation whose sender calls something else. */
static void op_check_kept(struct net_op *op)
{
    const struct net_ops_kept *kept = op->group->ops.kept;
    while (kept && (kept->packet.op.number != op->mine.number ||
                    packet_op_agrees(&kept->packet.op, &op->mine)))
        kept = kept->next;
    if (kept)
        op_fail_mismatch(op, &kept->packet);
}

/* Kept packets of operations that are over. */
static void ops_drop_kept(struct net_ops *ops)
{
    for (struct net_ops_kept **at = &ops->kept, *kept; (kept = *at);) {
        if ((int32_t)(kept->packet.op.number - ops->next_number) >= 0) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        free(kept);
    }
    ops->kept_end = &ops->kept;
    while (*ops->kept_end)
        ops->kept_end = &(*ops->kept_end)->next;
}

int net_ops_run(struct net_group *g, const struct collrun_call *call,
                int (*run)(void *ctx, struct net_op *op), void *ctx)
{
    struct net_op op = {.group = g, .call = call};
    endpoint_lock(g->endpoint);
    op.mine = packet_op_of(call);
    op.mine.number = g->ops.next_number++;
    op.is_bounded = op_ahead_add(&g->ops.ahead, call, g->services->dtype_size(call->dtype));
    g->ops.current = &op;
    if (g->ops.kept)
        op_check_kept(&op);
    int status = op_leave(&op);
    if (status == COLLRUN_OK)
        status = run(ctx, &op);
    endpoint_lock(g->endpoint);
    net_ops_fail(g); /* requests that were not waited for */
    g->ops.current = NULL;
    if (g->ops.kept)
        ops_drop_kept(&g->ops);
    endpoint_unlock(g->endpoint);
    scratch_release(&g->ops.scratch, &op.scratch);
    return status;
}

void net_ops_init(struct net_ops *ops)
{
    *ops = (struct net_ops){0};
    ops->kept_end = &ops->kept;
}

void net_ops_fini(struct net_ops *ops)
{
    while (ops->kept) {
        struct net_ops_kept *kept = ops->kept;
        ops->kept = kept->next;
        free(kept);
    }
    scratch_fini(&ops->scratch);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * First the constants: which operations can complete by what has happened already. The others get a
 * node, with the ranks that it depends on. Then threads become FREE one by one, until none does.
 * Each pair of a rank and a node is visited once.
 */
#include "diagnose/proof.h"

#include "base/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_NODE UINT32_MAX

/* One side of all channels between two ranks: what `from` has sent to a rank. */
struct sent_channel {
    uint32_t from;
    const struct record_cut_channel *channel;
};

struct proof_build {
    struct proof *p;
    /* What was sent to rank R: sent[sent_at[R]] to sent[sent_at[R + 1]], by sender. */
    struct sent_channel *sent;
    uint32_t *sent_at;
    uint32_t *table; /* hash of the nodes: index + 1 */
    uint32_t ntable, most_links;
    /* Groups on whose members two ranks disagree, ascending: nothing is proven with them. */
    uint64_t *disputed;
    uint32_t ndisputed;
};

/* ---- what is known of a rank ---- */

static const struct record_cut *proof_cut(const struct proof *p, uint32_t rank)
{
    return p->ranks[rank].cut;
}

static const struct record_cut_group *proof_group(const struct proof *p, uint32_t rank,
                                                  const struct record_cut_op *op)
{
    return &proof_cut(p, rank)->groups[op->group];
}

static bool proof_acts(const struct proof *p, uint32_t rank)
{
    return rank >= p->nranks || p->ranks[rank].acts;
}

/* True if the rank can act, or may have sent in the group what it does not show. */
static bool proof_hides(const struct proof *p, uint32_t rank, uint64_t group)
{
    const struct record_cut *cut = rank < p->nranks ? proof_cut(p, rank) : NULL;
    return proof_acts(p, rank) || (cut->lost & RECORD_LOST_CHANNELS) ||
           (cut->forgotten && !record_cut_group(cut, group));
}

/* ---- groups on whose members ranks disagree ---- */

static int proof_by_id(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int proof_by_group(const void *a, const void *b)
{
    const struct record_cut_group *x = *(const struct record_cut_group *const *)a;
    const struct record_cut_group *y = *(const struct record_cut_group *const *)b;
    return proof_by_id(&x->id, &y->id);
}

/* The two sides of an intercommunicator list each other in reverse order: they are not compared. */
static bool proof_same_members(const struct record_cut_group *x, const struct record_cut_group *y)
{
    if (x->nremote && y->nremote)
        return x->nmembers + x->nremote == y->nmembers + y->nremote;
    return x->nmembers == y->nmembers && x->nremote == y->nremote &&
           (x->members == y->members ||
            memcmp(x->members, y->members, x->nmembers * sizeof *x->members) == 0);
}

static void proof_find_disputed(struct proof_build *b)
{
    const struct proof *p = b->p;
    size_t n = 0;
    for (uint32_t i = 0; i < p->nranks; i++)
        n += p->ranks[i].cut ? p->ranks[i].cut->ngroups : 0;
    const struct record_cut_group **all = arena_calloc(p->arena, n, sizeof *all);
    b->disputed = arena_calloc(p->arena, n, sizeof *b->disputed);
    if (arena_failed(p->arena))
        return;
    n = 0;
    for (uint32_t i = 0; i < p->nranks; i++)
        for (uint32_t k = 0; p->ranks[i].cut && k < p->ranks[i].cut->ngroups; k++)
            all[n++] = &p->ranks[i].cut->groups[k];
    if (n)
        qsort(all, n, sizeof *all, proof_by_group);
    for (size_t i = 1; i < n; i++)
        if (all[i]->id == all[i - 1]->id && !proof_same_members(all[i], all[i - 1]))
            b->disputed[b->ndisputed++] = all[i]->id;
}

static bool proof_is_disputed(const struct proof_build *b, uint64_t id)
{
    return b->ndisputed && bsearch(&id, b->disputed, b->ndisputed, sizeof id, proof_by_id);
}

/* ---- channels ---- */

static uint64_t proof_group_id(const struct record_cut *cut, const struct record_cut_channel *c)
{
    return cut->groups[c->group].id;
}

/* A channel that counts for messages with this tag. Once a side has folded the tags of a pair, all
 * that share the folded channel count, on both sides: a sum of sums is as sound as each. */
static bool proof_counts(const struct record_cut_channel *c, uint32_t tag, bool folded)
{
    if (tag == RECORD_ANY_TAG)
        return true;
    if (!folded)
        return !c->folded && c->tag == tag;
    return (c->folded ? c->tag : record_fold(c->tag)) == record_fold(tag);
}

/* The channels of `cut` with a peer in a group: the first, and their number. */
static const struct record_cut_channel *proof_channels(const struct record_cut *cut, uint64_t group,
                                                       uint32_t peer, uint32_t *n)
{
    const struct record_cut_group *g = record_cut_group(cut, group);
    const uint32_t at = g ? (uint32_t)(g - cut->groups) : 0;
    uint32_t low = 0, high = g ? cut->nchannels : 0;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct record_cut_channel *c = &cut->channels[middle];
        if (c->group < at || (c->group == at && c->peer < peer))
            low = middle + 1;
        else
            high = middle;
    }
    *n = 0;
    while (g && low + *n < cut->nchannels && cut->channels[low + *n].group == at &&
           cut->channels[low + *n].peer == peer)
        ++*n;
    return &cut->channels[low];
}

static bool proof_has_folded(const struct record_cut_channel *c, uint32_t n)
{
    return n && c[n - 1].folded; /* they come last */
}

/* Between `rank` and `from`, in one direction. */
struct proof_pair {
    const struct record_cut_channel *sent, *taken;
    uint32_t nsent, ntaken;
    bool folded;
};

static struct proof_pair proof_pair(const struct proof *p, uint64_t group, uint32_t from,
                                    uint32_t to)
{
    struct proof_pair pair;
    pair.sent = proof_channels(proof_cut(p, from), group, to, &pair.nsent);
    pair.taken = proof_channels(proof_cut(p, to), group, from, &pair.ntaken);
    pair.folded =
        proof_has_folded(pair.sent, pair.nsent) || proof_has_folded(pair.taken, pair.ntaken);
    return pair;
}

static uint64_t proof_sum_taken(const struct proof_pair *pair, uint32_t tag)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pair->ntaken; i++)
        if (proof_counts(&pair->taken[i], tag, pair->folded))
            sum += pair->taken[i].taken;
    return sum;
}

static uint64_t proof_sum_sent(const struct proof_pair *pair, uint32_t tag)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pair->nsent; i++)
        if (proof_counts(&pair->sent[i], tag, pair->folded))
            sum += pair->sent[i].sent;
    return sum;
}

/* ---- receives ---- */

/* True if the receive `earlier` gets a message of this tag before the one at `op` does. */
static bool proof_precedes(const struct record_cut_op *earlier, const struct record_cut_op *op,
                           uint32_t from, uint32_t tag, bool folded)
{
    if (earlier->group != op->group || earlier->post >= op->post)
        return false;
    /* Which of two threads has posted first is not known. */
    if (earlier->thread != op->thread && RECORD_RULE(SAME_THREAD_PRECEDES))
        return false;
    if (earlier->state != RECORD_OPEN && RECORD_RULE(WITHDRAWN_MAY_COMPLETE))
        return false;
    /* A receive with a wildcard may take a message of another channel. */
    if (earlier->peer == RECORD_ANY_RANK || earlier->tag == RECORD_ANY_TAG)
        return !RECORD_RULE(WILDCARD_PRECEDES_NONE) && op->peer != RECORD_ANY_RANK &&
               op->tag != RECORD_ANY_TAG &&
               (earlier->peer == RECORD_ANY_RANK || earlier->peer == op->peer);
    if (earlier->peer != (int32_t)from)
        return false;
    return earlier->tag == tag || (folded && !RECORD_RULE(EXACT_PRECEDES));
}

static uint64_t proof_earlier(const struct record_cut *cut, const struct record_cut_op *op,
                              uint32_t from, uint32_t tag, bool folded)
{
    uint64_t n = 0;
    if (op->kind == RECORD_PROBE)
        return 0;
    for (uint32_t i = 0; i < cut->nreceives; i++)
        n += proof_precedes(&cut->receives[i], op, from, tag, folded);
    return n;
}

/* True if a message of `from` may be on the way for this receive of `rank`, or have arrived. */
static bool proof_is_pending(const struct proof *p, uint32_t rank, const struct record_cut_op *op,
                             uint32_t from)
{
    const struct record_cut *own = proof_cut(p, rank);
    const uint64_t group = own->groups[op->group].id;
    if (!RECORD_RULE(MESSAGES_IN_FLIGHT))
        return false;
    if ((own->lost & RECORD_LOST_CHANNELS) || proof_hides(p, from, group))
        return true;
    const struct proof_pair pair = proof_pair(p, group, from, rank);
    if (op->tag != RECORD_ANY_TAG)
        return proof_sum_sent(&pair, op->tag) >
               proof_sum_taken(&pair, op->tag) + proof_earlier(own, op, from, op->tag, pair.folded);
    if (pair.folded)
        return proof_sum_sent(&pair, RECORD_ANY_TAG) > proof_sum_taken(&pair, RECORD_ANY_TAG);
    for (uint32_t i = 0; i < pair.nsent; i++) {
        const uint32_t tag = pair.sent[i].tag;
        if (pair.sent[i].sent >
            proof_sum_taken(&pair, tag) + proof_earlier(own, op, from, tag, false))
            return true;
    }
    return false;
}

/* The same for any member: those that have sent anything to this rank. */
static bool proof_any_is_pending(const struct proof_build *b, uint32_t rank,
                                 const struct record_cut_op *op)
{
    const struct proof *p = b->p;
    const uint64_t group = proof_group(p, rank, op)->id;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = b->sent_at[rank]; i < b->sent_at[rank + 1]; i++) {
        const struct sent_channel *s = &b->sent[i];
        if (s->from == last || proof_group_id(proof_cut(p, s->from), s->channel) != group)
            continue;
        last = s->from;
        if (proof_is_pending(p, rank, op, s->from))
            return true;
    }
    return false;
}

/* ---- sends ---- */

static bool proof_fits(const struct record_cut *theirs, const struct record_cut_op *receive,
                       uint64_t group, uint32_t from, uint32_t tag)
{
    const bool wild = receive->peer == RECORD_ANY_RANK || receive->tag == RECORD_ANY_TAG;
    if (receive->group == RECORD_CUT_NO_GROUP || theirs->groups[receive->group].id != group)
        return false;
    if (wild && !RECORD_RULE(WILDCARD_FITS))
        return false;
    return (receive->peer == RECORD_ANY_RANK || receive->peer == (int32_t)from) &&
           (receive->tag == RECORD_ANY_TAG || receive->tag == tag);
}

/* True if the send may be complete, or matched, by what its receiver has done. */
static bool proof_is_matched(const struct proof *p, uint32_t rank, const struct record_cut_op *op)
{
    const uint32_t to = (uint32_t)op->peer;
    const struct record_cut *theirs = proof_cut(p, to);
    const uint64_t group = proof_group(p, rank, op)->id;
    const struct proof_pair pair = proof_pair(p, group, rank, to);
    uint64_t offers = RECORD_RULE(TAKEN_MATCHES) ? proof_sum_taken(&pair, op->tag) : 0;
    if ((theirs->lost & (RECORD_LOST_REQUESTS | RECORD_LOST_CHANNELS)) ||
        (theirs->forgotten && !record_cut_group(theirs, group)))
        return true;
    for (uint32_t i = 0; i < theirs->nreceives; i++)
        offers += proof_fits(theirs, &theirs->receives[i], group, rank, op->tag);
    return offers > op->order;
}

/* ---- nodes ---- */

/* A node without ranks. There is room for one of each item. */
static struct proof_node *proof_add_node(struct proof_build *b)
{
    struct proof *p = b->p;
    struct proof_node *n = &p->nodes[p->nnodes++];
    *n = (struct proof_node){.first = p->nlinks};
    return n;
}

/* The node of this name, for all items that need the same. */
static struct proof_node *proof_shared_node(struct proof_build *b, uint64_t group, uint64_t key,
                                            bool *is_new)
{
    const uint64_t hash =
        (group ^ key * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xc4ceb9fe1a85ec53);
    uint32_t at = (uint32_t)(hash >> 32) % b->ntable;
    for (*is_new = false; b->table[at]; at = (at + 1) % b->ntable) {
        struct proof_node *n = &b->p->nodes[b->table[at] - 1];
        if (n->group == group && n->key == key)
            return n;
    }
    *is_new = true;
    struct proof_node *n = proof_add_node(b);
    b->table[at] = b->p->nnodes;
    n->group = group;
    n->key = key;
    return n;
}

/* The node depends on this rank. Its links are the last ones: nodes are filled one by one. */
static void proof_link(struct proof_build *b, struct proof_node *n, uint32_t rank)
{
    struct proof *p = b->p;
    if (p->nlinks == b->most_links) {
        const uint32_t most = 2 * b->most_links + 64;
        uint32_t *more = arena_calloc(p->arena, most, sizeof *more);
        if (!more)
            return;
        if (p->nlinks)
            memcpy(more, p->links, p->nlinks * sizeof *more);
        p->links = more;
        b->most_links = most;
    }
    p->links[p->nlinks++] = rank;
    n->nranks++;
}

/* What names a shared node, beside its group. */
enum { KEY_ANY_RANK, KEY_RANK, KEY_CALL, KEYS };

/* Any of some ranks, none of which can act at first. */
static struct proof_node *proof_rank_node(struct proof_build *b, uint32_t rank)
{
    bool is_new;
    struct proof_node *n = proof_shared_node(b, 0, (uint64_t)rank * KEYS + KEY_RANK, &is_new);
    n->any = true;
    n->needed = 1;
    if (is_new)
        proof_link(b, n, rank);
    return n;
}

static struct proof_node *proof_any_node(struct proof_build *b, const struct record_cut_group *g)
{
    const uint32_t from = g->nremote ? g->nmembers : 0, n = g->nremote ? g->nremote : g->nmembers;
    bool is_new;
    struct proof_node *node = proof_shared_node(b, g->id, KEY_ANY_RANK, &is_new);
    for (uint32_t i = 0; is_new && i < n; i++) {
        const bool acts = proof_hides(b->p, g->members[from + i], g->id);
        if (acts && RECORD_RULE(ANY_RANK_IS_ONE))
            return node; /* met, now and for all later items */
        if (!acts)
            proof_link(b, node, g->members[from + i]);
    }
    node->any = true;
    if (is_new)
        node->needed = RECORD_RULE(ANY_RANK_IS_ONE) ? 1 : node->nranks;
    return node;
}

/* ---- collectives ---- */

enum proof_needs { NEEDS_NONE, NEEDS_ALL, NEEDS_ROOT, NEEDS_ALL_IF_ROOT, NEEDS_LOWER, NEEDS_LIST };

/* From whom a member needs something for certain before it can return, by kind and its own count.
 */
static enum proof_needs proof_needs(const struct record_cut_op *op, uint32_t rank)
{
    const bool root = op->peer == (int32_t)rank, some = op->count > 0;
    switch ((unsigned)op->kind) {
    case COLLRUN_BARRIER:
    case RECORD_FORM:
        return NEEDS_ALL;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
    case COLLRUN_REDUCE_SCATTER:
        return some ? NEEDS_ALL : NEEDS_NONE;
    case COLLRUN_BROADCAST:
    case COLLRUN_SCATTER:
        if (!RECORD_RULE(ROOT_RETURNS))
            return NEEDS_ALL;
        return some && !root ? NEEDS_ROOT : NEEDS_NONE;
    case COLLRUN_SCATTERV:
        return some && !root ? NEEDS_ROOT : NEEDS_NONE;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
        return some && root ? NEEDS_ALL : NEEDS_NONE;
    case COLLRUN_SCAN:
    case COLLRUN_EXSCAN:
        return some ? NEEDS_LOWER : NEEDS_NONE;
    case COLLRUN_ALLGATHERV:
    case COLLRUN_GATHERV:
    case COLLRUN_ALLTOALLV:
    case COLLRUN_REDUCE_SCATTERV:
    case RECORD_NEIGHBORS:
        return NEEDS_LIST;
    default:
        return NEEDS_NONE;
    }
}

/* True if the member has not begun collective `number`, as far as its cut shows. */
static bool proof_is_late(const struct proof *p, uint32_t member, uint64_t group, uint64_t number)
{
    const struct record_cut *cut = proof_cut(p, member);
    const struct record_cut_group *g = record_cut_group(cut, group);
    if (!g)
        return !cut->forgotten;
    return !g->closed && g->called < number;
}

static uint32_t proof_position(const struct record_cut_group *g, uint32_t rank)
{
    uint32_t i = 0;
    while (i < g->nmembers && g->members[i] != rank)
        i++;
    return i;
}

/* The node of each rank that a collective needs, that is late and cannot act. NULL: it needs none,
 * or, over an intercommunicator, ranks that are not known here. */
static struct proof_node *proof_collective_node(struct proof_build *b, uint32_t rank,
                                                const struct record_cut_op *op)
{
    const struct record_cut_group *g = proof_group(b->p, rank, op);
    const uint32_t root = (uint32_t)op->peer, *list = g->members;
    const enum proof_needs needs = g->nremote ? NEEDS_NONE : proof_needs(op, rank);
    uint32_t n = g->nmembers;
    bool is_new = true;
    if (needs == NEEDS_NONE)
        return NULL;
    if (needs == NEEDS_ROOT) {
        list = &root;
        n = 1;
    } else if (needs == NEEDS_LOWER) {
        n = proof_position(g, rank);
    } else if (needs == NEEDS_LIST) {
        list = op->needs;
        n = op->nneeds;
    }
    struct proof_node *node =
        needs == NEEDS_ALL ? proof_shared_node(b, g->id, op->number * KEYS + KEY_CALL, &is_new)
                           : proof_add_node(b);
    for (uint32_t i = 0; is_new && i < n; i++)
        if (!proof_acts(b->p, list[i]) && proof_is_late(b->p, list[i], g->id, op->number))
            proof_link(b, node, list[i]);
    if (is_new)
        node->needed = node->nranks;
    return node;
}

/* ---- operations ---- */

/* The node that the operation waits for; NULL: it may complete. */
static struct proof_node *proof_op_node(struct proof_build *b, uint32_t rank,
                                        const struct record_cut_op *op)
{
    const struct proof *p = b->p;
    const bool peer_known = op->peer >= 0 && (uint32_t)op->peer < p->nranks;
    if (op->group == RECORD_CUT_NO_GROUP || proof_is_disputed(b, proof_group(p, rank, op)->id) ||
        (!kind_is_collective(op->kind) && proof_group(p, rank, op)->unordered))
        return NULL;
    switch ((unsigned)op->kind) {
    case COLLRUN_SEND:
        if (!(op->flags & RECORD_SYNC) && RECORD_RULE(SEND_MAY_BE_BUFFERED))
            return NULL;
        if (!peer_known || proof_acts(p, (uint32_t)op->peer) || proof_is_matched(p, rank, op))
            return NULL;
        return proof_rank_node(b, (uint32_t)op->peer);
    case RECORD_PROBE:
        if (op->takes != proof_cut(p, rank)->takes && RECORD_RULE(PROBE_TAKES))
            return NULL;
        break;
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        break;
    default:
        return proof_collective_node(b, rank, op);
    }
    if (op->peer == RECORD_ANY_RANK)
        return proof_any_is_pending(b, rank, op) ? NULL
                                                 : proof_any_node(b, proof_group(p, rank, op));
    if (!peer_known || proof_acts(p, (uint32_t)op->peer) ||
        proof_is_pending(p, rank, op, (uint32_t)op->peer))
        return NULL;
    return proof_rank_node(b, (uint32_t)op->peer);
}

static void proof_add_item(struct proof_build *b, uint32_t thread, const struct record_cut_op *op)
{
    struct proof *p = b->p;
    struct proof_thread *t = &p->threads[thread];
    struct proof_item *item = &p->items[p->nitems];
    struct proof_node *n = NULL;
    *item = (struct proof_item){.op = op, .thread = thread};
    if (op->state == RECORD_OPEN ||
        (op->state == RECORD_WITHDRAWN && !RECORD_RULE(WITHDRAWN_MAY_COMPLETE)))
        n = proof_op_node(b, t->rank, op);
    item->node = n ? (uint32_t)(n - p->nodes) : NO_NODE;
    item->met = !n || !n->needed;
    /* A request that was closed completes nothing more. */
    if (op->state == RECORD_FREE && !RECORD_RULE(CLOSED_IS_COMPLETE))
        item->met = false;
    t->unmet += !item->met;
    if (n) {
        item->next = n->items;
        n->items = p->nitems + 1;
    }
    p->nitems++;
    t->nitems++;
}

/* ---- threads ---- */

static bool proof_thread_may_return(const struct proof_thread *t)
{
    const struct record_cut_thread *c = t->cut;
    if (c->role != RECORD_CUT_BLOCKED)
        return false;
    if (c->timeout_ns && c->timeout_ns < PROOF_MIN_TIMEOUT_NS)
        return true;
    if (c->mode == RECORD_ANY && RECORD_RULE(ANY_NEEDS_ONE))
        return c->cut || t->unmet < t->nitems || !t->nitems;
    return c->mode == RECORD_NONE || !t->unmet;
}

/* The only transition of a thread: BLOCKED to FREE. Returns false if it is FREE already. */
static bool proof_free(struct proof_thread *t)
{
    if (t->state == PROOF_FREE)
        return false;
    t->state = PROOF_FREE;
    return true;
}

/* Threads that are FREE and not visited yet. */
struct proof_queue {
    uint32_t *threads;
    uint32_t first, n;
};

static void proof_enqueue(struct proof *p, struct proof_queue *q, uint32_t thread)
{
    if (proof_free(&p->threads[thread]))
        q->threads[q->n++] = thread;
}

static void proof_meet(struct proof *p, struct proof_queue *q, const struct proof_node *n)
{
    for (uint32_t i = n->items; i; i = p->items[i - 1].next) {
        struct proof_item *item = &p->items[i - 1];
        struct proof_thread *t = &p->threads[item->thread];
        if (item->met)
            continue;
        item->met = true;
        assert(t->unmet > 0);
        t->unmet--;
        if (proof_thread_may_return(t))
            proof_enqueue(p, q, item->thread);
    }
}

/* The nodes that depend on a rank: nodes[at[R]] to nodes[at[R + 1]]. */
struct proof_index {
    uint32_t *at, *nodes;
};

static void proof_rank_acts(struct proof *p, struct proof_queue *q, const struct proof_index *index,
                            uint32_t rank)
{
    p->ranks[rank].acts = true;
    for (uint32_t i = index->at[rank]; i < index->at[rank + 1]; i++) {
        struct proof_node *n = &p->nodes[index->nodes[i]];
        if (n->needed && --n->needed == 0)
            proof_meet(p, q, n);
    }
}

static void proof_visit(struct proof *p, struct proof_queue *q, const struct proof_index *index,
                        uint32_t thread)
{
    const struct proof_thread *t = &p->threads[thread];
    struct proof_rank *r = &p->ranks[t->rank];
    if (r->awake++ == 0)
        for (uint32_t i = r->first; i < r->first + r->nthreads; i++)
            if (p->threads[i].cut->role == RECORD_CUT_ASLEEP)
                proof_enqueue(p, q, i);
    if (!r->acts && t->cut->calls)
        proof_rank_acts(p, q, index, t->rank);
}

/* ---- the build ---- */

/* The threads of a rank that are in calls or asleep; the others are what makes it act at first. */
static void proof_add_rank(struct proof *p, uint32_t rank, const struct record_cut *cut)
{
    struct proof_rank *r = &p->ranks[rank];
    if (!cut || cut->state == RECORD_CUT_MOVING) {
        r->acts = true;
        r->awake = 1;
        return;
    }
    r->cut = cut;
    r->ended = cut->state == RECORD_CUT_ENDED;
    r->first = p->nthreads;
    for (uint32_t i = 0; i < cut->nthreads; i++) {
        const struct record_cut_thread *t = &cut->threads[i];
        if (i && !RECORD_RULE(ALL_THREADS_ACT))
            break;
        if (t->role != RECORD_CUT_ACTOR) {
            p->threads[p->nthreads++] = (struct proof_thread){.cut = t, .rank = rank};
            continue;
        }
        r->awake++;
        r->acts = r->acts || t->calls;
    }
    r->nthreads = p->nthreads - r->first;
}

static size_t proof_count(const struct record_cut *const *cuts, uint32_t nranks, size_t *nitems)
{
    size_t nthreads = 0;
    *nitems = 0;
    for (uint32_t i = 0; i < nranks; i++) {
        nthreads += cuts[i] ? cuts[i]->nthreads : 0;
        for (uint32_t k = 0; cuts[i] && k < cuts[i]->nthreads; k++)
            *nitems += cuts[i]->threads[k].nops;
    }
    return nthreads;
}

/* True if the channel is one to another rank of the job. */
static bool proof_is_sent(const struct proof *p, const struct record_cut_channel *c)
{
    return c->sent && c->peer < p->nranks;
}

/* Sorts the channels by receiver: counts them, then puts each at its place. */
static void proof_index_sent(struct proof_build *b)
{
    const struct proof *p = b->p;
    uint32_t *at = b->sent_at = arena_calloc(p->arena, (size_t)p->nranks + 2, sizeof *at);
    size_t n = 0;
    for (uint32_t i = 0; at && i < p->nranks; i++)
        for (uint32_t k = 0; p->ranks[i].cut && k < p->ranks[i].cut->nchannels; k++)
            if (proof_is_sent(p, &p->ranks[i].cut->channels[k])) {
                at[p->ranks[i].cut->channels[k].peer + 2]++;
                n++;
            }
    b->sent = arena_calloc(p->arena, n, sizeof *b->sent);
    for (uint32_t i = 0; !arena_failed(p->arena) && i < p->nranks; i++)
        at[i + 2] += at[i + 1];
    for (uint32_t i = 0; !arena_failed(p->arena) && i < p->nranks; i++)
        for (uint32_t k = 0; p->ranks[i].cut && k < p->ranks[i].cut->nchannels; k++) {
            const struct record_cut_channel *c = &p->ranks[i].cut->channels[k];
            if (proof_is_sent(p, c))
                b->sent[at[c->peer + 1]++] = (struct sent_channel){i, c};
        }
}

static void proof_index_nodes(const struct proof *p, struct proof_index *index)
{
    uint32_t *at = index->at = arena_calloc(p->arena, (size_t)p->nranks + 2, sizeof *at);
    index->nodes = arena_calloc(p->arena, p->nlinks, sizeof *index->nodes);
    if (arena_failed(p->arena))
        return;
    for (uint32_t i = 0; i < p->nlinks; i++)
        at[p->links[i] + 2]++;
    for (uint32_t i = 0; i < p->nranks; i++)
        at[i + 2] += at[i + 1];
    for (uint32_t n = 0; n < p->nnodes; n++)
        for (uint32_t i = 0; i < p->nodes[n].nranks; i++)
            index->nodes[at[p->links[p->nodes[n].first + i] + 1]++] = n;
}

static bool proof_build(struct proof_build *b, const struct record_cut *const *cuts)
{
    struct proof *p = b->p;
    size_t nitems;
    const size_t nthreads = proof_count(cuts, p->nranks, &nitems);
    p->ranks = arena_calloc(p->arena, p->nranks, sizeof *p->ranks);
    p->threads = arena_calloc(p->arena, nthreads, sizeof *p->threads);
    p->items = arena_calloc(p->arena, nitems, sizeof *p->items);
    p->nodes = arena_calloc(p->arena, nitems, sizeof *p->nodes);
    b->ntable = (uint32_t)(2 * nitems + 1);
    b->table = arena_calloc(p->arena, b->ntable, sizeof *b->table);
    if (arena_failed(p->arena))
        return false;
    for (uint32_t i = 0; i < p->nranks; i++)
        proof_add_rank(p, i, cuts[i]);
    proof_index_sent(b);
    proof_find_disputed(b);
    if (arena_failed(p->arena))
        return false;
    for (uint32_t i = 0; i < p->nthreads; i++) {
        struct proof_thread *t = &p->threads[i];
        t->first = p->nitems;
        for (uint32_t k = 0; t->cut->role == RECORD_CUT_BLOCKED && k < t->cut->nops; k++)
            proof_add_item(b, i, &t->cut->ops[k]);
    }
    return !arena_failed(p->arena);
}

bool proof_solve(const struct record_cut *const *cuts, uint32_t nranks, struct arena *arena,
                 struct proof *p)
{
    struct proof_build b = {.p = p};
    struct proof_index index;
    *p = (struct proof){.arena = arena, .nranks = nranks};
    if (!proof_build(&b, cuts))
        return false;
    struct proof_queue q = {.threads = arena_calloc(arena, p->nthreads, sizeof *q.threads)};
    proof_index_nodes(p, &index);
    if (arena_failed(arena))
        return false;
    for (uint32_t i = 0; i < p->nthreads; i++) {
        const struct proof_thread *t = &p->threads[i];
        const bool woken = t->cut->role == RECORD_CUT_ASLEEP && p->ranks[t->rank].awake;
        if (woken || proof_thread_may_return(t))
            proof_enqueue(p, &q, i);
    }
    while (q.first < q.n)
        proof_visit(p, &q, &index, q.threads[q.first++]);
    for (uint32_t i = 0; i < p->nthreads; i++)
        p->nblocked +=
            p->threads[i].state == PROOF_BLOCKED && p->threads[i].cut->role == RECORD_CUT_BLOCKED;
    return true;
}

bool proof_has(const struct proof *p, uint32_t rank, uint32_t tid)
{
    const struct proof_rank *r = &p->ranks[rank];
    for (uint32_t i = r->first; i < r->first + r->nthreads; i++)
        if (p->threads[i].cut->tid == tid)
            return p->threads[i].state == PROOF_BLOCKED &&
                   p->threads[i].cut->role == RECORD_CUT_BLOCKED;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/message_pairs.h"

#include "base/exit_codes.h"
#include "base/mpi_names.h"
#include "diagnose/blame.h"
#include "diagnose/mismatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One side of a message. Source and destination are ranks of the communicator. */
struct message {
    uint64_t comm, index;
    uint32_t source, destination, tag;
    bool receives;
    uint32_t rank; /* of the job */
    struct record_view_op op;
};

struct messages {
    struct message *items;
    uint32_t n, size;
};

/* ---- the messages of the records ---- */

/* "mpi:00000000000000c3" */
static uint64_t message_comm(const char *scope)
{
    return strncmp(scope, "mpi:", 4) == 0 ? strtoull(scope + 4, NULL, 16) : 0;
}

static void messages_add(struct messages *list, const struct message *m, struct arena *arena)
{
    if (list->n == list->size) {
        const uint32_t size = list->size ? 2 * list->size : 256;
        struct message *items = arena_calloc(arena, size, sizeof *items);
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->size = size;
    }
    list->items[list->n++] = *m;
}

/* Which message a receive has taken is not known. */
static bool message_is_open(const struct record_view_op *op)
{
    return op->root_or_peer < 0 || op->tag == COLLRUN_ANY_TAG ||
           (op->state != RECORD_DONE && op->state != RECORD_STARTED);
}

/* Adds the sends of a rank, and its receives in communicators in which all of them are known. */
static void messages_read_rank(const struct evidence *e, uint32_t rank, struct arena *arena,
                               struct messages *list)
{
    const struct rank_state *r = &e->ranks[rank];
    const struct record_head *head = &r->record.head;
    bool *open = arena_calloc(arena, RECORD_GROUPS, sizeof *open);
    const uint32_t before = list->n;
    if (!r->record_bytes || atomic_load(&head->tap) != RECORD_TAP_MPI ||
        atomic_load(&head->level) == RECORD_LEVEL_MULTIPLE || record_view_first(&r->record) != 0)
        return;
    for (uint64_t i = 0; i < record_view_end(&r->record); i++) {
        struct message m = {.index = i, .rank = rank};
        struct record_view_group g;
        if (!record_view_op(&r->record, i, &m.op) || !m.op.is_current ||
            !record_view_group(&r->record, m.op.slot, &g) || !g.messages)
            continue;
        m.comm = message_comm(g.scope);
        m.receives = m.op.kind != COLLRUN_SEND || (unsigned)m.op.op == MPI_RECEIVES;
        m.source = m.receives ? (uint32_t)m.op.root_or_peer : g.rank;
        m.destination = m.receives ? g.rank : (uint32_t)m.op.root_or_peer;
        m.tag = m.op.tag;
        if (message_is_open(&m.op))
            open[m.op.slot] = true;
        else if (m.comm)
            messages_add(list, &m, arena);
    }
    uint32_t kept = before;
    for (uint32_t i = before; i < list->n; i++)
        if (!open[list->items[i].op.slot])
            list->items[kept++] = list->items[i];
    list->n = kept;
}

static int message_compare_channel(const struct message *a, const struct message *b)
{
    return a->comm != b->comm                 ? (a->comm > b->comm) - (a->comm < b->comm)
           : a->source != b->source           ? (a->source > b->source) - (a->source < b->source)
           : a->destination != b->destination ? (a->destination > b->destination ? 1 : -1)
                                              : (a->tag > b->tag) - (a->tag < b->tag);
}

static int message_compare(const void *x, const void *y)
{
    const struct message *a = x, *b = y;
    const int channel = message_compare_channel(a, b);
    return channel                      ? channel
           : a->receives != b->receives ? a->receives - b->receives
                                        : (a->index > b->index) - (a->index < b->index);
}

/* ---- a pair ---- */

/* The argument that differs; NULL: none does. */
static const char *message_difference(const struct message *send, const struct message *recv)
{
    const uint64_t sent = send->op.count * record_view_op_size(&send->op);
    const uint64_t room = recv->op.count * record_view_op_size(&recv->op);
    if (!send->op.count)
        return NULL;
    if (sent && room && sent > room)
        return "count";
    return recv->op.count && !mpi_types_fit((unsigned)send->op.dtype, (unsigned)recv->op.dtype)
               ? "dtype"
               : NULL;
}

static void message_set_call(const struct evidence *e, const struct message *m, struct arena *arena,
                             struct verdict_call *call)
{
    char text[MPI_CALL_TEXT_LEN];
    const struct mpi_call c = {.function = m->op.function,
                               .type = (unsigned)m->op.dtype,
                               .op = (unsigned)m->op.op,
                               .root_or_peer = m->op.root_or_peer,
                               .tag = m->op.tag,
                               .count = m->op.count};
    mpi_call_text(&c, text, sizeof text);
    *call = (struct verdict_call){.ranks = blame_new_list(e, arena),
                                  .call = arena_strdup(arena, text),
                                  .rank = m->rank,
                                  .site = m->op.site};
    call->ranks.items[call->ranks.n++] = m->rank;
}

static void message_blame(const struct evidence *e, const struct message *send,
                          const struct message *recv, struct arena *arena, struct verdict *v)
{
    struct record_view_group g;
    struct verdict_call *calls = arena_calloc(arena, 2, sizeof *calls);
    char line[200];
    if (!record_view_group(&e->ranks[recv->rank].record, recv->op.slot, &g))
        return;
    v->class = CAUSE_MISMATCH;
    v->group = arena_strdup(arena, g.name);
    v->number = recv->op.number;
    v->field = message_difference(send, recv);
    v->kind = NULL;
    v->culprits = (struct desc_ranks){NULL, 0};
    v->suspects = blame_new_list(e, arena);
    v->suspects.items[v->suspects.n++] = send->rank < recv->rank ? send->rank : recv->rank;
    if (send->rank != recv->rank)
        v->suspects.items[v->suspects.n++] = send->rank < recv->rank ? recv->rank : send->rank;
    message_set_call(e, send, arena, &calls[0]);
    message_set_call(e, recv, arena, &calls[1]);
    v->calls = calls;
    v->ncalls = 2;
    snprintf(line, sizeof line, "a message of %s %s: ", g.name,
             strcmp(v->field, "count") == 0 ? "is longer than its receive"
                                            : "is received with another type");
    diag_set(&v->diag, COLLRUN_ERR_MISMATCH, "%s", line);
    mismatch_append_calls(e, v, &v->diag);
}

/* The receive is one that the end of the rank may be about, or the job has ended well. */
static bool message_counts(const struct message *recv, uint32_t rank, const char *field)
{
    return rank == WIRE_HOST ? recv->op.state == RECORD_DONE
                             : recv->rank == rank && recv->op.state == RECORD_STARTED &&
                                   strcmp(field, "count") == 0;
}

bool message_pairs_find(const struct evidence *e, uint32_t rank, struct arena *arena,
                        struct verdict *v)
{
    struct messages list = {0};
    uint32_t send = 0;
    for (uint32_t i = 0; i < e->desc->nranks; i++)
        messages_read_rank(e, i, arena, &list);
    if (list.n)
        qsort(list.items, list.n, sizeof *list.items, message_compare);
    for (uint32_t i = 0; i < list.n; i++) {
        const struct message *m = &list.items[i];
        if (i && message_compare_channel(&list.items[i - 1], m) != 0)
            send = i;
        if (!m->receives || list.items[send].receives)
            continue;
        const struct message *s = &list.items[send++];
        const char *field = message_difference(s, m);
        if (!field || !message_counts(m, rank, field))
            continue;
        message_blame(e, s, m, arena, v);
        return v->class == CAUSE_MISMATCH;
    }
    return false;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for whatever reads a rank's record: its view, the copy that the agent sends and
 * that collrun diag reads, the audit from the agent's sender to the runner, and the cut of it with
 * the proof. Beside the sanitizers and the time limit, what record_view.h and record_cut.h say
 * about ranges is the oracle.
 *
 * fuzz_record --seeds FOLDER writes a record to start from.
 */
#include "agent/audit_sender.h"
#include "base/buf.h"
#include "base/names.h"
#include "base/record_cut.h"
#include "base/record_view.h"
#include "base/wire.h"
#include "diagnose/audit.h"
#include "diagnose/proof.h"
#include "fuzz/seed_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MOST = 8 };

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct buf b;
    if (*argc != 3 || strcmp((*argv)[1], "--seeds") != 0)
        return 0;
    buf_init(&b);
    seed_record(1, false, &b);
    seed_write((*argv)[2], "record", b.data, b.len);
    exit(0);
}

static void check_call(enum collrun_kind kind, enum collrun_dtype dtype, enum collrun_op op,
                       int root_or_peer)
{
    must(kind_is_known(kind) || kind == KIND_PROBE, "a kind is known");
    must(dtype_is_known(dtype), "a type is known");
    must(op_is_known(op) || (int)op == OP_USER, "an operator is known");
    must(root_or_peer >= -1, "a root or peer is -1 at least");
}

static void check_group(const struct record_view *v, uint32_t slot)
{
    struct record_view_group g;
    struct record_view_mark mark;
    if (!record_view_group(v, slot, &g))
        return;
    must(g.slot == slot && g.members && g.rank < g.members, "a group has its members");
    must(memchr(g.name, 0, sizeof g.name) && memchr(g.scope, 0, sizeof g.scope),
         "names are terminated");
    must(g.started <= RECORD_NUMBER_MAX && g.done <= RECORD_NUMBER_MAX, "numbers are bounded");
    check_call(g.kind, g.dtype, g.op, g.root_or_peer);
    for (uint64_t n = g.started > 130 ? g.started - 130 : 0; n <= g.started + 2; n++)
        if (record_view_mark(v, &g, n, &mark))
            must(mark.number == n && !g.messages, "a mark is that of its number");
}

static void check_op(const struct record_view *v, uint64_t index)
{
    uint64_t sent[MOST], expected[MOST], offset;
    char path[RECORD_VIEW_PATH];
    struct record_view_counts counts = {.sent = sent, .expected = expected};
    struct record_view_op op;
    if (!record_view_op(v, index, &op))
        return;
    must(op.index == index && op.slot < v->head.ngroups, "an operation has a slot");
    must(op.number <= RECORD_NUMBER_MAX, "the number of an operation is bounded");
    must(op.state >= RECORD_POSTED && op.state <= RECORD_CANCELED, "a state is known");
    check_call(op.kind, op.dtype, op.op, op.root_or_peer);
    if (record_view_counts(v, &op, MOST, &counts))
        must(counts.nsent <= MOST && counts.nexpected <= MOST, "counts have room");
    if (record_view_module(v, op.site, path, &offset))
        must(memchr(path, 0, sizeof path) != NULL, "paths are terminated");
}

static void check_view(const struct record_view *v)
{
    must(record_view_ngroups(v) <= v->head.ngroups, "slots exist");
    for (uint32_t i = 0; i <= record_view_ngroups(v); i++)
        check_group(v, i);
    uint64_t first = record_view_first(v), end = record_view_end(v);
    must(end - first <= v->head.entries, "no more operations than the ring has");
    for (uint64_t i = first; i != end; i++)
        check_op(v, i);
    check_op(v, first - 1);
    check_op(v, end);
}

/* As the agent does: the bytes are memory that the rank may have damaged. */
static void check_copy(void *live, size_t len)
{
    const struct record_view_part part = {.entries = 8, .marks = true};
    struct record_view v;
    struct buf b;
    buf_init(&b);
    if (record_view_save(live, len, &part, &b)) {
        must(record_view_init(&v, b.data, b.len, NULL) == 0, "a copy is a record");
        check_view(&v);
    }
    buf_fini(&b);
}

/* The agent looks twice at each of two ranks that have the same record, and they end. */
static void check_audit(const struct record_view *v)
{
    struct audit *a = audit_new(2);
    struct audit_sender_rank *sent = calloc(2, sizeof *sent);
    struct audit_finding found;
    for (uint32_t i = 0; a && sent && i < 4; i++) {
        const struct audit_sender_look look = {.now_ns = UINT64_C(1) << 40, .ended = i > 1};
        struct buf b;
        buf_init(&b);
        audit_sender_pack(&sent[i & 1], v, &look, &b);
        const struct wire_frame f = {.rank = i & 1, .payload = b.data, .len = b.len};
        must(audit_take(a, &f, &(int64_t){0}), "what the agent sends is well-formed");
        audit_find(a, true, &found);
        audit_find_extra(a, &found);
        buf_fini(&b);
    }
    if (a)
        audit_stragglers(a);
    audit_free(a);
    free(sent);
}

/* The thread of this process that has made the seed, and one that sleeps. */
static bool survey(void *ctx, struct arena *arena, struct record_survey *out)
{
    const struct record_view *v = ctx;
    const struct record_thread *threads = (const void *)(v->bytes + v->at.threads);
    struct record_task *tasks = arena_calloc(arena, 2, sizeof *tasks);
    if (!tasks)
        return false;
    tasks[0].tid = v->head.nthreads > 1 ? threads[1].tid : 1;
    tasks[1] = (struct record_task){.tid = 1, .state = RECORD_TASK_SLEEPS};
    *out = (struct record_survey){.tasks = tasks, .ntasks = 2};
    return true;
}

static void check_cut_op(const struct record_cut *cut, const struct record_cut_op *op)
{
    must(op->group == RECORD_CUT_NO_GROUP || op->group < cut->ngroups, "a cut has the group");
    must(!op->nneeds || op->needs, "what an operation needs is listed");
}

static void check_proof(struct record_view *v, bool ended)
{
    struct record_cut cut;
    struct proof p;
    struct proof_core core;
    struct arena arena;
    arena_init(&arena);
    must(record_cut_take(v, ended, survey, v, &arena, &cut), "a cut has memory");
    for (uint32_t i = 0; i < cut.nthreads; i++)
        for (uint32_t k = 0; k < cut.threads[i].nops; k++)
            check_cut_op(&cut, &cut.threads[i].ops[k]);
    for (uint32_t i = 0; i < cut.nreceives; i++)
        check_cut_op(&cut, &cut.receives[i]);
    for (uint32_t i = 0; i < cut.nchannels; i++)
        must(cut.channels[i].group < cut.ngroups, "a channel has a group");
    const struct record_cut *cuts[3] = {&cut, &cut, NULL};
    for (uint32_t n = 2; n <= 3; n++)
        must(proof_solve(cuts, n, &arena, &p) && proof_explain(&p, &core), "a proof has memory");
    arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record_view v;
    struct diag d;
    void *bytes = malloc(size ? size : 1); /* aligned */
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    if (record_view_init(&v, bytes, size, &d) == 0) {
        check_view(&v);
        check_audit(&v);
        check_proof(&v, false);
        check_proof(&v, true);
        check_copy(bytes, size);
    }
    free(bytes);
    return 0;
}

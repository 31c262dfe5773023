/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for the readers of the replay workload: the first byte chooses the format, or a
 * timeline of Kineto for eight calls; the rest is the file. Beside the sanitizers and the time
 * limit, what trace.h says about operations is the oracle: a trace that is read has peers, groups
 * and targets that exist.
 */
#include "../../examples/replay/format.h"

#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static void check_op(const struct trace *t, size_t index)
{
    const struct op *op = &t->ops[index];
    if (op->kind == TRACE_WAIT) {
        must(op->target < index && t->ops[op->target].kind != TRACE_WAIT, "a wait is for a call");
        return;
    }
    must(op->kind >= 0 && op->kind < TRACE_WAIT, "a kind");
    must(op->group >= 0 && op->group < t->ngroups, "a group");
    must(trace_group_rank(&t->groups[op->group], t->rank) >= 0, "the rank is a member");
    must(trace_bytes(t, op) <= TRACE_BYTES_MAX, "a possible size");
    bool message = op->kind == COLLRUN_SEND || op->kind == COLLRUN_RECV;
    if (message || collrun_kind_has_root((enum collrun_kind)op->kind))
        must(trace_group_rank(&t->groups[op->group], op->peer) >= 0, "the peer is a member");
    if (op->kind == COLLRUN_ALLTOALLV)
        must(op->counts + 2 * (size_t)t->groups[op->group].size <= t->ncounts, "its counts exist");
}

/* A timeline, for the trace of eight allreduces. */
static int read_times(struct trace *t, char *text, size_t len)
{
    must(trace_add_group(t, "0", 4) == 0, "memory");
    for (int i = 0; i < 8; i++) {
        struct op *op = trace_add(t, 0);
        must(op && !trace_add_call(t, t->nops - 1), "memory");
        op->kind = COLLRUN_ALLREDUCE;
    }
    return kineto_read(t, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum format formats[] = {FORMAT_AUTO, FORMAT_MPI, FORMAT_PYTORCH, FORMAT_CHAKRA};
    if (size == 0)
        return 0;
    struct trace t = {.file = "trace", .rank = 1, .world_size = data[0] & 4 ? 4 : 0};
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    int rc = data[0] & 8 ? read_times(&t, text, size - 1)
                         : format_parse(&t, text, size - 1, formats[data[0] & 3]);
    must((rc == 0) == (t.error[0] == '\0'), "an error has a message");
    for (size_t i = 0; rc == 0 && i < t.nops; i++)
        check_op(&t, i);
    trace_fini(&t);
    free(text);
    return 0;
}

/* The only function of the engine that the readers use. */
size_t collrun_dtype_size(enum collrun_dtype dtype)
{
    static const size_t sizes[COLLRUN_DTYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
    return (unsigned)dtype < COLLRUN_DTYPE_COUNT ? sizes[dtype] : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad arguments. A call with one must fail before anything is sent, with an error that names the
 * group and the operation; it writes nothing, and the group keeps working. Every rank makes the
 * same bad calls, and none of them waits for a peer.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool mentions(const char *text, const char *word)
{
    return strcasestr(text, word) != NULL;
}

/* `needle`: a text that the error must contain as well, or NULL. */
static void refused(struct team *team, int status, const char *kind, const char *what,
                    const char *needle)
{
    team_case(team);
    const char *text = collrun_error();
    if (status != COLLRUN_ERR_INVALID) {
        team_fail(team, "%s, %s: %s, expected %s", kind, what, collrun_strstatus(status),
                  collrun_strstatus(COLLRUN_ERR_INVALID));
        return;
    }
    if (text == NULL || text[0] == '\0')
        team_fail(team, "%s, %s: no error text", kind, what);
    else if (!mentions(text, team->name) || !mentions(text, kind))
        team_fail(team, "%s, %s: the error does not name both group and operation: %s", kind, what,
                  text);
    else if (needle != NULL && !mentions(text, needle))
        team_fail(team, "%s, %s: the error does not mention \"%s\": %s", kind, what, needle, text);
}

static void null_buffers(struct team *team, int32_t *a, int32_t *b)
{
    struct collrun_group *g = team->group;
    const enum collrun_dtype type = COLLRUN_INT32;
    refused(team, collrun_allreduce(g, NULL, b, 4, type, COLLRUN_SUM), "allreduce", "send NULL",
            NULL);
    refused(team, collrun_allreduce(g, a, NULL, 4, type, COLLRUN_SUM), "allreduce", "recv NULL",
            NULL);
    refused(team, collrun_reduce(g, NULL, b, 4, type, COLLRUN_SUM, 0), "reduce", "send NULL", NULL);
    refused(team, collrun_broadcast(g, NULL, 4, type, 0), "broadcast", "buf NULL", NULL);
    refused(team, collrun_allgather(g, NULL, b, 1, type), "allgather", "send NULL", NULL);
    refused(team, collrun_allgather(g, a, NULL, 1, type), "allgather", "recv NULL", NULL);
    refused(team, collrun_reduce_scatter(g, NULL, b, 1, type, COLLRUN_SUM), "reduce_scatter",
            "send NULL", NULL);
    refused(team, collrun_reduce_scatter(g, a, NULL, 1, type, COLLRUN_SUM), "reduce_scatter",
            "recv NULL", NULL);
    if (team->size > 1) {
        int peer = (team->rank + 1) % team->size;
        refused(team, collrun_send(g, NULL, 4, type, peer), "send", "buf NULL", NULL);
        refused(team, collrun_recv(g, NULL, 4, type, peer), "recv", "buf NULL", NULL);
    }
}

static void bad_ranks(struct team *team, int32_t *a, int32_t *b)
{
    static const int offsets[] = {0, 1, 1000000};
    struct collrun_group *g = team->group;
    for (size_t i = 0; i <= ARRAY_LEN(offsets); i++) {
        int rank = i == 0 ? -1 : team->size + offsets[i - 1];
        char number[16];
        snprintf(number, sizeof number, "%d", rank);
        refused(team, collrun_reduce(g, a, b, 4, COLLRUN_INT32, COLLRUN_SUM, rank), "reduce",
                "root out of range", number);
        refused(team, collrun_broadcast(g, a, 4, COLLRUN_INT32, rank), "broadcast",
                "root out of range", number);
        refused(team, collrun_send(g, a, 4, COLLRUN_INT32, rank), "send", "peer out of range",
                number);
        refused(team, collrun_recv(g, b, 4, COLLRUN_INT32, rank), "recv", "peer out of range",
                number);
    }
}

static void bad_types(struct team *team, int32_t *a, int32_t *b)
{
    struct collrun_group *g = team->group;
    enum collrun_dtype type = (enum collrun_dtype)99;
    enum collrun_op op = (enum collrun_op)99;
    int peer = (team->rank + 1) % team->size;
    refused(team, collrun_allreduce(g, a, b, 4, type, COLLRUN_SUM), "allreduce", "unknown type",
            "99");
    refused(team, collrun_allreduce(g, a, b, 4, COLLRUN_INT32, op), "allreduce", "unknown operator",
            "99");
    refused(team, collrun_broadcast(g, a, 4, type, 0), "broadcast", "unknown type", "99");
    refused(team, collrun_allgather(g, a, b, 1, type), "allgather", "unknown type", "99");
    refused(team, collrun_reduce(g, a, b, 4, COLLRUN_INT32, op, 0), "reduce", "unknown operator",
            "99");
    refused(team, collrun_reduce_scatter(g, a, b, 1, COLLRUN_INT32, op), "reduce_scatter",
            "unknown operator", "99");
    refused(team, collrun_allreduce(g, a, b, 4, COLLRUN_FLOAT32, COLLRUN_BAND), "allreduce",
            "bits of a float", "float32");
    refused(team, collrun_allreduce(g, a, b, 2, COLLRUN_FLOAT64, COLLRUN_LXOR), "allreduce",
            "logic of a float", "float64");
    if (team->size > 1)
        refused(team, collrun_send(g, a, 4, type, peer), "send", "unknown type", "99");
}

static void bad_counts(struct team *team, int32_t *a, int32_t *b)
{
    struct collrun_group *g = team->group;
    size_t many = SIZE_MAX / 2;
    refused(team, collrun_allreduce(g, a, b, many, COLLRUN_INT32, COLLRUN_SUM), "allreduce",
            "count overflow", NULL);
    refused(team, collrun_broadcast(g, a, many, COLLRUN_INT32, 0), "broadcast", "count overflow",
            NULL);
    refused(team, collrun_allgather(g, a, b, many, COLLRUN_INT32), "allgather", "count overflow",
            NULL);
    refused(team, collrun_reduce_scatter(g, a, b, many, COLLRUN_INT32, COLLRUN_SUM),
            "reduce_scatter", "count overflow", NULL);
}

static void overlaps(struct team *team, int32_t *a)
{
    struct collrun_group *g = team->group;
    size_t n = (size_t)team->size;
    refused(team, collrun_allreduce(g, a, a + 1, 4, COLLRUN_INT32, COLLRUN_SUM), "allreduce",
            "shifted overlap", NULL);
    refused(team, collrun_allreduce(g, a + 3, a, 4, COLLRUN_INT32, COLLRUN_SUM), "allreduce",
            "shifted overlap", NULL);
    refused(team, collrun_reduce(g, a, a + 1, 4, COLLRUN_INT32, COLLRUN_SUM, team->rank), "reduce",
            "shifted overlap", NULL);
    if (n > 1) {
        size_t wrong = ((size_t)team->rank + 1) % n;
        refused(team, collrun_allgather(g, a + 2 * wrong, a, 2, COLLRUN_INT32), "allgather",
                "input in another's block", NULL);
        refused(team, collrun_reduce_scatter(g, a, a + 2 * wrong, 2, COLLRUN_INT32, COLLRUN_SUM),
                "reduce_scatter", "output in another's block", NULL);
    }
    refused(team, collrun_allgather(g, a + 1, a, 2 * n, COLLRUN_INT32), "allgather",
            "straddling input", NULL);
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    refused(team, collrun_sendrecv(g, a, 4, right, a + 3, 4, left, COLLRUN_INT32), "sendrecv",
            "overlap", NULL);
    refused(team, collrun_sendrecv(g, a, 4, team->rank, a + 3, 4, team->rank, COLLRUN_INT32),
            "sendrecv", "overlap with oneself", NULL);
}

/* What the group did not give does not go back, and nothing goes back twice. */
static void bad_memory(struct team *team, int32_t *a)
{
    void *memory = NULL;
    if (!team_want(team, collrun_alloc(team->group, 100, &memory), COLLRUN_OK, "alloc"))
        return;
    refused(team, collrun_free(team->group, a), "free", "foreign pointer", NULL);
    refused(team, collrun_free(team->group, (char *)memory + 8), "free", "pointer into memory",
            NULL);
    team_want(team, collrun_free(team->group, memory), COLLRUN_OK, "free");
    refused(team, collrun_free(team->group, memory), "free", "second time", NULL);
}

static void bad_calls(struct team *team, int32_t *a, int32_t *b)
{
    struct collrun_request *request = NULL;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = a, call.recv = b, call.count = 1, call.dtype = COLLRUN_INT32;
    call.size = 8;
    refused(team, collrun_start(team->group, &call, &request), "allreduce", "call size 8", "8");
    call.size = 0;
    refused(team, collrun_start(team->group, &call, &request), "allreduce", "call size 0", NULL);
    call.size = (uint32_t)sizeof call;
    call.kind = (enum collrun_kind)77;
    refused(team, collrun_start(team->group, &call, &request), "77", "unknown kind", NULL);
    if (request != NULL)
        team_fail(team, "a refused collrun_start wrote its output");
}

void suite_arguments(struct team *team)
{
    int32_t memory[8 + 4 * MAX_RANKS], out[4 * MAX_RANKS], before[8 + 4 * MAX_RANKS];
    struct trial t = {0};
    poison((unsigned char *)memory, sizeof memory);
    poison((unsigned char *)out, sizeof out);
    memcpy(before, memory, sizeof before);
    null_buffers(team, memory, out);
    bad_ranks(team, memory, out);
    bad_types(team, memory, out);
    bad_counts(team, memory, out);
    overlaps(team, memory);
    bad_memory(team, memory);
    if (team->run->full)
        bad_calls(team, memory, out);
    if (memcmp(memory, before, sizeof before) != 0 || memcmp(out, before, sizeof out) != 0)
        team_fail(team, "a refused call wrote to a buffer");
    if (collrun_barrier(NULL) != COLLRUN_ERR_INVALID)
        team_fail(team, "barrier of a NULL group is not INVALID");
    struct shape after = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 17};
    trial_run(&t, team, &after);
    trial_free(&t);
}

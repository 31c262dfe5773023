/* SPDX-License-Identifier: Apache-2.0
 *
 * Both formats share the text of the arguments.
 */
#include "base/call_text.h"

#include "base/names.h"

#include <stddef.h>
#include <stdio.h>

/* ", sum", ", user op argmax". A call that a backend has filled in may end before user_op. */
static void call_text_operator(const struct collrun_call *call, char *out, size_t len)
{
    bool has_user_op = call->size >= offsetof(struct collrun_call, user_op) + sizeof call->user_op;
    if (has_user_op && call->user_op)
        snprintf(out, len, ", user op %s", call->user_op->name);
    else
        snprintf(out, len, ", %s", op_name(call->op));
}

static bool call_text_is_room(const struct collrun_call *call)
{
    return call->size >= offsetof(struct collrun_call, received) + sizeof call->received &&
           call->received;
}

/* ", from 2, tag 7" */
static void call_text_envelope(const struct collrun_call *call, char *out, size_t len)
{
    char peer[24] = "", tag[24] = "";
    if (call->kind != COLLRUN_RECV_ANY && call->peer >= 0)
        snprintf(peer, sizeof peer, ", %s %d", call->kind == COLLRUN_SEND ? "to" : "from",
                 call->peer);
    if (call->tag == COLLRUN_ANY_TAG)
        snprintf(tag, sizeof tag, ", any tag");
    else if (call->tag)
        snprintf(tag, sizeof tag, ", tag %u", call->tag);
    snprintf(out, len, "%s%s", peer, tag);
}

/* "8 x float32, sum, root 2"; "" for a barrier. */
static void call_text_arguments(const struct collrun_call *call, char *out, size_t len)
{
    enum collrun_kind kind = call->kind;
    char count[40] = "", op[88] = "", root[24] = "", envelope[48] = "";
    out[0] = '\0';
    if (kind == COLLRUN_BARRIER)
        return;
    if (!kind_is_collective(kind))
        call_text_envelope(call, envelope, sizeof envelope);
    if (kind == KIND_PROBE) {
        snprintf(out, len, "%s", envelope[0] ? envelope + 2 : "");
        return;
    }
    if (!collrun_kind_is_vector(kind))
        snprintf(count, sizeof count, "%s%zu x ", call_text_is_room(call) ? "up to " : "",
                 call->count);
    if (collrun_kind_reduces(kind))
        call_text_operator(call, op, sizeof op);
    if (collrun_kind_has_root(kind) && call->root >= 0)
        snprintf(root, sizeof root, ", root %d", call->root);
    snprintf(out, len, "%s%s%s%s%s", count, dtype_name(call->dtype), op, root, envelope);
}

void call_text(const struct collrun_call *call, char *out, size_t len)
{
    char arguments[CALL_TEXT_LEN];
    call_text_arguments(call, arguments, sizeof arguments);
    snprintf(out, len, "%s(%s)", kind_name(call->kind), arguments);
}

void call_text_numbered(const struct collrun_call *call, const char *group, uint64_t number,
                        char *out, size_t len)
{
    char arguments[CALL_TEXT_LEN];
    call_text_arguments(call, arguments, sizeof arguments);
    snprintf(out, len, arguments[0] ? "%s %s#%llu (%s)" : "%s %s#%llu", kind_name(call->kind),
             group, (unsigned long long)number, arguments);
}

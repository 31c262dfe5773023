/* SPDX-License-Identifier: Apache-2.0 */
#include "group/group_identity.h"

#include "base/text_stream.h"
#include "core/backend.h"
#include "group/group.h"

#include <stdlib.h>
#include <string.h>

static void group_identity_print(const struct collrun_group *g, FILE *to)
{
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const struct backend *b = g->backends[i].backend;
        fprintf(to, "%s%s %s, ABI %u", i ? "; " : "", b->name, b->table.version, b->table.abi);
    }
    if (g->check == COLLRUN_CHECK_STRICT)
        fputs(", check: strict", to);
}

bool group_identity(const struct collrun_group *g, char out[HOSTMEM_IDENTITY_LEN])
{
    char *text;
    size_t len;
    FILE *stream = text_stream_open(&text, &len);
    if (stream)
        group_identity_print(g, stream);
    if (!text_stream_close(stream, &text))
        return false;
    if (len < HOSTMEM_IDENTITY_LEN)
        memcpy(out, text, len + 1);
    else
        snprintf(out, HOSTMEM_IDENTITY_LEN, "%016llx: %s",
                 (unsigned long long)rendezvous_hash_text(text), text);
    free(text);
    return true;
}

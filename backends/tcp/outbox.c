/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of chunks; short packets share one. See outbox.h.
 */
#include "outbox.h"

#include <stdlib.h>
#include <string.h>

enum { OUTBOX_CHUNK_LEN = 16384 };

struct outbox_chunk {
    struct outbox_chunk *next;
    size_t begin, end, room; /* of bytes */
    char bytes[];
};

static struct outbox_chunk *outbox_room_for(struct outbox *box, size_t len)
{
    struct outbox_chunk *last = box->last;
    if (last && last->room - last->end >= len)
        return last;
    const size_t room = len > OUTBOX_CHUNK_LEN ? len : OUTBOX_CHUNK_LEN;
    struct outbox_chunk *chunk = malloc(sizeof *chunk + room);
    if (!chunk)
        return NULL;
    *chunk = (struct outbox_chunk){.room = room};
    if (last)
        last->next = chunk;
    else
        box->first = chunk;
    box->last = chunk;
    return chunk;
}

bool outbox_add(struct outbox *box, const void *bytes, size_t len)
{
    struct outbox_chunk *chunk = len ? outbox_room_for(box, len) : NULL;
    if (!chunk)
        return len == 0;
    memcpy(chunk->bytes + chunk->end, bytes, len);
    chunk->end += len;
    return true;
}

const void *outbox_head(const struct outbox *box, size_t *len)
{
    const struct outbox_chunk *first = box->first;
    *len = first ? first->end - first->begin : 0;
    return first ? first->bytes + first->begin : NULL;
}

void outbox_drop(struct outbox *box, size_t len)
{
    struct outbox_chunk *first = box->first;
    first->begin += len;
    if (first->begin < first->end)
        return;
    box->first = first->next;
    if (!box->first)
        box->last = NULL;
    free(first);
}

void outbox_append(struct outbox *box, struct outbox *other)
{
    if (!other->first)
        return;
    if (box->last)
        box->last->next = other->first;
    else
        box->first = other->first;
    box->last = other->last;
    *other = (struct outbox){0};
}

void outbox_clear(struct outbox *box)
{
    while (box->first) {
        struct outbox_chunk *first = box->first;
        box->first = first->next;
        free(first);
    }
    box->last = NULL;
}

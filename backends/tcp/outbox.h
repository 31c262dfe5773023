/* SPDX-License-Identifier: Apache-2.0
 *
 * struct outbox: copied bytes that a socket did not take yet, in order.
 */
#ifndef TCP_OUTBOX_H
#define TCP_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>

struct outbox_chunk;

struct outbox {
    struct outbox_chunk *first, *last;
};

static inline bool outbox_is_empty(const struct outbox *box)
{
    return !box->first;
}

/* Copies. False: out of memory, and the outbox has none of the bytes. */
bool outbox_add(struct outbox *box, const void *bytes, size_t len);
/* The first bytes that are left; *len is 0 if there are none. */
const void *outbox_head(const struct outbox *box, size_t *len);
void outbox_drop(struct outbox *box, size_t len); /* of the head, at most its length */
/* What is in `other` follows; `other` is empty then. */
void outbox_append(struct outbox *box, struct outbox *other);
void outbox_clear(struct outbox *box);

#endif

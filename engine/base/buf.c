/* SPDX-License-Identifier: Apache-2.0
 *
 * The byte buffer and the reader. Consumed bytes are moved away when the buffer has to grow, or
 * when it is empty.
 */
#include "base/buf.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b)
{
    *b = (struct buf){0};
}

void buf_fini(struct buf *b)
{
    free(b->data);
    buf_init(b);
}

void buf_clear(struct buf *b)
{
    b->len = b->start = 0;
    b->failed = false;
}

size_t buf_pending(const struct buf *b)
{
    return b->len - b->start;
}

static void buf_compact(struct buf *b)
{
    if (!b->start)
        return;
    memmove(b->data, b->data + b->start, b->len - b->start);
    b->len -= b->start;
    b->start = 0;
}

static void *buf_fail(struct buf *b)
{
    memory_lacking();
    b->failed = true;
    return NULL;
}

void *buf_reserve(struct buf *b, size_t len)
{
    if (b->failed)
        return NULL;
    if (b->data && b->capacity - b->len >= len)
        return b->data + b->len;
    if (b->start >= b->len / 2)
        buf_compact(b);
    if (b->data && b->capacity - b->len >= len)
        return b->data + b->len;
    size_t want = b->capacity ? b->capacity : 256;
    while (want - b->len < len && want < SIZE_MAX / 2)
        want *= 2;
    unsigned char *grown = want - b->len < len ? NULL : realloc(b->data, want);
    if (!grown)
        return buf_fail(b);
    b->data = grown;
    b->capacity = want;
    return b->data + b->len;
}

void buf_commit(struct buf *b, size_t len)
{
    b->len += len;
}

void buf_consume(struct buf *b, size_t len)
{
    b->start += len;
    if (b->start >= b->len)
        b->start = b->len = 0;
}

void buf_put(struct buf *b, const void *bytes, size_t len)
{
    if (!len)
        return;
    void *to = buf_reserve(b, len);
    if (!to)
        return;
    memcpy(to, bytes, len);
    b->len += len;
}

static void buf_put_number(struct buf *b, uint64_t v, size_t len)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(v >> (8 * i));
    buf_put(b, bytes, len);
}

struct buf buf_borrow(const void *bytes, size_t len)
{
    return (struct buf){.data = (unsigned char *)(uintptr_t)bytes, .len = len};
}

void buf_put_buf(struct buf *b, const struct buf *from)
{
    if (from->failed)
        b->failed = true;
    else if (buf_pending(from))
        buf_put(b, from->data + from->start, buf_pending(from));
}

void buf_put_u8(struct buf *b, uint8_t v)
{
    buf_put_number(b, v, 1);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
    buf_put_number(b, v, 2);
}

void buf_put_u32(struct buf *b, uint32_t v)
{
    buf_put_number(b, v, 4);
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    buf_put_number(b, v, 8);
}

void buf_put_blob(struct buf *b, const void *bytes, size_t len)
{
    if (len > UINT32_MAX) {
        buf_fail(b);
        return;
    }
    buf_put_u32(b, (uint32_t)len);
    buf_put(b, bytes, len);
}

void buf_put_str(struct buf *b, const char *s)
{
    buf_put_blob(b, s ? s : "", s ? strlen(s) : 0);
}

void reader_init(struct reader *r, const void *bytes, size_t len)
{
    *r = (struct reader){.data = bytes, .len = len};
}

bool reader_done(const struct reader *r)
{
    return !r->bad && r->pos == r->len;
}

static const unsigned char *reader_bytes(struct reader *r, size_t len)
{
    if (r->bad || r->len - r->pos < len) {
        r->bad = true;
        return NULL;
    }
    const unsigned char *p = r->data + r->pos;
    r->pos += len;
    return p;
}

static uint64_t reader_number(struct reader *r, size_t len)
{
    const unsigned char *p = reader_bytes(r, len);
    uint64_t v = 0;
    for (size_t i = 0; p && i < len; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t read_u8(struct reader *r)
{
    return (uint8_t)reader_number(r, 1);
}

uint16_t read_u16(struct reader *r)
{
    return (uint16_t)reader_number(r, 2);
}

uint32_t read_u32(struct reader *r)
{
    return (uint32_t)reader_number(r, 4);
}

uint64_t read_u64(struct reader *r)
{
    return reader_number(r, 8);
}

uint32_t read_count(struct reader *r, size_t item_len)
{
    uint32_t n = read_u32(r);
    if (r->bad || (item_len && n > (r->len - r->pos) / item_len)) {
        r->bad = true;
        return 0;
    }
    return n;
}

const void *read_blob(struct reader *r, size_t *len)
{
    uint32_t n = read_u32(r);
    const void *p = reader_bytes(r, n);
    *len = p ? n : 0;
    return p;
}

const char *read_str(struct reader *r, struct arena *arena)
{
    size_t len;
    const char *p = read_blob(r, &len);
    if (!p)
        return "";
    if (memchr(p, '\0', len)) {
        r->bad = true;
        return "";
    }
    const char *copy = arena_strndup(arena, p, len);
    if (!copy)
        r->bad = true;
    return copy ? copy : "";
}

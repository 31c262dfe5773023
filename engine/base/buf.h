/* SPDX-License-Identifier: Apache-2.0
 *
 * struct buf: a growing buffer that frames are written into. struct reader: a bounds-checked cursor
 * that reads them. Numbers are little-endian; strings and blobs have a 32-bit length. A buf that
 * runs out of memory (memory_lacking(), arena.h) stays failed, and a reader that passes the end
 * stays bad; callers check once, at the end.
 */
#ifndef ENGINE_BASE_BUF_H
#define ENGINE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct buf {
    unsigned char *data;
    size_t len, capacity; /* bytes in use, bytes allocated */
    size_t start;         /* bytes consumed from the front: data[start..len) remains */
    bool failed;          /* out of memory; writes since then are lost */
};

void buf_init(struct buf *b);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b);
size_t buf_pending(const struct buf *b); /* len - start */
/* A buf of the caller's bytes, to be read only and not freed. */
struct buf buf_borrow(const void *bytes, size_t len);
void *buf_reserve(struct buf *b,
                  size_t len); /* room for len bytes at the end, not counted yet; NULL = failed */
void buf_commit(struct buf *b, size_t len);
void buf_consume(struct buf *b, size_t len);

void buf_put(struct buf *b, const void *bytes, size_t len);
void buf_put_buf(struct buf *b, const struct buf *from); /* all that is pending; may have failed */
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_put_str(struct buf *b, const char *s); /* NULL is written as "" */
void buf_put_blob(struct buf *b, const void *bytes, size_t len);

struct reader {
    const unsigned char *data;
    size_t len, pos;
    bool bad;
};

void reader_init(struct reader *r, const void *bytes, size_t len);
bool reader_done(const struct reader *r); /* not bad, nothing left */
uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* The count of items of at least `item_len` bytes each; bad if the rest is too short for them. */
uint32_t read_count(struct reader *r, size_t item_len);
const void *read_blob(struct reader *r, size_t *len); /* borrowed; NULL when bad */
const char *read_str(struct reader *r,
                     struct arena *arena); /* a copy; "" when bad or with a NUL inside */

#endif

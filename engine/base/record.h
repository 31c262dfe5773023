/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank is doing, on a page of memory that its host's agent made and maps too: it can be read
 * while the rank hangs, and after it was killed. The rank writes with a few plain stores per
 * operation and never waits; a reader takes a snapshot that may be torn only between groups, never
 * within the numbers of one operation (a sequence counter guards them).
 *
 * One entry per open group. An operation's number counts the operations of that group on this rank,
 * from 1; `started` above `done` means that the rank is inside operation number `started`.
 */
#ifndef BASE_RECORD_H
#define BASE_RECORD_H

#include <collrun/types.h>

#include <stdatomic.h>

enum { RECORD_GROUPS = 256, RECORD_FD = 4 /* of collrun-engine */ };

struct record_group {
    _Atomic uint32_t used;
    _Atomic uint32_t version; /* odd while the rank writes what follows */
    char name[64];
    uint64_t started, done, bytes;
    uint64_t since_ns; /* CLOCK_MONOTONIC_COARSE, when `started` last grew */
    uint64_t count;
    int32_t root_or_peer; /* -1: none */
    uint8_t kind, dtype, op, reserved;
    uint64_t padding;
};

struct record_page {
    char magic[8];
    struct record_group groups[RECORD_GROUPS];
};

#define RECORD_MAGIC "collrec1"

/* The rank's side. record_open gives NULL when the page is full or absent; the others take NULL. */
struct record_page *record_map(int fd); /* NULL: not there */
struct record_group *record_open(struct record_page *page, const char *name);
void record_close(struct record_group *g);
void record_begin(struct record_group *g, const struct collrun_call *call, uint64_t number,
                  uint64_t bytes);
void record_end(struct record_group *g, uint64_t number);

/* The reader's side: a consistent copy of one group; false: not in use. */
bool record_read(const struct record_group *g, struct record_group *out);
int record_make(void); /* a new page: its memory file, or -errno */

#endif

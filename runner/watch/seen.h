/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank was last seen doing: the runner's copy of its record (base/record.h), and the words
 * for it.
 */
#ifndef WATCH_SEEN_H
#define WATCH_SEEN_H

#include "base/wire.h"

struct seen_group {
    char name[64];
    uint64_t started, done, bytes, age_ns, count;
    int root_or_peer;
    uint8_t kind, dtype, op;
};

struct seen {
    bool looked; /* something is known */
    char state;  /* of its main thread, as /proc said last: R S D T Z; 0 = not looked at */
    struct seen_group *groups; /* owned */
    uint32_t n;
};

/* The payload of a SEEN; false: malformed, and `seen` is as it was. */
bool seen_read(struct seen *seen, const struct wire_frame *f);
void seen_fini(struct seen *seen);

/* Whether it is in this group, and whether it has come to that number of the group's collectives.
 */
bool seen_member(const struct seen *seen, const char *group);
bool seen_called(const struct seen *seen, const char *group, uint64_t number);
/* How many of the group's operations it has done; adds the bytes that it put into them. */
uint64_t seen_total(const struct seen *seen, const char *group, uint64_t *bytes);
/* The operation that it is inside of, the oldest if there are several: "allreduce train#12 (1024 x
 * float32, sum)". False: none. */
bool seen_inside(const struct seen *seen, char *out, size_t size);
/* How far it had come: "after train#17", in the group where it had done most. False: nothing done.
 */
bool seen_after(const struct seen *seen, char *out, size_t size);
/* What it is inside of, and else "outside any collective". With the state of the process when it
 * explains something: "stopped". */
void seen_describe(const struct seen *seen, char *out, size_t size);

#endif

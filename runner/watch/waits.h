/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank's threads wait for, as it said last (WIRE_WAITS, engine/waits.h).
 */
#ifndef WATCH_WAITS_H
#define WATCH_WAITS_H

#include "base/wire.h"

struct wait { /* one call that a thread waits for */
    uint32_t thread;
    const char *scope; /* of its group, unique in the job */
    uint64_t number;   /* among the group's operations of its sort, on this rank */
    uint64_t timeout_ns;
    uint8_t kind, dtype, op;
    bool eager; /* a send that may end although its receiver never calls */
    uint64_t count;
    uint32_t peer; /* world rank; WIRE_HOST: none, or any */
    uint32_t tag;
};

struct wait_posted { /* a message that is called for, on either end */
    uint8_t kind;
    uint32_t peer, tag;
};

struct wait_traffic { /* messages that have come to their end */
    uint32_t peer, tag;
    uint64_t sent, received;
};

struct wait_group {
    const char *scope, *name;
    uint64_t collectives; /* how many it has come to */
    uint32_t *members;    /* world ranks; only where it waits */
    struct wait_posted *posted;
    struct wait_traffic *traffic;
    uint32_t nmembers, nposted, ntraffic;
    bool lost; /* it could not count its messages */
};

struct waits {
    struct arena arena; /* of all that stands below */
    bool told;          /* anything at all */
    bool sure;          /* nothing else in the rank can go on */
    struct wait *items; /* neighbours of one thread: it waits for all of them */
    struct wait_group *groups;
    uint32_t nitems, ngroups;
};

/* The payload of a WAITS; false: malformed, and then nothing is told. */
bool waits_read(struct waits *w, const struct wire_frame *f);
void waits_fini(struct waits *w); /* safe on a zeroed one */
const struct wait_group *waits_group(const struct waits *w, const char *scope); /* NULL: not open */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocked calls of a rank's threads, as its last report lists them (WIRE_WAIT_REPORT,
 * engine/observe/wait_report.h).
 */
#ifndef RUNNER_DIAGNOSE_WAIT_REPORT_H
#define RUNNER_DIAGNOSE_WAIT_REPORT_H

#include "base/wire.h"

struct wait_report_call { /* one call that a thread is blocked in */
    uint32_t thread;
    const char *scope; /* of its group, unique in the job */
    uint64_t number;   /* this rank's count of such operations in the group */
    uint64_t timeout_ns;
    uint8_t kind, dtype, op;
    bool eager;     /* a send that can complete without a matching receive */
    uint64_t count; /* of KIND_CREATE: the id of the creation */
    uint32_t peer;  /* world rank; WIRE_HOST: none, or any */
    uint32_t tag;
    uint64_t order; /* of a send: at least so many precede it with its peer and tag; of a receive:
                       its place among those of its thread, or 0 */
};

struct posted_message { /* a receive that this rank has posted, and has not waited for */
    uint8_t kind;
    uint32_t peer, tag;
    uint32_t thread; /* whose later receives get their messages after it; 0: none */
    uint64_t order;  /* as in wait_report_call */
};

struct message_count { /* messages with one peer and tag */
    uint32_t peer, tag;
    uint64_t sent, received; /* begun; received, and waited for */
};

struct wait_report_group {
    const char *scope, *name;
    uint64_t collectives; /* how many collectives the rank has started */
    uint64_t splits;      /* how many splits of the group */
    uint32_t *members;    /* world ranks; only if a thread is blocked in this group */
    struct posted_message *posted;
    struct message_count *counts;
    uint32_t nmembers, nposted, ncounts;
    bool lost; /* the rank could not count its messages */
};

struct wait_report_created { /* groups of one name and members, also those that are being created */
    uint64_t id, times;
};

struct wait_report {
    struct arena arena; /* owns all that follows */
    bool received;      /* the rank has sent a report */
    bool certain;       /* no other thread of the rank can make progress */
    bool caller_free;   /* a thread that made calls before is in none, and not idle */
    /* Consecutive calls of one thread: it waits until all of them complete. */
    struct wait_report_call *items;
    struct wait_report_group *groups;
    struct wait_report_created *created;
    uint32_t nitems, ngroups, ncreated;
    bool created_lost; /* `created` has not all of them */
};

/* Decodes the payload of a WIRE_WAIT_REPORT frame. False: malformed; `w->received` is then false.
 */
bool wait_report_read(struct wait_report *w, const struct wire_frame *f);
void wait_report_fini(struct wait_report *w); /* safe on a zeroed one */
/* How often the rank has called the creation. */
uint64_t wait_report_times(const struct wait_report *w, uint64_t id);
/* NULL: the rank has not opened this group, or has closed it. */
const struct wait_report_group *wait_report_group(const struct wait_report *w, const char *scope);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct rendezvous: one rank's part in forming one group. Backends get it as struct
 * collrun_rendezvous.
 *
 * - Members on several hosts join a scope of the rendezvous store. They put, get and fence through
 *   the control connection. The pairs that fences return are kept, so that later gets are local.
 * - Members on one host exchange what they can through shared memory (host_scope.h): share, and
 *   fences. They join the store only if their backend puts or gets, or shares much.
 * - Segments are parts of the shared memory of the host.
 *
 * A scope is "NAME#GENERATION:HASH", where HASH covers the members in order. A name can therefore
 * be used again, and groups of one name with different members are separate. All waits end at the
 * deadline, when the store fails, or with the job.
 */
#ifndef ENGINE_CORE_RENDEZVOUS_H
#define ENGINE_CORE_RENDEZVOUS_H

#include "base/desc.h"
#include "core/control.h"
#include "core/host_scope.h"

#include <collrun/backend.h>
#include <stdbool.h>
#include <stddef.h>

/* struct rdv_pairs: the keys and values of a rendezvous that this process knows. */

struct rdv_pair {
    char *key;
    void *value;
    size_t len;
};

struct rdv_pairs { /* zeroed: empty */
    struct rdv_pair *items;
    size_t n;
};

/* NULL: unknown. Valid until the next rdv_pairs_add. */
const struct rdv_pair *rdv_pairs_find(const struct rdv_pairs *pairs, const char *key);
/* Copies both. False: out of memory. */
bool rdv_pairs_add(struct rdv_pairs *pairs, const char *key, const void *value, size_t len);
void rdv_pairs_free(struct rdv_pairs *pairs); /* empty afterwards */

struct rendezvous_spec {
    const char *name;    /* of the group */
    uint32_t generation; /* how many times this process has formed it from these members before */
    const struct desc_ranks *members;
    const char *identity;           /* must be equal on all members */
    uint32_t index;                 /* of the group in the desc, or UINT32_MAX */
    uint32_t rank;                  /* of this process in the group */
    const char *address;            /* of this host, numeric; it must outlive the rendezvous */
    uint16_t first_port, last_port; /* network.ports */
    const struct diag_loc *loc;     /* of the group in job.yaml, or NULL */
    uint64_t timeout_ns;
    struct host_scopes *host; /* of this process */
};

struct rendezvous_segment;
struct rendezvous {
    struct collrun_rendezvous table; /* what backends get */
    struct control *control;
    char *scope;
    const char *prefix; /* in front of every key of the backend; "" at first, changed by
                           rendezvous_prefix */
    uint64_t deadline_ns;
    uint64_t stopped_ns;         /* base/standstill.h, when the deadline was set */
    struct rendezvous_spec spec; /* all that it points to is borrowed until rendezvous_free_pairs */
    struct desc_ranks local;     /* the members on this host */
    uint32_t local_index;        /* of this rank among them */
    bool joined;                 /* the scope of the store */
    uint32_t exchanges;          /* through the memory of this host */
    uint32_t fences, meshes;     /* calls of fence and of connect_all */
    bool all_use_store;          /* members on one host: each of them knows that all will join */
    struct rdv_pairs pairs;      /* received with fences and share */
    struct rendezvous_segment *segments; /* to be released */
    struct diag failure; /* the first one, with its place in job.yaml; code 0 = none */
    atomic_flag failed;  /* whose thread writes it */
};

uint64_t rendezvous_hash(const struct desc_ranks *members);
uint64_t rendezvous_hash_text(const char *text);

/* `r` must not move: its table points to it. Members on several hosts join the scope of the store.
 */
int rendezvous_open(struct rendezvous *r, struct control *control,
                    const struct rendezvous_spec *spec, struct diag *d);
/* When the store ends the rendezvous with TIMEOUT; later, if the process has stood still. */
uint64_t rendezvous_ends_ns(struct rendezvous *r);
/* The two backend handles of one group, which share its scope, use the same keys under different
 * prefixes. `prefix` is borrowed. */
void rendezvous_prefix(struct rendezvous *r, const char *prefix);
/* An allgather of two numbers: `all` gets those of all members, in their order. */
int rendezvous_allgather(struct rendezvous *r, const int32_t mine[2], int32_t (*all)[2]);
/* All members have opened their backends, and these are equal. No effect if the backends have
 * exchanged something that shows it. */
int rendezvous_confirm(struct rendezvous *r);
/* Frees the pairs and forgets what `spec` points to; the rest is kept for rendezvous_leave. */
void rendezvous_free_pairs(struct rendezvous *r);
/* Releases the segments, leaves the scope, which the store deletes when all members have left, and
 * frees. No effect on a zeroed struct, or the second time. */
void rendezvous_leave(struct rendezvous *r);

#endif

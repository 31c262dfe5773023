/* SPDX-License-Identifier: Apache-2.0
 *
 * struct rendezvous: how one rank takes part in forming one group. The runner holds the store; this
 * side joins a scope, puts, gets and fences through the control stream, asks the agent for shared
 * memory files, and keeps what fences brought, so that later gets do not leave the process. It
 * lends itself to backends as struct collrun_rendezvous.
 *
 * A scope is "NAME#GENERATION:HASH", where HASH covers the members in order: a name can be used
 * again, and two groups of one name with other members do not meet. All waits end at the deadline,
 * by the store's failure, or with the job.
 */
#ifndef ENGINE_RENDEZVOUS_H
#define ENGINE_RENDEZVOUS_H

#include "base/desc.h"
#include "control.h"

#include <collrun/backend.h>

struct rendezvous_spec {
    const char *name;    /* of the group */
    uint32_t generation; /* how many times this process has formed it from these members before */
    const struct desc_ranks *members;
    const char *identity; /* what all members must agree on */
    uint32_t index;       /* of the group in the desc, or UINT32_MAX */
    uint64_t timeout_ns;
};

struct rendezvous_pair;
struct rendezvous {
    struct collrun_rendezvous lent;
    struct control *control;
    char *scope;
    const char *prefix; /* in front of every key of the borrower; "" at first, changed by
                           rendezvous_prefix */
    uint64_t deadline_ns;
    uint32_t fences;
    struct rendezvous_pair *pairs; /* what fences brought */
    size_t npairs;
    struct diag failure; /* the first one, with its place in job.yaml; code 0 = none */
};

uint64_t rendezvous_hash(const struct desc_ranks *members);

/* Joins. `r` must stay where it is while it is lent. */
int rendezvous_open(struct rendezvous *r, struct control *control,
                    const struct rendezvous_spec *spec, struct diag *d);
/* Two borrowers of one scope (two backend handles of one group) use the same keys under different
 * prefixes. Borrowed. */
/* When the store gives up. */
uint64_t rendezvous_ends_ns(const struct rendezvous *r);
void rendezvous_prefix(struct rendezvous *r, const char *prefix);
/* Forgets the pairs; the scope is kept, for rendezvous_leave. */
void rendezvous_settle(struct rendezvous *r);
/* Leaves the scope (the store forgets it when all members have) and frees. Safe on a zeroed or left
 * one. */
void rendezvous_leave(struct rendezvous *r);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * An agreement: each member of a group states a status, and all that have not exited get the same
 * list. A member that exits meanwhile is left out, so the list also says who is left. It goes
 * through the runner's store, which knows every exit.
 */
#ifndef ENGINE_CORE_AGREEMENT_H
#define ENGINE_CORE_AGREEMENT_H

#include "base/desc.h"
#include "core/control.h"

struct agreement_spec {
    const char *name;    /* of the group */
    uint32_t generation; /* how often these members have agreed under this name */
    const struct desc_ranks *members;
    uint64_t timeout_ns; /* for all members to state theirs */
};

struct agreement {
    uint32_t *ranks; /* the members that are left, in the order of the group; n of them */
    int *statuses;   /* what each has stated */
    uint32_t n;
};

/* Blocks. *out has to be freed. TIMEOUT names the ranks that are missing. */
int agreement_reach(struct control *control, const struct agreement_spec *spec, int status,
                    struct agreement *out, struct diag *d);
/* States it and does not wait. */
void agreement_state(struct control *control, const struct agreement_spec *spec, int status);
void agreement_fini(struct agreement *a);

#endif

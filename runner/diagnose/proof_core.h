/* SPDX-License-Identifier: Apache-2.0
 *
 * Why the threads of a proof (diagnose/proof.h) can never return, in few ranks: a cycle of ranks
 * that wait for each other, a small set of them where operations can be completed by several ranks,
 * or a rank that has ended. The others wait for these, directly or not.
 */
#ifndef RUNNER_DIAGNOSE_PROOF_CORE_H
#define RUNNER_DIAGNOSE_PROOF_CORE_H

#include "base/diag.h"
#include "diagnose/proof.h"

enum proof_shape {
    PROOF_CYCLE,  /* each rank waits for the next one, and the last one for the first */
    PROOF_SET,    /* each rank waits for ranks of the set alone */
    PROOF_MISSING /* they wait for a rank that has ended, or whose threads all sleep */
};

struct proof_core {
    enum proof_shape shape;
    uint32_t *ranks; /* of a cycle in its order, else ascending; in the proof's arena */
    uint32_t n;
    uint32_t missing; /* MISSING: the rank that has ended or sleeps */
    uint32_t behind;  /* further ranks with threads in the proof */
};

/* `out->n` is 0 if the proof has no blocked threads. False: out of memory. */
bool proof_explain(const struct proof *p, struct proof_core *out);

/* "rank 0 waits in barrier world#3 for rank 1; ranks 1-3 wait in ... for rank 0; 12 more ranks wait
 * behind them": appends to the text of the error. */
void proof_core_text(const struct proof *p, const struct proof_core *core, struct diag *d);

#endif

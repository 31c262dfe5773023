/* SPDX-License-Identifier: Apache-2.0
 *
 * How an attempt ended, and which ranks caused it: one error message for people (`diag`) and one
 * object for programs (report/result.h), both from struct verdict. verdict_find is a pure
 * function of the evidence (diagnose/evidence.h); `collrun diag` calls it again with the evidence
 * of an earlier run.
 *
 * The strongest class of cause.h decides. Then the culprits:
 * - of ranks that ended badly: all ranks of that class whose end is not a consequence of another;
 * - of a mismatch: the ranks whose call differs from that of the majority of the group. Without a
 *   majority (two ranks, or a draw), all members are suspects, and there is no culprit;
 * - of a deadlock: the ranks on the cycle are suspects;
 * - of a wait that ended by a time-out: the ranks that did not call the operation.
 */
#ifndef RUNNER_DIAGNOSE_VERDICT_H
#define RUNNER_DIAGNOSE_VERDICT_H

#include "diagnose/verdict_types.h"

/* The word of the class in result.json and in on_failure.rules: "ok", "mismatch", ... */
const char *verdict_class(const struct verdict *v);
/* A verdict without culprits: the end of a job that is not about ranks. */
void verdict_init(struct verdict *v, enum cause_class class, int exit_code, const struct diag *d);
void verdict_find(const struct evidence *e, struct arena *arena, struct verdict *v);
/* Writes one line about the other ranks: "ranks 0-2 failed because of it; rank 5 stopped on
 * request". "" if no other rank failed or was stopped. */
void verdict_other_ranks(const struct evidence *e, const struct verdict *v, char *out, size_t size);

#endif

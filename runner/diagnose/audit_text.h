/* SPDX-License-Identifier: Apache-2.0
 *
 * What an audit has found, for people:
 *   rank 1 and ranks 0, 2-3 differ in operation 501 of group train; ...
 */
#ifndef RUNNER_DIAGNOSE_AUDIT_TEXT_H
#define RUNNER_DIAGNOSE_AUDIT_TEXT_H

#include "diagnose/audit.h"

/* Sets `d` to MISMATCH. */
void audit_text(const struct audit_finding *f, struct diag *d);
/* "results of the group may be wrong since operation 501"; "" if no member has completed it. */
void audit_text_since(const struct audit_finding *f, char *out, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Included before every file of the record and the proof: one of their conditions (RECORD_RULE) is
 * false, that which RULE names in the environment.
 */
#ifndef TESTS_MUTATION_RECORD_RULE_H
#define TESTS_MUTATION_RECORD_RULE_H

#include <stdlib.h>
#include <string.h>

#define RECORD_RULE(condition) record_rule_holds(#condition)

static inline int record_rule_holds(const char *condition)
{
    const char *broken = getenv("RULE");
    return !broken || strcmp(broken, condition) != 0;
}

#endif

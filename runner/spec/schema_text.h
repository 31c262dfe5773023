/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema table as JSON Schema (draft-07) for editors, and as roff rows for the manual page.
 */
#ifndef RUNNER_SPEC_SCHEMA_TEXT_H
#define RUNNER_SPEC_SCHEMA_TEXT_H

#include <stdio.h>

void schema_write_json(FILE *out);
void schema_write_man(FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema table as others read it: JSON Schema (draft-07) for editors, roff rows for the manual
 * page.
 */
#ifndef SPEC_SCHEMA_TEXT_H
#define SPEC_SCHEMA_TEXT_H

#include <stdio.h>

int schema_write_json(FILE *out); /* 0, or negative when out of memory or `out` fails */
void schema_write_man(FILE *out);

#endif

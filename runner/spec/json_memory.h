/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether memory for JSON was missing. jansson leaves out what it cannot add to a value, and its
 * callers build values of hundreds of parts: they ask once, at the end. jansson calls its allocator
 * without an argument, so that the answer is of the process: it counts failures.
 */
#ifndef RUNNER_SPEC_JSON_MEMORY_H
#define RUNNER_SPEC_JSON_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

void json_memory_init(void); /* before jansson is used */
bool json_memory_failed(void);
/* json_dumps, which without memory leaves out parts of the text: then it is NULL. */
char *json_memory_dump(const json_t *value, size_t flags);
void json_memory_lost(void); /* a part of a value, or a text for it, could not be allocated */

#endif

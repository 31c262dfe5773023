/* SPDX-License-Identifier: Apache-2.0
 *
 * Where collrun-engine is, and the libraries that were staged with it.
 */
#ifndef RUNNER_AGENT_ENGINE_PATH_H
#define RUNNER_AGENT_ENGINE_PATH_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>

/* `given`, or beside this program if it is "". */
int engine_path(const char *given, char *path, size_t size, struct diag *d);
/* The path of another program in the folder of collrun-engine. False: it is not there. */
bool engine_path_beside(const char *engine, const char *name, char *path, size_t size);
/* In a child, before exec: LD_LIBRARY_PATH begins with the staged libraries, if there are any,
 * which this host lacks. */
void engine_path_set_libraries(const char *engine);

#endif

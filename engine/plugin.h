/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading a shared object that someone else wrote: the file is checked before it is opened (others
 * must not be able to write it or a directory on the way to it), everything is bound at once
 * (RTLD_NOW) and kept apart (RTLD_LOCAL), the one expected symbol is looked up. Each way to fail
 * has its own sentence and, where there is one, a hint. Objects stay loaded for the life of the
 * process: threads and exit handlers of a library may outlive its last use.
 */
#ifndef ENGINE_PLUGIN_H
#define ENGINE_PLUGIN_H

#include "base/diag.h"

struct collrun_workload;

/* `what` ("workload", "backend") is for the sentences; *symbol_out borrows from the object. */
int plugin_open(const char *what, const char *path, const char *symbol, const void **symbol_out,
                struct diag *d);
/* Opens a workload and fills in *out, complete and zeroed where the plugin knows less. The strings
 * are the plugin's. */
int plugin_open_workload(const char *path, struct collrun_workload *out, struct diag *d);

#endif

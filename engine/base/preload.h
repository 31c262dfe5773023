/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD, by which the agent gives a program the library that records its calls of MPI
 * (engine/taps/mpi): whether a program can take it, and the value of the variable.
 *
 * A preloaded library that breaks a program is worse than none. The dynamic linker of glibc ignores
 * the variable for setuid programs, and complains about a library for another machine; musl's stops
 * the program; AddressSanitizer stops it if its runtime is not the first library.
 */
#ifndef ENGINE_BASE_PRELOAD_H
#define ENGINE_BASE_PRELOAD_H

#include "base/record.h"

#define PRELOAD_VARIABLE "LD_PRELOAD"

/* NONE: the program can take a library. `program`: argv[0] of exec, looked up in `path` (PATH) if
 * it has no slash. A script is judged by its interpreter. `with`: the value of LD_PRELOAD that the
 * program would get beside; NULL: none. */
enum record_unobserved preload_refusal(const char *program, const char *path, const char *with);

/* The value of LD_PRELOAD with `library` in front of `value`, or NULL: no memory. `value` NULL: the
 * variable is not set, which differs from an empty one. The caller frees it. */
char *preload_add(const char *library, const char *value);
/* What preload_add was given, out of what it returned; NULL: the variable was not set. */
const char *preload_rest(const char *library, const char *value);

/* "the program is linked statically" */
const char *unobserved_text(enum record_unobserved why);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank's process forks is no member of its groups: it has copies of their memory, but not
 * the threads that move their data. In such a child every call about groups gives INVALID, with the
 * reason; the parent goes on undisturbed.
 *
 * - fork() runs the handler in the child, which closes every group there (group_mark_closed). So
 *   calls on groups need no further check; those that take a request or a context read one flag.
 * - A child that executes another program is not concerned, nor is one of vfork or posix_spawn.
 */
#ifndef ENGINE_CORE_FORK_GUARD_H
#define ENGINE_CORE_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* For the process. `in_child` runs in each child that it forks. */
void fork_guard_install(uint32_t rank, void (*in_child)(void *ctx), void *ctx);

/* True in a child. */
extern bool fork_guard_in_child;

/* The reason, for error messages: "this process was forked by rank 2 (pid 71), ..." */
const char *fork_guard_reason(void);
/* Composes the error message of the call `what`. Returns INVALID. */
int fork_guard_refuse(const char *what);

#endif

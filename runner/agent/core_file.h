/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the kernel has put the core file of a process, by /proc/sys/kernel/core_pattern.
 */
#ifndef RUNNER_AGENT_CORE_FILE_H
#define RUNNER_AGENT_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* "core file: /var/cores/core.*.4711", with * for what is not known here, or the program that the
 * kernel has started. `folder`: where a relative pattern leads. `pattern`: a line; `with_pid`: of
 * core_uses_pid. */
void core_file_describe(const char *pattern, bool with_pid, pid_t pid, const char *folder,
                        char *out, size_t size);
/* The same by the settings of this host. */
void core_file_describe_here(pid_t pid, const char *folder, char *out, size_t size);

#endif

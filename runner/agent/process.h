/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel knows of a process: of each thread its name, state, CPU time and system call,
 * read from /proc. What cannot be read is left out.
 */
#ifndef RUNNER_AGENT_PROCESS_H
#define RUNNER_AGENT_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_THREADS_MAX = 256 };

struct process_thread {
    int tid;
    char name[32];
    char state;      /* R S D T t Z; 0: not known */
    uint64_t run_ns; /* CPU time so far */
    char call[256];  /* "read(3) of /data/x"; "": not in a system call, or not known */
};

struct process_sample {
    struct process_thread *threads; /* owned; ascending by tid */
    uint32_t n;
    uint64_t at_ns;
};

/* `proc`: the folder of the process, "/proc/4711". False: it has ended. */
bool process_sample_take(struct process_sample *s, const char *proc);
void process_sample_fini(struct process_sample *s); /* safe on a zeroed one */
/* CPU use of a thread of `after` since `before`, in 1/1000 of a CPU. */
uint32_t process_sample_use(const struct process_sample *before, const struct process_sample *after,
                            uint32_t thread);

/* Where the kernel has put the core file of a process, by /proc/sys/kernel/core_pattern. */

/* "core file: /var/cores/core.*.4711", with * for what is not known here, or the program that the
 * kernel has started. `folder`: where a relative pattern leads. `pattern`: a line; `with_pid`: of
 * core_uses_pid. */
void core_file_describe(const char *pattern, bool with_pid, pid_t pid, const char *folder,
                        char *out, size_t size);
/* The same by the settings of this host. */
void core_file_describe_here(pid_t pid, const char *folder, char *out, size_t size);

#endif

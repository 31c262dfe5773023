/* SPDX-License-Identifier: Apache-2.0
 *
 * The exit codes of collrun, collrun-agent and collrun-engine. Any other code is a rank's: its own,
 * or 128 + N if signal N killed it.
 */
#ifndef ENGINE_BASE_EXIT_CODES_H
#define ENGINE_BASE_EXIT_CODES_H

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,       /* a rank: an operation or a workload failed */
    EXIT_JOB = 2,          /* the job file or the command line is wrong */
    EXIT_TIMEOUT = 124,    /* a time-out or a deadlock */
    EXIT_INTERNAL = 125,   /* collrun itself failed */
    EXIT_LOAD = 126,       /* a plugin or backend cannot be loaded */
    EXIT_HOST = 127,       /* a host or its agent is unreachable */
    EXIT_EXEC = 127,       /* a child process: its program cannot be started, as in a shell */
    EXIT_SIGNAL = 128,     /* + N: ended by signal N */
    EXIT_INTERRUPTED = 130 /* 128 + SIGINT */
};

/* The largest code that a workload may return; those above are taken. */
enum { EXIT_LARGEST_OF_RANK = 119 };

#endif

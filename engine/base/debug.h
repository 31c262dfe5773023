/* SPDX-License-Identifier: Apache-2.0
 *
 * The log for developers: what a process of collrun decided, and why, one line each. COLLRUN_DEBUG
 * names areas ("link,rdv"); without it nothing is formatted, and a call of debug_log costs one load
 * and a branch.
 *
 *     debug: 0.123456 rank 3: link: dial 10.0.0.7:4711 for rank 5, attempt 2
 *
 * That is the time since the runner started, by the clock of the host; the process; the area.
 *
 * Happy path: the runner parses the variable and sends the areas to every agent; an agent writes
 * them into the record of each rank, which reads them there when it maps the record. Lines go to
 * stderr, those of an agent to the runner, which writes its own and those also to debug.log of the
 * run directory. A rank also keeps its last lines in its record, where they outlive it.
 *
 * Failure modes: a line that would block, or that exceeds DEBUG_LINES_A_SECOND, is dropped; the
 * next line that is written says how many were. The record keeps it nevertheless.
 *
 * The state is global, since a line may come from any thread of any module, and a disabled call
 * must need no pointer. Every function but debug_start and those after it may be called by any
 * thread, with any lock; errno is kept. No secrets: a value of the rendezvous, of the environment
 * or of a parameter is never an argument, and the runner replaces those that texts of errors quote.
 */
#ifndef ENGINE_BASE_DEBUG_H
#define ENGINE_BASE_DEBUG_H

#include "base/diag.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enumerator, name, what is logged) */
#define DEBUG_AREAS(X)                                                                             \
    X(WIRE, "wire", "frames of the control protocol that are sent or received, but no OUTPUT")     \
    X(LINK, "link", "connections of the backends: listen, dial, accept, handshake, retry, end")    \
    X(COORD, "coord", "the coordinator of nccl: connections, matches, communicators on demand")    \
    X(RDV, "rdv", "rendezvous: joins, fences, failures")                                           \
    X(GROUP, "group", "how a group forms and ends: members, backend, addresses")                   \
    X(STAGE, "stage", "how a host is reached: connections, staging, the handshake with its agent") \
    X(PLACE, "place", "placement: ranks on hosts, CPUs, devices, backends")                        \
    X(RANK, "rank", "ranks and programs: start, phases, exit")                                     \
    X(LIVENESS, "liveness", "silence and pauses: heartbeats that are late, why a host is lost")    \
    X(STOP, "stop", "failures, and the steps that end a job")                                      \
    X(PROOF, "proof", "comparison of calls, deadlocks, stalls, and the verdict")                   \
    X(POLICY, "policy", "on_failure: restart, continue or stop; hosts that are replaced")

#define DEBUG_ENUMERATOR(area, name, text) DEBUG_##area,
enum debug_area { DEBUG_AREAS(DEBUG_ENUMERATOR) DEBUG_AREA_COUNT };
#undef DEBUG_ENUMERATOR

enum { DEBUG_LINE = 512, DEBUG_LINES_A_SECOND = 2000 };

extern _Atomic uint64_t debug_enabled; /* bit AREA; read by debug_on */

static inline bool debug_on(enum debug_area area)
{
    return __builtin_expect(
        (atomic_load_explicit(&debug_enabled, memory_order_relaxed) >> area & 1) != 0, 0);
}

/* printf; the arguments are evaluated only if the area is enabled. */
#define debug_log(area, ...)                                                                       \
    do {                                                                                           \
        if (debug_on(area))                                                                        \
            debug_write((area), __VA_ARGS__);                                                      \
    } while (0)
void debug_write(enum debug_area area, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Lines of another process as they are, each with its newline. */
void debug_relay(const char *lines, size_t len);

/* ---- areas ---- */

const char *debug_area_name(enum debug_area area);
const char *debug_area_text(enum debug_area area);
/* "link,rdv" or "all"; NULL or "": none. INVALID with a hint for an unknown name. */
int debug_parse(const char *text, uint64_t *areas, struct diag *d);

/* ---- life: called while the process has one thread that logs ---- */

struct record_head;

/* `who`: "collrun", "agent a", "rank 3". `start_ns`: of CLOCK_REALTIME, when the runner started. */
void debug_start(uint64_t areas, uint64_t start_ns, const char *who);
uint64_t debug_areas(void);
uint64_t debug_start_ns(void);
/* Starts the log of a rank, with the areas that its agent has written into its record, which keeps
 * the last lines from now on. NULL: no record does any more. */
void debug_start_rank(struct record_head *record);
/* `mask` replaces secrets in a line, in place; any thread calls it. `names` stays the caller's. */
void debug_set_mask(void (*mask)(const void *names, char *line, size_t size), const void *names);
/* Where lines go in place of stderr (fd 2), and where copies go; -1: nowhere. Neither blocks; both
 * stay the caller's. */
void debug_set_output(int fd, int copy_fd);

#endif

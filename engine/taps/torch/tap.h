/* SPDX-License-Identifier: Apache-2.0
 *
 * What records the calls of torch.distributed (c10d) of a rank, whatever its backend. Python code
 * (engine/taps/torch/python) wraps the methods of torch's ProcessGroup and Work, and calls this
 * extension, which writes the rank's record (base/record.h):
 *
 *     begin       a collective or message is about to be issued, as a request
 *     issued      the backend has returned its Work
 *     wait_begin, wait_end    a thread waits for the Work
 *     drop        the Work was not waited for, and the program has no reference to it any more
 *
 * - The GIL protects all that is here: each function is called with it.
 * - Nothing here needs torch, and one build serves Python 3.9 and all later ones.
 * - The backend may have completed an operation long before its Work is waited for, or never have
 *   begun it: an operation is only known to be complete when a wait has returned.
 * - A child of fork() has no record, and records nothing.
 */
#ifndef ENGINE_TAPS_TORCH_TAP_H
#define ENGINE_TAPS_TORCH_TAP_H

#include "base/record_writer.h"

/* ---- calls.c ---- */

/* What the ranks of a group must call alike. */
struct tap_operation {
    unsigned function; /* enum c10d_function */
    unsigned type, op; /* of base/mpi_names.h; 0: not known, or none */
    int peer;          /* of the group: the root, source or destination; -1: none, or any */
    uint32_t tag;
    uint64_t count; /* elements of this rank that must be equal on all; 0: not compared */
    uint64_t shown; /* elements of this rank */
    uint64_t site;
    bool sync; /* a send that ends only when it is received */
};

/* Opens the record of this process. Returns why not, or NONE. `library`: "torch 2.15.0". */
enum record_unobserved tap_open(const char *library, uint32_t rank, bool is_job);
/* A process group; returns its number, from 1; 0: it is not recorded. `world`: world ranks. */
uint32_t tap_group_add(const char *name, const char *scope, const uint32_t *world, uint32_t size,
                       uint32_t rank);
void tap_group_remove(uint32_t group);

/* Returns a request; 0: the operation is not recorded. */
uint32_t tap_begin(uint32_t group, const struct tap_operation *op);
void tap_issued(uint32_t request, bool failed);
/* False: the wait is not recorded, and tap_wait_end is not called. `timeout_ns` 0: none. */
bool tap_wait_begin(uint32_t request, uint64_t timeout_ns);
/* `peer_failed`: why another member has ended its connection; "": it has not. `source`: the rank of
 * the group that a receive from any has got its message from; -1: as given.
 */
void tap_wait_end(uint32_t request, bool failed, const char *peer_failed, int source);
void tap_drop(uint32_t request);

/* From now on any thread of the process may call. */
void tap_share(void);
/* The number of a file of Python: sites are it plus the line. 0: there is no room. */
uint64_t tap_file(const char *path);
/* The handler of this signal lets no thread go on. */
void tap_signal_is_harmless(int signal);
/* True while this thread is between begin and issued, or in a wait. */
bool tap_is_inside(void);
/* An exception that ends the program, or a thread of it. */
void tap_exception(const struct record_exception *e);

/* ---- stacks.c ---- */

/* Serves the frames of Python by a signal, into a memfd. Returns 0, or an error number. */
int tap_serve_stacks(int signal, int fd);

#endif

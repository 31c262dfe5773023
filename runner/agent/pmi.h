/* SPDX-License-Identifier: Apache-2.0
 *
 * PMI-1 for ranks that run a command: programs built with MPICH or Intel MPI start as under
 * mpiexec. The rank finds PMI_FD, PMI_RANK and PMI_SIZE in its environment and writes lines such as
 * "cmd=put kvsname=... key=... value=..." (the simple wire protocol, version 1.1).
 *
 *  - The ranks of a workload are one MPI job: PMI_RANK is the position in its `ranks`.
 *  - init joins a scope of the rendezvous store; put puts a key into it; barrier_in enters a fence.
 *    The fence hands all new keys to every rank, and the agent keeps them for get. The store of
 *    this host or that of the runner serves it, so a job may have several hosts.
 *  - abort fails the rank, with the exit code that the program gave.
 *  - A rank exits while others are in a barrier: their barrier fails.
 *  - The process that has sent init ends without finalize, below a shell or as the rank: MPI says
 *    so to the runner, which fails the rank if others of the workload still run.
 *  - Shared memory that MPICH or Intel MPI has made, and a killed rank could not remove, is removed
 *    at the end.
 *  - spawn is refused, and the runner prints that; so is any other command that is not known. A
 *    line that is too long, or without "cmd=", ends the connection.
 */
#ifndef RUNNER_AGENT_PMI_H
#define RUNNER_AGENT_PMI_H

#include "base/buf.h"
#include "base/desc.h"
#include "base/loop.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct agent;
struct rank_proc;

/* The keys of PMI: a hash table from key to value. The ranks of one MPI job on a host share one,
 * which has what their barriers have published; each rank has another one, with what it has put
 * since. A key that is set again gets the new value. Without memory, a key is not found. */
struct pmi_key;

struct pmi_keys {           /* all zero: empty */
    struct pmi_key **slots; /* each a list */
    uint32_t room, n;
    uint32_t fences; /* of the shared table: how many of them it has */
};

const char *pmi_keys_find(const struct pmi_keys *t, const char *key); /* NULL: there is none */
void pmi_keys_set(struct pmi_keys *t, const char *key, const char *value, size_t len);
/* Moves all keys of `from`. */
void pmi_keys_take(struct pmi_keys *to, struct pmi_keys *from);
void pmi_keys_fini(struct pmi_keys *t);

enum { PMI_CHILD_FD = 6 }; /* in the program */

struct pmi { /* of one rank */
    int fd;  /* -1: closed */
    struct loop_fd watch;
    struct rank_proc *proc;
    struct buf in;
    bool joined, in_barrier, in_spawn;
    bool initialized;      /* MPI_Init, and no MPI_Finalize since */
    bool disturbed;        /* a barrier of it has failed, since another rank has exited */
    bool refused;          /* a spawn, which the runner has printed */
    pid_t sender;          /* of the last command; 0: not known */
    struct loop_fd ending; /* of the process that has sent init, if it is not that of the rank */
    uint32_t fences;       /* that it has entered */
    struct pmi_keys own;   /* that it has put since its last barrier */
};

/* Takes the agent's end of the socketpair. */
void pmi_open(struct pmi *pmi, struct rank_proc *p, int fd);
void pmi_close(struct pmi *pmi); /* safe without open if fd is -1 */
/* The rank has exited: handles what it has written, reports a good exit without MPI_Finalize, then
 * closes. */
void pmi_finish(struct pmi *pmi, bool good);
/* A frame for the rank. True: it was the answer to a barrier. */
bool pmi_take(struct pmi *pmi, uint16_t type, const void *payload, size_t len);
/* Looks up the shared memory that the library has made in MPI_Init, and removes in MPI_Finalize. */
void pmi_note_memory(struct pmi *pmi);
/* Sets PMI_FD and its like in the child. */
void pmi_set_environment(const struct rank_proc *p);

#endif

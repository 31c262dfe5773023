/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this backend share:
 * - backend.c: the exported table, groups, and the life of a collective
 * - collective.c: collectives, in slices that pass through bounce buffers of the group
 * - message.c: point-to-point messages: a transport, for which collrun matches
 * - communicator.c: one communicator per open group, reused by later groups
 * - library.c: Open MPI itself: entered by one thread at a time, started once, failed for good
 * - pmi.c: how the Open MPI of one rank finds that of another
 *
 * MPI cannot cancel a started operation, but collrun guarantees that the buffers of a timed-out
 * operation are no longer accessed. MPI therefore gets only memory of this backend; memory that it
 * may still write to after a failure is never freed.
 */
#ifndef MPI_BACKEND_H
#define MPI_BACKEND_H

#include <collrun/backend.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

/* WORLD_SIZE: the size of MPI_COMM_WORLD, most of which never exists; a rank exists once it has
 * opened a group. */
enum { WORLD_SIZE = 16384, WHY_LEN = 512, BULK = 1 << 20 };

/* Announces a message. EAGER_LEN: so much data fits, and MPI sends the packet eagerly. */
enum { EAGER_LEN = 2048 };
struct packet {
    uint64_t group; /* its id */
    struct collrun_envelope envelope;
    int tag; /* of the MPI message with the data, if that is longer than EAGER_LEN */
    unsigned char data[EAGER_LEN];
};

/* Used by one group, or spare between two groups. */
struct communicator {
    MPI_Comm comm;
    uint64_t id;
    uint32_t nranks, *world_rank; /* owned; the members in order */
    struct packet packet;         /* the next one from any member, */
    MPI_Request request;          /* its receive; MPI_REQUEST_NULL: not posted */
    MPI_Status arrived;           /* and its source */
    struct communicator *next;
};

/* Open MPI in this process. */
struct library {
    pthread_mutex_t opening; /* held while a group that starts MPI is opened */
    pthread_mutex_t lock;    /* held by the thread inside MPI; guards the members below */
    bool running;
    atomic_bool dirty;           /* operations were abandoned: MPI_Finalize might hang */
    atomic_bool failing, failed; /* failed: MPI is not entered any more; `why` holds the reason */
    char why[WHY_LEN];
    uint32_t rank;                  /* in the job */
    bool shares_memory[WORLD_SIZE]; /* ranks that share memory with this one */
    uint32_t communicators;         /* created by this rank as the first member of a group */
    struct communicator *spare;     /* communicators that no group uses */
    MPI_Datatype bulk;              /* BULK bytes, for messages of more than INT_MAX */
    atomic_bool has_sockets;        /* MPI may connect to other ranks by TCP; then */
    pthread_t progress_thread;      /* keeps data moving that has to leave through a socket */
    atomic_bool closing;
};

/* Memory that MPI reads or writes instead of the caller's. */
struct bounce_buffer {
    unsigned char *bytes;
    size_t len;
};

struct operation;
struct message;

struct group {
    struct library *library;
    const struct collrun_services *services;
    const struct collrun_p2p *p2p;
    struct communicator *comm; /* owned while the group is open */
    uint64_t id;               /* unique in this job */
    uint32_t rank, nranks;
    bool oversubscribed; /* more ranks than cores */
    atomic_bool aborted; /* set by another thread */
    int failed;          /* the status of the first failure; `why` holds its message */
    char why[WHY_LEN];
    uint32_t active;                    /* collectives that are not finished */
    struct operation *queue;            /* of those, in call order; the first one runs */
    struct bounce_buffer input, output; /* of the running collective */
    struct message *messages;           /* in MPI */
};

/* A collective: the first member of a struct of collective.c. */
struct operation {
    struct group *group;
    uint64_t deadline_ns, timeout_ns;
    int status; /* AGAIN until it is finished */
    struct operation *next;
};

/* ---- backend.c ---- */
/* Stores the first failure of a group; returns `status`. */
int group_fail(struct group *group, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int group_fail_mpi(struct group *group, const char *function, int error);
/* Stores that failure as the error of this thread; returns its status. */
int group_report(const struct group *group);
/* Runs fn(arg) inside MPI, unless the group has failed or is aborted. Returns OK, or the status of
 * the group's failure; a failure of fn is one that group_fail has stored. */
int group_enter(struct group *group, int (*fn)(void *arg), void *arg);
/* Inside MPI: progresses the queued collectives. */
int operations_advance(void *group);
/* Between two rounds of a wait: spins, yields, then sleeps. */
void group_idle(const struct group *group, unsigned round);
uint64_t now_ns(void);

/* ---- collective.c: no data moves before the first advance ---- */
int collective_new(struct group *group, const struct collrun_call *call, struct operation **out);
/* Inside MPI. AGAIN, OK, or a failure that group_fail has stored. */
int collective_advance(struct operation *op);
void collective_free(struct operation *op); /* all but memory that MPI may still use */

/* ---- message.c ---- */
extern const struct collrun_transport message_transport;

/* ---- library.c ---- */
/* Runs fn(arg) inside MPI: `enter` under the lock, `guard` without it. Returns a negative status,
 * with library->why, if MPI has failed or fails meanwhile. */
int library_enter(struct library *library, int (*fn)(void *arg), void *arg);
int library_guard(struct library *library, int (*fn)(void *arg), void *arg);
/* Inside MPI, before a message: lets it look at its sockets. Open MPI 4.1 may loop for ever if it
 * learns from a write, not from a read, that a peer is dead. */
int library_poll(void *library);
/* Starts MPI if it does not run yet, and gives it the addresses of all members of the group. */
int library_join(struct library *library, const struct collrun_group_desc *desc);
/* Makes MPI unusable in this process, with the reason. The first failure is kept. */
void library_fail(struct library *library, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Stores that reason as the error of this thread; returns BACKEND. */
int library_failure(struct library *library, const struct collrun_group_desc *desc);
/* Leaves MPI by a jump to where it was entered. Only after library_fail. */
_Noreturn void library_escape(void);
struct library *library_new(void);
void library_free(struct library *library);

/* ---- communicator.c ---- */
/* Collective: a communicator of the members, in their order, that no open group uses, and an id
 * that is unique in the job. */
int communicator_take(struct library *library, const struct collrun_group_desc *desc,
                      struct communicator **out, uint64_t *id);
void communicator_give(struct library *library, struct communicator *it);
/* Inside MPI: no receive is posted any more. */
void communicators_cancel(struct library *library);
void communicators_free(struct library *library);

/* ---- pmi.c ---- */
/* MPI_Init_thread, for members that have not called it yet; `starting` is one flag per member. */
int pmi_start(struct library *library, const struct collrun_group_desc *desc, const bool *starting);
/* The keys and values that this rank's MPI publishes for the others ("modex" in Open MPI):
 * NUL-terminated strings. */
const char *pmi_modex(size_t *len);
/* Waits for the key "WHAT.MEMBER" of the rendezvous and stores the modex that it holds. *starting
 * is set if it holds none: the member has not started MPI. */
int pmi_learn(const struct collrun_group_desc *desc, const char *what, uint32_t member,
              bool *starting);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this backend share:
 * - backend.c: the table that collrun sees, groups, and the way of an operation
 * - collective.c: collectives, as slices that go through memory of the group
 * - message.c: point to point
 * - communicator.c: one per open group, handed on to the next
 * - library.c: Open MPI itself, entered by one thread at a time, started once, given up for good
 * - pmi.c: how the Open MPI of one rank finds that of another
 *
 * MPI cannot take an operation back, while collrun promises a caller whose operation timed out that
 * nobody touches its buffers any more. So MPI only ever sees memory of this backend; what it may
 * still write to after a failure is never freed.
 */
#ifndef MPI_BACKEND_H
#define MPI_BACKEND_H

#include <collrun/backend.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

/* What Open MPI takes for the size of the job: MPI_COMM_WORLD is that large and mostly empty; a
 * rank is there once it has opened a group. */
enum { WORLD_SIZE = 16384, WHY_LEN = 512, BULK = 1 << 20 };

/* Of one group, or of none between two. */
struct communicator {
    MPI_Comm comm;
    uint64_t id;
    uint32_t nranks, *world_rank; /* owned; the members in order */
    struct communicator *next;
};

/* Open MPI in this process. */
struct library {
    pthread_mutex_t opening; /* while a group that starts MPI is being opened */
    pthread_mutex_t lock;    /* whoever is inside MPI; guards the rest */
    bool running;
    atomic_bool dirty;        /* operations were abandoned, so MPI_Finalize might hang */
    atomic_bool losing, lost; /* lost: MPI is not entered any more; `why` says why */
    char why[WHY_LEN];
    uint32_t rank;              /* in the job */
    bool near[WORLD_SIZE];      /* ranks that share memory with this one */
    uint32_t communicators;     /* made by this rank as the first of a group */
    struct communicator *spare; /* those of no group */
    MPI_Datatype bulk;          /* BULK bytes, for messages of more than INT_MAX */
    pthread_t keeper;           /* keeps data moving that has to leave through a socket */
    bool keeps;
    atomic_bool closing;
};

/* Memory that MPI reads or writes. */
struct stage {
    unsigned char *bytes;
    size_t len;
};

struct operation;

struct group {
    struct library *library;
    const struct collrun_services *services;
    struct communicator *comm; /* owned while the group is open */
    uint64_t id;               /* no other group of this job has it */
    uint32_t rank, nranks;
    bool crowded;        /* more ranks than cores */
    atomic_bool aborted; /* by another thread */
    int failed;          /* the status of the first failure, which `why` tells */
    char why[WHY_LEN];
    uint32_t active;            /* operations that are not finished */
    struct operation *queue;    /* collectives, in their order; the first one runs */
    struct stage input, output; /* of the collective that runs */
};

/* One request: a collective or a batch of messages; the first member of its file's own struct. */
struct operation {
    struct group *group;
    uint64_t deadline_ns, timeout_ns;
    int status;  /* AGAIN until it is finished */
    bool queued; /* a collective that waits for its turn or runs */
    /* Inside MPI. AGAIN, OK, or a failure that group_fail has told. */
    int (*advance)(struct operation *op);
    void (*release)(struct operation *op); /* frees all but what MPI may still use */
    struct operation *next;
};

/* ---- backend.c ---- */
/* The first failure of a group stands; returns `status`. */
int group_fail(struct group *group, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int group_fail_mpi(struct group *group, const char *function, int error);
uint64_t now_ns(void);

/* ---- collective.c, message.c: nothing moves before the first advance ---- */
int collective_new(struct group *group, const struct collrun_call *call, struct operation **out);
int messages_new(struct group *group, const struct collrun_call *calls, uint32_t ncalls,
                 struct operation **out);

/* ---- library.c ---- */
/* Runs fn(arg) inside MPI, alone or, `guard`, beside others. A negative status, with library->why,
 * if MPI is or gets lost. */
int library_enter(struct library *library, int (*fn)(void *arg), void *arg);
int library_guard(struct library *library, int (*fn)(void *arg), void *arg);
/* Starts MPI if it does not run yet, and makes it know all members of the group. */
int library_join(struct library *library, const struct collrun_group_desc *desc);
/* With all signals blocked: they are the engine's business. 0 or an errno. */
int library_thread(pthread_t *thread, void *(*fn)(void *arg), void *arg);
/* Tells why MPI is lost. */
int library_is_lost(struct library *library, const struct collrun_group_desc *desc);
void library_lose(struct library *library, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* From inside MPI, back to where it was entered, for good: MPI must be lost. */
_Noreturn void library_escape(void);
struct library *library_new(void);
void library_free(struct library *library);

/* ---- communicator.c ---- */
/* A communicator of the members, in their order, that no open group uses, and a number that no
 * other group of the job ever has. Collective. */
int communicator_take(struct library *library, const struct collrun_group_desc *desc,
                      struct communicator **out, uint64_t *id);
void communicator_give(struct library *library, struct communicator *it);
void communicators_free(struct library *library);

/* ---- pmi.c ---- */
/* MPI_Init_thread, for members that have not called it yet; `fresh` is one flag per member. */
int pmi_start(struct library *library, const struct collrun_group_desc *desc, const bool *fresh);
/* The card is what another rank's MPI needs to know of this one's. NUL-terminated lines. */
const char *pmi_card(size_t *len);
/* Reads "WHAT.MEMBER" from the rendezvous, once the member has put it, and keeps the card. What is
 * no card makes it fresh. */
int pmi_learn(const struct collrun_group_desc *desc, const char *what, uint32_t member,
              bool *fresh);

#endif

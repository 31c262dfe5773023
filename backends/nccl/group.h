/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of this backend. A process drives one or more GPUs in a group; each is a port: a
 * communicator rank with a stream of its own. Rank r's device d is communicator rank
 * r * nports + d.
 *
 *   nccl.c      the backend's table, and what all groups of a process share
 *   library.c   finding CUDA, NCCL and NVML
 *   group.c     forming a group, closing it
 *   issue.c     one operation onto the streams
 *   emulate.c   operators and types that NCCL lacks, reduced on the host in stream order
 *   message.c   messages: told to the desk, launched when both ends are there
 *   tally.c     how many collectives all ranks have promised to launch
 *   invite.c    how the ranks of a group come to its desk
 *   desk.c      where messages are matched and promises counted: a thread of the group's rank 0
 *   traffic.c   what may go onto the GPUs now, and what has to wait for what
 *   request.c   when it is done, and how it ended: start, test, exec
 *   abort.c     stopping what runs on the GPUs
 *   memory.c    collrun_alloc
 *   xid.c       what the driver says about a GPU that failed
 *
 * The engine opens two groups here for each of its own, each with communicators and streams of its
 * own: one for collectives, one for messages, which has a `mail`.
 *
 * Locks, in the order in which they are taken: a group's `lock`, then the devices' `issue` in
 * ascending order; the traffic's is taken by itself. Whoever holds a device's `issue` is the one
 * thread that issues on it, so the order of operations of different groups on a device is one
 * order, and NCCL's rule against racing launches holds.
 */
#ifndef NCCL_GROUP_H
#define NCCL_GROUP_H

#include "library.h"

#include <collrun/backend.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

struct device { /* a GPU of this process */
    pthread_mutex_t issue;
    atomic_uint flying;   /* requests that are not finished on it */
    char pci[16];         /* its PCI address, as NVML knows it; "" if unknown */
    _Atomic uint64_t xid; /* the last critical Xid; 0 = none */
};

struct xid_watch {
    pthread_t thread;
    bool running;
    atomic_bool stop;
};

struct nccl_group;
struct mail;
struct message;
struct desk;

/* What a connection to the desk is for. */
enum desk_sort { DESK_MAIL, DESK_TALLY, DESK_SORTS };
struct invitation { /* what rank 0 publishes */
    struct sockaddr_storage address;
    uint32_t len, reserved;
    uint64_t secret;
};

/* traffic.c */
struct traffic {
    pthread_mutex_t lock;
    struct flight *aloft, **end;          /* collectives on the GPUs, in the order of launch */
    unsigned awaited;                     /* those of them that a stream of the program waits for */
    unsigned promises;                    /* collectives that are promised and have not ended, */
    const struct nccl_group *promised_to; /* all of this group */
};

/* tally.c */
struct tally {
    int fd;                 /* to the desk; -1: nobody will promise anything */
    uint64_t told, ready;   /* promised by this rank, as the desk knows; promised by all */
    uint64_t out, in;       /* what is on its way, */
    size_t out_len, in_len; /* and so many bytes of it */
};

/* What all groups of the process share. */
struct home {
    const struct collrun_services *services;
    struct libraries lib;
    struct device *devices; /* by CUDA ordinal */
    struct xid_watch xid;
    pthread_mutex_t environment; /* of the process, while a communicator is made */
    struct traffic traffic;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    pthread_t aborter;
    bool stopping;
    struct nccl_group *doomed; /* to be stopped */
    unsigned burials;          /* groups that are being closed */
    unsigned serving;          /* those of them whose desk still has clients */
};

/* An event that is reused. */
struct mark {
    cudaEvent_t event;
    struct mark *next;
};

struct scratch { /* made when it is first needed */
    void *device, *pinned;
};

enum { SCRATCH_LEN = 4 << 20, TOKEN_LEN = 256, MOST_PORTS = 64 };

struct port {
    struct device *device;
    int ordinal;
    ncclComm_t comm; /* NULL once it is gone */
    cudaStream_t stream;
    struct mark *ready;       /* what the caller's stream had before an operation */
    struct mark *spare_marks; /* for requests */
    char *token;              /* TOKEN_LEN bytes on the device: something to synchronise with */
    struct scratch scratch;
};

struct nccl_group {
    struct home *home;
    const struct collrun_services *services;
    char *name;
    uint32_t rank, nranks, nports, size; /* size = nranks * nports: communicator ranks */
    struct port *ports;
    pthread_mutex_t lock; /* the communicators */
    atomic_int fate;      /* 0, or the status with which everything fails */
    char why[512];        /* written once, before `fate` */
    pthread_mutex_t why_lock;
    bool queued;               /* for the aborter; under home.lock, like what follows */
    bool stopped;              /* it has told the communicators to stop */
    struct nccl_group *next;   /* in home.doomed */
    struct allocation *memory; /* of collrun_alloc; under `lock` */
    struct desk *desk;         /* rank 0's, with the handle for collectives */
    struct invitation desk_at;
    struct tally tally;                       /* of the handle for collectives */
    struct mail *mail;                        /* NULL: this handle is for collectives */
    const struct collrun_rendezvous *forming; /* until the group is formed */
    uint64_t asked_ns;                        /* when the job was last asked whether it goes on */
    atomic_bool formed;
    /* Of its collectives; under traffic.lock. */
    uint64_t queued_calls, launched_calls, promised_calls;
    unsigned unfinished, awaited; /* on the GPUs */
    bool heavy;                   /* the last one there is */
};

/* A collective is LIGHT if it is one kernel, HEAVY if it is one after the other; FREE is what forms
 * a group, and messages. */
enum traffic_class { FREE, LIGHT, HEAVY };

/* An operation on its way. */
struct flight {
    struct nccl_group *group;
    uint64_t deadline_ns, timeout_ns;
    uint64_t polls;
    uint64_t failed_ns; /* when `status` was set */
    int status; /* 0, or how it failed: what is left is to wait until the streams are idle */
    enum traffic_class class;
    struct flight *next; /* on the GPUs */
    uint64_t place;      /* of a collective, among those of its group */
    bool bound;          /* its callers' streams may wait for collectives of other groups */
    bool promised, launched, awaited, landed;
    atomic_bool marked; /* `done` is there, and stays */
    bool unlaunched;    /* a heavy one: there are more kernels */
    uint32_t segment;   /* where its next one begins: of the ranks' parts of a reduction, */
    size_t from;        /* and what of that is done */
    const struct collrun_call *calls; /* the engine's, until the flight ends */
    uint32_t ncalls;
    struct message *messages; /* ncalls of them; NULL for a collective */
    uint32_t nopen;           /* messages that have not ended */
    struct mark **ready; /* nports: what the callers' streams held, if it could not go at once */
    struct mark *done[]; /* nports: behind it; NULL = not involved */
};

/* ---- group.c ---- */
int nccl_group_open(void *backend, const struct collrun_group_desc *desc, void **group);
void nccl_group_close(void *group);
/* While the group is formed, now and then: whether the job has failed meanwhile. */
int forming_goes_on(struct nccl_group *g);
/* A mark on the port's device behind what `stream` holds now; NULL: CUDA refuses, and the sentence
 * is stored. */
struct mark *port_mark(struct nccl_group *g, struct port *port, cudaStream_t stream);
void port_take_back(struct port *port, struct mark *mark); /* NULL is OK */

/* ---- issue.c ---- */
/* Both with the group's lock; 0, or a status with its sentence stored. Puts a collective, or its
 * next kernel, onto the streams, after what its callers' streams hold (held, if it has `ready`),
 * and a mark behind it for each port. */
int issue(struct nccl_group *g, struct flight *flight);
/* The same for messages whose other ends are issued, too: a list. `done` gets nports marks. */
int issue_messages(struct nccl_group *g, const struct message *list, struct mark **done);
bool is_heavy(const struct collrun_call *call); /* may take more than one kernel */
/* The first connects this rank to every other one, so that nothing has to be connected later, when
 * it could wait for a peer that is busy elsewhere; the second shows that all have done so. */
int issue_greetings(struct nccl_group *g, struct flight *flight);
int issue_roll(struct nccl_group *g, struct flight *flight);
/* Waits until NCCL has accepted what was issued to a port. */
int await_ready(struct nccl_group *g, struct port *port, uint64_t deadline_ns);
/* The sentence; the group is doomed with it: what NCCL and CUDA report leaves nothing to go on
 * with.
 */
int nccl_failed(struct nccl_group *g, ncclComm_t comm, ncclResult_t result, const char *what);
int cuda_failed(struct nccl_group *g, const struct port *port, cudaError_t error, const char *what);

/* The calling thread's current device, put back by device_leave. */
int device_enter(const struct home *home, int ordinal);
void device_leave(const struct home *home, int before);

/* ---- emulate.c ---- */
bool dtype_native(enum collrun_dtype dtype, ncclDataType_t *out);
bool reduction_native(enum collrun_dtype dtype, enum collrun_op op, ncclDataType_t *type,
                      ncclRedOp_t *native);
/* The next kernel. With the devices locked; one call for each port. */
int emulate_reduction(struct nccl_group *g, struct flight *f);
int alltoall_in_place(struct nccl_group *g, struct flight *f);

/* ---- message.c ---- */
struct message {
    struct message *next; /* in one of the mail's lists */
    struct flight *flight;
    const struct collrun_call *call;
    struct mark *after; /* what its caller's stream held */
    bool owns_after;    /* not the mark of the message before it */
    bool bound;         /* that stream may wait for an unfinished collective */
    bool ends_epoch;    /* the last one of those that are launched together */
    enum { HELD, TOLD, AGREED, ALOFT, OVER } state;
    uint32_t id;    /* while the desk knows it */
    uint32_t place; /* of the other end, once it is agreed on */
};

int mail_new(struct nccl_group *g);
int mail_dial(struct nccl_group *g, uint64_t deadline_ns);
int mail_post(struct nccl_group *g, struct flight *f); /* with the group's lock */
/* Moves on whatever can be: tells, hears, launches, sees what has ended. A failure dooms the group.
 */
void mail_progress(struct nccl_group *g);
void mail_listen(struct nccl_group *g, uint64_t ns); /* until there is news, or so long */
uint64_t mail_launched(const struct nccl_group *g);  /* how often it has launched messages */
/* The group is doomed: OK when its messages are off the GPUs, or should be. */
int mail_settle(struct nccl_group *g, bool in_time);
void mail_drop(struct flight *f); /* its messages, which nobody shall end any more */
/* Why a flight has not ended: "rank 2 did not receive". True: a message was not received. */
bool mail_explain(const struct flight *f, char *out, size_t len);
/* As nccl_order, with the device entered; what CUDA says is in *error. */
int mail_order(const struct flight *f, uint32_t device, cudaStream_t stream, cudaError_t *error);
void mail_close(struct nccl_group *g);
void mail_free(struct nccl_group *g);

/* ---- tally.c ---- */
int tally_dial(struct nccl_group *g, uint64_t deadline_ns);
void tally_exchange(struct nccl_group *g); /* tells what is new and hears what is */
void tally_close(struct nccl_group *g);

/* ---- invite.c ---- */
/* Rank 0 opens the group's desk and publishes where it is; after a fence, all can connect to it. */
int invite_all(struct nccl_group *g, const struct collrun_group_desc *desc);
int invite_take(struct nccl_group *g, const struct collrun_rendezvous *r);
/* Connects and says the secret; `fd` is the caller's, also after a failure, unless -1. */
int invite_connect(struct nccl_group *g, enum desk_sort sort, uint64_t deadline_ns, int *fd);

/* ---- desk.c ---- */
/* What a rank tells the desk of a message, and what the desk tells both ends when it has found
 * them. */
struct desk_post {
    uint64_t count;
    uint32_t id, place, peer; /* peer: a place, or DESK_ANYONE */
    uint32_t tag;
    uint32_t kind, dtype;
};
struct desk_match {
    uint64_t count; /* the other end's */
    uint32_t id, place, dtype;
    uint32_t ends_epoch; /* the last of those that the two ends' processes launch together */
};
struct desk_hello {
    uint64_t secret;
    uint32_t rank, sort;
};
#define DESK_ANYONE UINT32_MAX
/* Serves `nranks` processes that connect to the listening socket, which it takes over: each once
 * for its messages, once for the tally. There, a rank says how many collectives it has promised,
 * and hears how many all have: an uint64_t each. NULL: no memory or no thread. */
struct desk *desk_new(int listener, uint64_t secret, uint32_t nranks, uint32_t nports);
/* Waits until the tallies of all have come and gone; not so if it is to stop at once. */
void desk_free(struct desk *desk, bool at_once);

/* ---- traffic.c ---- */
void traffic_init(struct traffic *t);
void traffic_fini(struct traffic *t);
/* Of collectives. The first two: true if it is to be launched now. */
bool traffic_enter(struct flight *f);
bool traffic_turn(struct flight *f);
void traffic_await(struct flight *f);  /* a stream of the program is about to wait for it */
void traffic_leave(struct flight *f);  /* it has ended, however */
bool traffic_binds(struct traffic *t); /* whether what a stream holds now may wait for one */

/* ---- request.c ---- */
int nccl_exec(void *group, const struct collrun_call *calls, uint32_t ncalls);
int nccl_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request);
int nccl_test(void *group, void *request);
int nccl_order(void *group, void *request, uint32_t device, void *stream);
struct flight *flight_new(struct nccl_group *g, uint64_t timeout_ns); /* FREE */
int flight_wait(struct flight *f);                                    /* and frees */

/* ---- abort.c ---- */
int aborter_start(struct home *home);
void aborter_stop(struct home *home);
/* The first reason counts. Has the group's communicators stopped by the aborter. */
void group_doom(struct nccl_group *g, int status, const char *why);
void nccl_group_abort(void *group);
/* The group's reason, as this thread's failure. */
int group_failure(const struct nccl_group *g);

/* ---- memory.c ---- */
struct allocation;
int nccl_alloc(void *group, size_t len, void **ptr);
int nccl_alloc_on(void *group, uint32_t device, size_t len, void **ptr);
int nccl_free(void *group, void *ptr);
void memory_fini(struct nccl_group *g);

/* ---- xid.c ---- */
void xid_start(struct home *home);
void xid_stop(struct home *home);
/* The GPU has failed: gives the driver a moment to say why. */
void xid_await(const struct home *home, const struct device *device);
/* " (Xid 79 on GPU 0000:17:00.0: ...)", or "". */
const char *xid_words(const struct device *device, char *out, size_t len);

uint64_t clock_ns(void);
void pause_ns(uint64_t ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The library that collrun preloads into a rank that runs a program of MPI: it has the functions of
 * MPI that base/mpi_functions.h lists, writes each call into the rank's record (base/record.h), and
 * calls the same function of the MPI that is loaded, by its PMPI name. It has no connection, no
 * thread, and sends no message: what other ranks need to know of the calls is in the record.
 *
 *     preload.c    finds the record, gives the program its own environment back, follows exec
 *     wrappers.c   the functions, made from the table
 *     calls.c      what is recorded before and after each
 *     comms.c, types.c, requests.c     what the handles of MPI stand for
 *     objects.c    which objects the program has made and not freed
 *     checks.c     arguments that the standard forbids
 *     library.c    which MPI it is: its functions, handles and constants
 *
 * - One build serves every MPI: all arguments of MPI's functions are integers and pointers, which
 *   x86-64 and aarch64 pass in words of 64 bits each. The library that is loaded decides whether a
 *   handle is an int (MPICH and its kin) or a pointer (Open MPI, the standard ABI of MPI 5).
 * - Until MPI_Init has returned, and whenever anything is unusual (another library that uses PMPI,
 * a communicator that is not known), calls pass through unrecorded. Why nothing is recorded stands
 *   in record_head.unobserved.
 * - The tap allocates its tables from the heap, but nothing during a call that repeats.
 */
#ifndef ENGINE_TAPS_MPI_TAP_H
#define ENGINE_TAPS_MPI_TAP_H

#include "base/mpi_functions.h"
#include "base/record_writer.h"

typedef uint64_t word; /* an argument of any function of MPI */

/* ---- library.c ---- */

enum tap_abi { TAP_MPICH, TAP_OPEN_MPI, TAP_STANDARD };

struct tap_library {
    enum tap_abi abi;
    uint32_t handle_size; /* bytes of a handle in memory */
    int any_source, any_tag, proc_null;
    word in_place, status_ignore, comm_null, comm_world, comm_self, request_null;
    word type_null, op_null, group_null, group_empty, win_null;
    int tag_ub, err_other; /* the attribute MPI_TAG_UB; the class MPI_ERR_OTHER */
    size_t status_size, status_source, status_tag; /* MPI_Status: its size, offsets of members */
    int combiner_named;                            /* the others follow in one order */
    uint64_t sync_bytes; /* a standard send of more waits for its receiver; UINT64_MAX: not known */
    char name[48];       /* "MPICH 5.0.2" */
};

extern struct tap_library tap_library;

/* Whether no other library stands between the program and its MPI; wrappers.c finds that out before
 * the first call. */
void tap_library_set_alone(bool alone);
bool tap_library_is_alone(void);
/* PMPI_name of the MPI that is loaded; NULL: there is none. */
void *tap_library_find(const char *name);
/* The same in the pointer `function`: ISO C converts no address of data to one of a function.
 * False: it is NULL. */
bool tap_library_get(const char *name, void *function);
/* After MPI_Init. False: it is not known, and must not be observed. */
bool tap_library_open(void);
/* The operator, as base/mpi_names.h counts them, or OP_USER. */
uint8_t tap_library_op(word op);

/* A handle that is an argument, and the i-th one of an array in memory. */
static inline word tap_handle(word argument)
{
    return tap_library.handle_size == 4 ? (uint32_t)argument : argument;
}
static inline word tap_handle_at(word array, uint32_t i)
{
    const void *at = (const void *)(uintptr_t)array;
    return tap_library.handle_size == 4 ? ((const uint32_t *)at)[i] : ((const uint64_t *)at)[i];
}
/* MPI_SOURCE and MPI_TAG of a status. */
static inline int tap_status(const unsigned char *status, size_t offset)
{
    return *(const int *)(const void *)(status + offset);
}

/* ---- preload.c ---- */

/* The record, in the process of the rank itself; else NULL. */
struct record_head *tap_record(void);

/* ---- the table of functions: wrappers.c ---- */

enum tap_shape {
    TAP_COLLECTIVE,
    TAP_FORM,
    TAP_FORM_GROUP,
    TAP_SEND,
    TAP_RECV,
    TAP_INIT_MESSAGE,
    TAP_SENDRECV,
    TAP_PROBE,
    TAP_IMPROBE,
    TAP_WAIT,
    TAP_TEST,
    TAP_START,
    TAP_CANCEL,
    TAP_FREE_REQUEST,
    TAP_FREE_COMM,
    TAP_NAME_COMM,
    TAP_MAKE_COMM,
    TAP_MAKE_TYPE,
    TAP_MAKE_OP,
    TAP_MAKE_GROUP,
    TAP_MAKE_WIN,
    TAP_COMMIT_TYPE,
    TAP_FREE_TYPE,
    TAP_FREE_OP,
    TAP_FREE_GROUP,
    TAP_FREE_WIN,
    TAP_INIT,
    TAP_FINALIZE
};

/* Which argument is what, from 1; 0: there is none. */
struct tap_arguments {
    uint8_t sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype;
    uint8_t count, type, op, root, peer, tag, comm, newcomm, name;
    uint8_t source, recvtag; /* of the receive of sendrecv */
    uint8_t request;         /* a nonblocking form */
    uint8_t n, requests, status, flag, index, outcount, message;
    uint8_t length, object; /* of what makes a type; of MPI_OBJECTS */
    bool types;             /* sendtype and recvtype are arrays: alltoallw */
    bool sync, buffered;    /* waits for its receiver; does not wait */
};

struct tap_function {
    const char *name; /* of the function that is called: "PMPI_Bcast" */
    uint8_t number;   /* enum mpi_function; 0: it is not recorded */
    uint8_t kind, shape, nargs;
    bool large; /* counts are 64-bit: MPI_Bcast_c */
    struct tap_arguments at;
};

/* ---- types.c ---- */

/* A type as ranks can compare it: the sequence of its basic elements. */
struct tap_type {
    uint64_t units; /* basic elements */
    uint64_t bytes; /* of data */
    uint64_t hash;  /* of the sequence */
    uint8_t number; /* as in base/mpi_names.h; MPI_TYPE_MIXED: they differ; 0: not known */
    uint8_t state;  /* enum tap_object_state; of one that was freed, nothing else is known */
};

/* `handle`: an argument. */
struct tap_type tap_type_get(word handle);
/* `count` such elements, one behind the other. */
uint64_t tap_type_repeat(const struct tap_type *type, uint64_t count);
/* A type was made, committed or freed, or an operator: its handle may come to mean another one. */
void tap_type_forget(void);
/* How often that has happened. */
uint32_t tap_type_age(void);

/* ---- objects.c ---- */

enum tap_object { TAP_COMM, TAP_TYPE, TAP_OP, TAP_GROUP, TAP_WIN };
enum tap_object_state {
    TAP_OBJECT_UNKNOWN, /* predefined, or the tap has not seen how it was made */
    TAP_OBJECT_MADE,
    TAP_OBJECT_COMMITTED, /* a type */
    TAP_OBJECT_FREED      /* and its handle has not been given to another one */
};

/* The library has returned the handle. `function`: "MPI_Comm_dup"; `kept`: it is no leak. */
void tap_object_add(enum tap_object kind, word handle, const char *function, uint64_t site,
                    bool kept);
void tap_object_commit(word type);
/* Before the library frees it. */
void tap_object_remove(enum tap_object kind, word handle);
enum tap_object_state tap_object_state(enum tap_object kind, word handle);
/* After MPI_Finalize: what is left becomes leaks in the record. */
void tap_objects_report(struct record_head *head);

/* ---- comms.c ---- */

struct tap_comm {
    word handle;
    struct record_queue collectives, messages;
    uint32_t size, rank;
    uint32_t *world; /* the world ranks of its members */
    uint64_t id;
    uint64_t made;                 /* communicators that all of it has made from it */
    uint64_t number;               /* of its last collective */
    _Atomic uint64_t last_message; /* the same of messages */
    _Atomic uint32_t users;        /* 1, and requests that refer to it; 0: its slots are free */
};

/* MPI_COMM_WORLD and MPI_COMM_SELF, while the writer opens. */
void tap_comm_start(struct record_writer *w);
/* NULL: nothing is known about it, as about an intercommunicator. */
struct tap_comm *tap_comm_find(word handle);
/* The communicator that all of `parent` has made as the one with this number; `handle` is that of
 * the new one, MPI_COMM_NULL for a member of the parent that is not in it. */
void tap_comm_add(struct tap_comm *parent, uint64_t number, word handle);
/* The same of MPI_Comm_create_group, of which only the members of the new one know. */
void tap_comm_add_group(struct tap_comm *parent, int tag, word handle);
void tap_comm_remove(word handle);
void tap_comm_rename(struct tap_comm *comm, const char *name);
void tap_comm_use(struct tap_comm *comm);
void tap_comm_release(struct tap_comm *comm);

/* ---- requests.c ---- */

/* What a request of MPI is for: one operation, or the two of MPI_Isendrecv. */
struct tap_request {
    word handle;
    uint64_t use;          /* tells it from a later one with the same handle */
    struct tap_comm *comm; /* used, until the request is removed */
    uint8_t function;      /* enum mpi_function; 0: not known */
    uint8_t nparts;
    bool persistent, active, canceled;
    uint32_t posted[2];  /* handles of record_post */
    uint64_t entries[2]; /* operations of the record */
    uint64_t number;     /* of the collective, or of the last message */
    uint64_t made;       /* of the communicator that is made; 0: none */
    word newcomm;        /* where MPI stores its handle */
    uint64_t site;       /* of the call that made it */
    struct record_part parts[2];
};

/* Sets `use`. `old`: the request that had the handle; `function` is 0 if none had. */
void tap_request_add(struct tap_request *request, struct tap_request *old);
/* A copy. False: it is not known. */
bool tap_request_get(word handle, struct tap_request *out);
void tap_request_set(const struct tap_request *request); /* one that is there */
/* True: it was there, and its use of the communicator is the caller's to release. */
bool tap_request_remove(const struct tap_request *request);
/* A call that completes requests has failed: which of them it has completed is not known. */
void tap_requests_doubt(void);
/* As tap_objects_report. */
void tap_requests_report(struct record_head *head);

/* ---- a call that is being recorded, in the frame of the function ---- */

enum { TAP_FEW = 16, TAP_STATUS = 40 }; /* requests of one call that need no memory */

enum { TAP_MISTAKE_TEXT = 200 };

struct tap_call {
    const struct tap_function *function;
    word *args; /* may be changed: the library is called with them */
    bool recorded;
    bool mistaken; /* an argument is wrong: `mistake` says why */
    bool certain;  /* whatever the library does; else it is right if that accepts the call */
    bool wild;     /* a pointer is NULL, so the tap does not look at the arguments */
    struct record_writer *writer;
    struct record_thread *thread; /* NULL: nothing is written before the library has returned */
    struct tap_comm *comm;
    struct record_at at;
    struct tap_request request; /* what the call does, whether blocking or not */
    uint32_t n;                 /* requests of a completion */
    struct tap_request *requests;
    unsigned char *statuses; /* where the library stores them; NULL: nowhere */
    bool own_statuses;       /* from the heap */
    struct tap_request few[TAP_FEW];
    unsigned char status[TAP_FEW * TAP_STATUS];
    char mistake[TAP_MISTAKE_TEXT];
};

/* "MPI_Bcast" */
static inline const char *tap_name(const struct tap_function *f)
{
    return f->name + 1;
}

static inline word tap_argument(const struct tap_call *c, uint8_t at)
{
    return c->args[at - 1];
}
static inline int tap_int(const struct tap_call *c, uint8_t at)
{
    return (int)(uint32_t)c->args[at - 1];
}
/* A count; 0 if it is negative, which is an error that MPI reports. */
static inline uint64_t tap_count(const struct tap_call *c, uint8_t at)
{
    const int64_t count = c->function->large ? (int64_t)c->args[at - 1] : tap_int(c, at);
    return count > 0 ? (uint64_t)count : 0;
}

/* ---- checks.c ---- */

/* Sets the members about a mistake. c->comm is set. */
void tap_check(struct tap_call *c);
void tap_check_finalized(struct tap_call *c);
/* After MPI_Init. */
void tap_check_start(void);

/* ---- operations of the record ---- */

/* As record_queue_reserve: without an atomic addition, where one thread alone calls. */
static inline uint64_t tap_reserve(const struct record_writer *w, const struct record_queue *q)
{
    return q->entries ? record_count(w, &q->head->next) : RECORD_QUEUE_NONE;
}

/* ---- collectives.c ---- */

/* Numbers and signs a collective of c->comm and makes its mark; fills c->request. */
void tap_collective_begin(struct tap_call *c);
void tap_collective_end(const struct tap_request *r, enum record_state state);

/* ---- messages.c ---- */

/* The request of the call is known by this handle from now on. */
void tap_request_keep(struct tap_call *c, word handle);
/* Each returns false if the call passes through. */
bool tap_message_begin(struct tap_call *c); /* SEND, RECV, SENDRECV, INIT_MESSAGE, PROBE */
void tap_message_end(struct tap_call *c, int rc);
bool tap_wait_begin(struct tap_call *c); /* WAIT, TEST */
void tap_wait_end(struct tap_call *c, int rc);
bool tap_request_begin(struct tap_call *c); /* START, CANCEL, FREE_REQUEST */
void tap_request_end(struct tap_call *c, int rc);

/* ---- signals.c ---- */

/* MPI starts between the two: the handlers that are installed then are harmless. */
void tap_signals_begin(void);
void tap_signals_end(struct record_head *head);

/* ---- calls.c ---- */

/* Nothing is recorded any more. */
void tap_calls_stop(void);

/* False: tap_call_end need not be called. */
bool tap_call_begin(struct tap_call *c, const struct tap_function *f, word *args, void *site);
void tap_call_end(struct tap_call *c, int rc);

#endif

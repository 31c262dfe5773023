/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runner knows of each rank: its phase, its failure, its exit. Plain data, written by
 * run/frames.c, read by cause.c.
 */
#ifndef RUNNER_DIAGNOSE_RANKS_H
#define RUNNER_DIAGNOSE_RANKS_H

#include "base/desc.h"
#include "base/diag.h"
#include "base/record_view.h"
#include "base/wire.h"
#include "diagnose/snapshot.h"
#include "diagnose/stacks.h"
#include "diagnose/wait_report.h"

#include <sys/types.h>

/* ---- usage ----
 *
 * What a rank uses, as its agent last measured it (USAGE): CPU, memory, and the durations of its
 * operations in the last second, by group.
 */

struct usage_group {
    char name[64]; /* of a formation of this group; a name may be there twice */
    uint32_t operations;
    uint64_t sum_ns, longest_ns; /* of their durations, from call to end */
};

struct rank_usage {             /* all zero: not known */
    uint64_t cpu_us;            /* since the start of the process */
    uint64_t memory;            /* bytes */
    double cpu;                 /* CPUs that it used in the last second or so; -1: not known */
    uint64_t before_us;         /* cpu_us, at before_ns */
    uint64_t before_ns;         /* 0: none */
    struct usage_group *groups; /* owned */
    uint32_t n;
};

/* Decodes the payload of a USAGE frame. False: malformed; `u` is unchanged. */
bool usage_read(struct rank_usage *u, const struct wire_frame *f, uint64_t now_ns);
void usage_fini(struct rank_usage *u);

/* ---- forming ----
 *
 * The waits of a rank for other members that are no operations, such as the creation of a group and
 * collrun_finalize: the content of its FORMING frames.
 */

struct forming_wait {
    enum wire_forming kind;
    char name[64];             /* of the group; cut if it is longer */
    struct desc_ranks members; /* owned; world ranks */
    uint64_t since_ns;
};

struct rank_forming {
    struct forming_wait *items; /* owned */
    uint32_t n;
    struct forming_wait last; /* the one that ended last; without members: none has */
};

/* Adds or removes the formation of a FORMING frame that has just arrived. False: malformed, or out
 * of memory. */
bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns);
/* Adds a copy. */
void rank_forming_add(struct rank_forming *f, const struct forming_wait *w);
void rank_forming_fini(struct rank_forming *f); /* safe on a zeroed one */
/* "the split of group world", "collrun_finalize" */
const char *forming_text(enum wire_forming kind, const char *name, char *out, size_t size);
/* Same kind, name and members, in the same order. */
bool forming_is_same(const struct forming_wait *a, const struct forming_wait *b);
/* The wait for the same formation; NULL: none. */
const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like);

/* ---- ranks ---- */

struct rank_exception {                               /* that a program did not catch */
    char type[128], text[512], file[256], thread[64]; /* thread "": it ended the program */
    uint32_t line;
};

/* Ordered; the runner moves all ranks from one phase to the next together. */
enum rank_phase {
    PHASE_WAITING,
    PHASE_SPAWNED,
    PHASE_ATTACHED,
    PHASE_READY,
    PHASE_RUNNING,
    PHASE_DONE,
    PHASE_IDLE,
    PHASE_FINISHING
};

/* What a rank that runs a command has done with collrun, by the frames that its engine sends:
 *
 *   OUTSIDE --ATTACHED--> JOINING --READY--> MEMBER --DONE--> FINALIZING --IDLE--> FINALIZED
 *
 * A frame moves the rank forward only; one that is late or repeated changes nothing. Ranks that run
 * plugins stay outside: their phases say it. */
enum rank_part {
    PART_OUTSIDE,    /* it has not called collrun_init */
    PART_JOINING,    /* it is in collrun_init, which forms its groups */
    PART_MEMBER,     /* its groups have formed */
    PART_FINALIZING, /* it has called collrun_finalize, or its program has ended */
    PART_FINALIZED   /* collrun_finalize has returned */
};

/* Whether the process of a rank lives. Both ends are final: the connection to a lost host is
 * closed.
 *
 *   LIVES --EXITED, or it could not be started--> EXITED
 *   LIVES --its host is lost--> LOST */
enum rank_end { RANK_LIVES, RANK_EXITED, RANK_LOST };

/* Whether other ranks need more of a command that has exited with code 0, or closed its connection,
 * without collrun_finalize.
 *
 *   UNKNOWN --the others get RANK_LOST--> SENT --a rank failed by that--> EARLY */
enum rank_departure { DEPARTURE_UNKNOWN, DEPARTURE_SENT, DEPARTURE_EARLY };

/* What is known of the failure of a rank, beside how its process ended. The first one is final: it
 * has `failure` and the members after that.
 *
 *   NONE --FAILED of its engine, or collrun sees it leave or cannot start it--> REPORTED
 *   NONE --a time limit of its workload has passed--> OVERDUE */
enum rank_failure { FAILURE_NONE, FAILURE_REPORTED, FAILURE_OVERDUE };

struct rank_frame { /* the payload of the last frame of its kind; owned */
    void *bytes;
    size_t len;
};

struct rank_state {
    enum rank_phase phase;
    pid_t pid;
    enum rank_part part;           /* rank_advance_part */
    enum rank_end end;             /* rank_set_end */
    enum rank_departure departure; /* rank_advance_departure */
    bool command;                  /* it runs a command, not plugins */
    bool over;      /* it is finalizing because its program has ended with exit code 0 */
    bool dismissed; /* of a command in the background: collrun ends it, as all others are done */
    /* A command has these: the library of Open MPI, in which it is rank 0 of 1; how its MPI
     * process ended without MPI_Finalize. NULL: neither has been seen. */
    const char *singleton, *mpi_left;
    const char *detached; /* why it is no member any more although it runs; NULL: it is one */
    bool left_out;        /* it has failed, and the job continues without it */
    const char *devices;  /* ids of those it owns, with commas; NULL: not known yet */
    uint64_t started_ns, ended_ns;       /* when the agent reported its start and its exit */
    uint64_t attached_ns;                /* of a command: when it had called collrun_init */
    uint64_t first_failure_ns;           /* when the first sign of a failure arrived; 0 = none */
    enum rank_phase first_failure_phase; /* the phase it was in then */
    /* ABORT was sent to it before its first failure, which is therefore a consequence. */
    bool stop_requested;
    /* Before it ended, a call of it had failed because of another rank or of ABORT, or its agent
     * had sent it SIGTERM: a command that does not receive ABORT. */
    bool disturbed;
    /* Its last failed call, if it did not go on after that: then however it ended (by a status, a
     * code, a text, a signal) may be a consequence. Status 0: there is none. */
    struct record_view_failure why;
    bool killed;              /* collrun sent it SIGTERM or SIGKILL before it exited */
    enum rank_failure failed; /* rank_set_failure. Then the next six members are set; the last two
                                 may be without */
    struct diag failure;
    enum wire_subject subject; /* the subject of the text of `failure` */
    enum wire_phase failed_phase;
    uint32_t workload; /* index, or UINT32_MAX */
    char group[64];
    uint64_t operation; /* number in that group */
    /* Its last status; once stop_requested is set: the last one before the stop. */
    struct rank_snapshot snapshot;
    struct rank_frame status_frame;    /* `snapshot` is made of it */
    bool snapshot_final;               /* `snapshot` is not replaced any more */
    struct wait_report wait_report;    /* the calls that its threads are blocked in, if any */
    struct rank_frame waits_frame;     /* `wait_report` is made of it */
    struct rank_exception *exception;  /* owned; NULL: none */
    struct rank_frame exception_frame; /* `exception` is made of it */
    struct rank_forming forming;       /* groups that it waits to be formed */
    struct rank_stacks stacks; /* what its threads were doing when they were last asked for */
    char doing[400];           /* what it was doing when a time limit passed; "": not known */
    /* Its address and the connection without an answer, when they were last asked for (NETWORK);
     * of one rank of each host. "": not known, or none. */
    char address[64], network[256];
    char **warnings; /* owned: mistakes of its program that fail nothing, such as leaks */
    uint32_t nwarnings;
    struct rank_usage usage; /* what it uses, if that was asked for */
    void *record_bytes;      /* owned; its record after the failure of the job; NULL: not known */
    size_t record_len;
    struct stacks_site place; /* of its call that the verdict is about; address 0: not known */
    /* The same of each mistake in its record, in the arena of the run; NULL: none is known. */
    struct stacks_site *mistake_places;
    struct record_view record;            /* of these bytes */
    int status;                           /* of wait(2), if it has exited */
    uint64_t user_us, system_us, max_rss; /* CPU time; bytes */
    /* The last line on stderr of a command that exited with code 1 or 2, which says why in most
     * programs; "" = none. */
    char last_words[160];
    char memory[96]; /* the memory limit if the kernel killed it for lack of memory, else "" */
};

/* The transitions above. Each returns true if it has changed the state. */
bool rank_advance_part(struct rank_state *rank, enum rank_part part);
bool rank_set_end(struct rank_state *rank, enum rank_end end);
bool rank_set_failure(struct rank_state *rank, enum rank_failure failure);
bool rank_advance_departure(struct rank_state *rank, enum rank_departure departure);

/* Reads a STATUS or WAIT_REPORT and keeps its bytes as evidence. False: malformed. */
bool rank_read_status(struct rank_state *rank, const void *bytes, size_t len);
bool rank_read_waits(struct rank_state *rank, const void *bytes, size_t len);
/* An exception of the program replaces one of a thread. */
bool rank_read_exception(struct rank_state *rank, const void *bytes, size_t len);
/* Keeps a copy. False: it has RANK_WARNINGS. */
enum { RANK_WARNINGS = 32 };
bool rank_add_warning(struct rank_state *rank, const char *text);
/* "KeyError: 'wte.weight' (train.py:5)" */
const char *rank_exception_text(const struct rank_exception *e, char *out, size_t size);
/* Keeps a copy of a record. False: the bytes are no record; the rank has none then. */
bool rank_record_set(struct rank_state *rank, const void *bytes, size_t len);
void rank_record_fini(struct rank_state *rank); /* safe without a record */
void rank_state_fini(struct rank_state *rank);  /* frees what it owns */

/* Sets its last failed call: also the operation that it failed in, unless FAILED has named that. */
void rank_set_why(struct rank_state *rank, const struct record_view_failure *why);
/* The error message of the failed call that the end of the rank is about, or that of its end. */
const char *rank_failed_text(const struct rank_state *rank);
/* True if its workloads have ended, or its program has called collrun_finalize: it calls no more
 * operations. */
bool rank_has_ended(const struct rank_state *rank);
/* It had exited before the job began to stop. */
bool rank_is_gone(const struct rank_state *rank);
/* A rank that waits in `f` waits for this member: it does not wait there, and is not behind it. */
bool rank_is_awaited(const struct rank_state *rank, const struct forming_wait *f);
/* What it is doing, for a rank that runs: the operation in progress, the oldest if there are
 * several; else the call in which it waits for other ranks; else "outside any collective". And the
 * state of the process, if it explains a hang: ", stopped by a signal". */
void rank_describe(const struct rank_state *rank, char *out, size_t size);
/* How long it has been in it, or how long ago its last operation was called. False: it has called
 * none. *inside: it is in one. */
bool rank_age(const struct rank_state *rank, uint64_t now_ns, uint64_t *age_ns, bool *inside);
/* "in load_batch (data.c:88), asleep in read(3) of /data/x", by its stacks; else as
 * rank_describe. */
void rank_doing(const struct rank_state *rank, char *out, size_t size);
/* Before its stacks are looked at again. */
void rank_forget_look(struct rank_state *rank);
/* Sets rank->doing by its stacks, if they are known. */
void rank_set_doing(struct rank_state *rank);
/* "not started", "loading its plugins", ...: what a rank in this phase is doing. */
const char *rank_phase_text(const struct rank_state *rank, enum rank_phase phase);

#endif

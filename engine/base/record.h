/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder of a rank: its last operations, the state of its groups, and the calls that
 * its threads are in, in memory that the agent makes and the rank maps. The agent can read it while
 * the rank hangs, and after the rank was killed. The same bytes are a file of the run directory
 * (diag/rank-N.record).
 *
 * Layout: struct record_head, then these arrays, whose lengths are in the head:
 *
 *   struct record_module modules[nmodules]   executable files of the process, to resolve call sites
 *   struct record_group  groups[ngroups]     slots: one per open group and kind of queue
 *   struct record_marks  marks[nmarks]       of the slot with the same index; nmarks: ngroups or 0
 *   uint64_t             counts[ncounts]     ring: the counts of v-forms
 *   struct record_entry  entries[entries]    ring: the operations
 *   struct record_thread threads[nthreads]   threads that call; number 0 is not used
 *   uint32_t  waits[nthreads][RECORD_WAITS]  the requests that a thread waits for
 *   struct record_request requests[nrequests] open requests
 *   struct record_channel channels[nchannels] messages sent and received, by peer and tag
 *   struct record_line   lines[nlines]       ring: the last lines of the log (base/debug.h)
 *   struct record_mistake mistakes[nmistakes] what the program does wrong, and MPI lets pass
 *   uint32_t             members[nmembers]   lists of world ranks, to which groups point
 *
 * - Numbers are little-endian and of fixed size. There are no pointers.
 * - All times are ticks: see record_head. 0: not yet, or not kept (record_head.timed).
 * - The rank writes (record_queue.h) with plain stores and one atomic addition per operation, and
 *   never waits. It protects what must agree with sequence numbers: `version` of groups and
 *   entries, `checksum` of marks. record_view.h reads, from live memory and from files of any
 *   content.
 * - What a sequence number protects is written between a store that makes the number invalid, with
 *   a release fence behind it, and one that makes it valid, which is a release. The reader acquires
 *   the number, copies, and loads it again behind an acquire fence: if it is the same, the copy is
 *   of one moment. Other members are relaxed: each stands alone, and one that is out of date is
 *   read again at the next look.
 * - What a thread is in, its requests, channels and collectives (record_writer.h) change only while
 *   the word of the thread that writes them is odd: record_cut.h reads all of them of one instant.
 * - Operations of a group are numbered from 1 on each rank, collectives and messages separately. If
 *   `started` of a group is greater than `done`, the rank is inside operation number `started`.
 */
#ifndef ENGINE_BASE_RECORD_H
#define ENGINE_BASE_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_MAGIC "collrec7"

enum {
    RECORD_FD = 4, /* of collrun-engine */
    RECORD_MODULES = 64,
    RECORD_GROUPS = 512,
    RECORD_COUNTS = 16384,        /* 128 KiB */
    RECORD_ENTRIES = 4096,        /* the default of record.entries */
    RECORD_ENTRIES_MAX = 1 << 20, /* 64 MiB */
    RECORD_THREADS = 256,
    RECORD_WAITS = 64, /* of one thread; a longer list is cut */
    RECORD_REQUESTS = 4096,
    RECORD_CHANNELS = 8192,
    RECORD_MEMBERS = 1 << 18, /* 1 MiB */
    RECORD_LIBRARY = 32,
    RECORD_LINES = 128, /* 32 KiB */
    RECORD_MISTAKES = 32,
    RECORD_MARKS = 64,
    RECORD_STEP = 64 /* between the numbers of record_marks.steps */
};

#define RECORD_NUMBER_MAX (UINT64_C(1) << 62) /* of an operation; a greater one is damaged */

/* When something happened, for record_view_is_past. */
struct record_moment {
    uint64_t ns;     /* CLOCK_MONOTONIC */
    uint64_t next;   /* record_head.next: later operations have this index or a greater one */
    uint32_t thread; /* as in record_entry; 0: it is not known which */
    uint32_t reserved;
};

/* The last call of the rank that returned a status after which its group cannot be used: MISMATCH,
 * TIMEOUT, PEER_FAILED, ABORTED or BACKEND. How the rank ends soon after may be a consequence.
 * INVALID: a call of MPI has a wrong argument, and has not returned, or has returned an error. */
struct record_failure {
    _Atomic uint32_t version; /* odd while a thread writes; 0: there has been none */
    int32_t status;
    struct record_moment at;
    uint64_t number; /* of the operation in its group; 0: none */
    uint64_t site;   /* the return address of the call; 0: not known */
    char group[64];  /* may be cut, as the text may be; "" = none */
    char text[512];  /* of collrun_error() */
};

/* An exception that a program of Python has not caught; texts are terminated, and may be cut. */
struct record_exception {
    _Atomic uint32_t version; /* 0: there is none. Released after the rest. */
    uint32_t line;            /* 0: not known */
    char type[96], file[256], text[512];
    char thread[64]; /* the thread that it has ended; "": the program */
};

/* An operator of the caller (COLLRUN user_op), by which record_entry.tag names it. */
struct record_user_op {
    _Atomic uint32_t hash; /* of name, unit and commutativity; 0: not used. Released. */
    char name[60];
};
enum { RECORD_USER_OPS = 16 };

/* Which library writes the calls of the rank. */
enum record_tap {
    RECORD_TAP_NONE,
    RECORD_TAP_ENGINE,
    RECORD_TAP_MPI,
    RECORD_TAP_C10D,
    RECORD_TAP_NCCL
};

/* Its calls are those of a library, with numbers of base/mpi_names.h. */
static inline bool record_tap_has_functions(uint32_t tap)
{
    return tap == RECORD_TAP_MPI || tap == RECORD_TAP_C10D;
}

/* Why no library records the calls of a rank that runs a command: record_head.unobserved. The agent
 * or the library says so; the texts are those of unobserved_text (base/preload.h). */
enum record_unobserved {
    RECORD_UNOBSERVED_NONE,
    RECORD_UNOBSERVED_OFF,       /* observe: off */
    RECORD_UNOBSERVED_NO_TAP,    /* this host has no such library */
    RECORD_UNOBSERVED_PROGRAM,   /* its file cannot be read */
    RECORD_UNOBSERVED_STATIC,    /* it has no dynamic linker */
    RECORD_UNOBSERVED_SETUID,    /* it gets other rights, so the linker ignores LD_PRELOAD */
    RECORD_UNOBSERVED_MACHINE,   /* it is of another machine */
    RECORD_UNOBSERVED_LIBC,      /* its dynamic linker is not that of glibc */
    RECORD_UNOBSERVED_SANITIZER, /* its sanitizer must be the first library */
    RECORD_UNOBSERVED_TOOL,      /* another library stands in front of MPI */
    RECORD_UNOBSERVED_LIBRARY,   /* this MPI is not known */
    RECORD_UNOBSERVED_FORTRAN,   /* Fortran calls of Open MPI do not pass here */
    RECORD_UNOBSERVED_WORLD,     /* MPI_COMM_WORLD is not the job */
    RECORD_UNOBSERVED_MEMBER,    /* the program has called collrun_init */
    RECORD_UNOBSERVED_MEMORY,
    RECORD_UNOBSERVED_NO_CALL,  /* the libraries are there, and neither was initialized */
    RECORD_UNOBSERVED_RANKS,    /* the ranks of torch.distributed are not those of the job */
    RECORD_UNOBSERVED_ISOLATED, /* Python ignores PYTHONPATH, or loads no sitecustomize */
    RECORD_UNOBSERVED_COUNT
};

/* Which threads may call, as MPI_Init_thread agrees it. */
enum record_level {
    RECORD_LEVEL_MULTIPLE, /* any thread, at any time */
    RECORD_LEVEL_SERIALIZED,
    RECORD_LEVEL_FUNNELED /* and SINGLE: only record_head.init_thread */
};

/* What did not fit: bits of record_head.lost. */
enum record_lost {
    RECORD_LOST_THREADS = 1, /* a thread calls that has no slot: nothing of the rank is proven */
    RECORD_LOST_REQUESTS = 2,
    RECORD_LOST_CHANNELS = 4,
    RECORD_LOST_MEMBERS = 8
};

/* 4096 bytes, in pages; what the rank writes often begins at a cache line. The struct itself has no
 * such alignment, since readers keep copies of it. */
struct record_head {
    char magic[8];
    uint32_t nmodules, ngroups, nmarks, ncounts;
    uint32_t entries; /* a power of 2; 0: operations are not recorded */
    uint32_t rank;    /* world rank */
    uint32_t has_tsc; /* ticks are those of the CPU, else nanoseconds of CLOCK_MONOTONIC */
    uint32_t timed;   /* 1: `started` and `ended` of entries are kept; 0: nothing will show them */
    uint32_t nthreads, nrequests, nchannels, nmembers;
    /* CLOCK_MONOTONIC in ns = mono_ns0 + ((ticks - ticks0) * ticks_mult >> 32). The agent makes it
     * more exact with time: record_calibrate. */
    uint64_t mono_ns0, ticks0, ticks_mult;
    /* Who writes the calls of threads, and what is known about the process. */
    _Atomic uint32_t tap;         /* enum record_tap: 0: no library does */
    _Atomic uint32_t pid;         /* the process that does; before, that of the rank */
    _Atomic uint32_t epoch;       /* 2 * process images that have begun to; odd: one begins */
    _Atomic uint32_t level;       /* enum record_level */
    _Atomic uint32_t init_thread; /* tid; 0: not known, so any thread may call */
    _Atomic uint32_t finished;    /* 1: MPI_Finalize was entered: no call follows */
    _Atomic uint64_t harmless;    /* signals whose handlers cannot leave a call; bit 0: signal 1 */
    _Atomic uint64_t forgotten;   /* closed groups whose slots were used again */
    _Atomic uint32_t lost;        /* enum record_lost; only grows */
    uint32_t nlines;
    /* Relaxed additions: they hand out places. The version of an entry publishes the entry, and the
     * counts that it refers to; next_count is also the sequence number of older counts. */
    _Atomic uint64_t next;       /* entries ever begun; entry i is at [i % entries] */
    _Atomic uint64_t next_count; /* counts ever written; count i is at [i % ncounts] */
    char line[48];
    _Atomic uint32_t groups_used; /* all later slots have never been used */
    /* Released after the modules. The other is the number of the last thread that has a slot. */
    _Atomic uint32_t modules_used, threads_used;
    _Atomic uint32_t next_slot;    /* of those that are used again */
    _Atomic uint64_t modules_seen; /* how many the dynamic linker had loaded in all */
    /* All later ones have never been used. */
    _Atomic uint32_t requests_used, channels_used, members_used;
    /* The tids of threads that the library has made; they make no calls. 0: none. */
    _Atomic uint32_t library[RECORD_LIBRARY];
    /* 1: the job stops, and a call has returned that to the rank; how the rank ends may be a
     * consequence. */
    _Atomic uint32_t disturbed;
    /* In a rank that runs a command, the process that has called collrun_init; 0: none has. */
    _Atomic uint32_t member;
    /* 1: the program has closed the connection to the agent. */
    _Atomic uint32_t closed;
    /* The workload whose thread has crashed or called exit: its index + 1; 0: not known. */
    _Atomic uint32_t ended_by;
    /* The workloads that are in their fini: bit INDEX, of those below 64; and when the last one
     * has entered it (CLOCK_MONOTONIC, ns). */
    _Atomic uint64_t in_fini, fini_since_ns;
    struct record_failure failure;
    struct record_user_op user_ops[RECORD_USER_OPS]; /* the first ones that were used */
    _Atomic uint64_t next_line; /* lines ever begun; line i is at [i % nlines] */
    /* What the rank logs (base/debug.h): the agent writes both before the rank starts. */
    uint64_t debug_areas, debug_start_ns;
    char library_name[48];       /* whose calls are recorded: "MPICH 5.0.2"; may be cut */
    _Atomic uint32_t unobserved; /* enum record_unobserved */
    _Atomic uint32_t callbacks;  /* 1: drivers may call functions of the program, so any thread that
                                    sleeps may be woken */
    uint32_t nmistakes;
    _Atomic uint32_t
        mistakes_used; /* relaxed: the state of each publishes it; may exceed nmistakes */
    struct record_exception exception;
    char padding[4096 - 352 - 4 * RECORD_LIBRARY - sizeof(struct record_failure) -
                 RECORD_USER_OPS * sizeof(struct record_user_op) - sizeof(struct record_exception)];
};

/* An executable segment of a file: [start, end) holds its code; ADDRESS - base is the offset that
 * symbolizers take. From RECORD_PYTHON_SITE on, a file of Python: ADDRESS - base is a line. */
#define RECORD_PYTHON_SITE (UINT64_C(1) << 63)
struct record_module {
    uint64_t start, end, base;
    char path[232]; /* terminated; the end of a path that is too long */
};

enum record_group_state {
    RECORD_GROUP_FREE,
    RECORD_GROUP_OPEN,
    RECORD_GROUP_OPENING,
    RECORD_GROUP_CLOSED,  /* its last state, until the slot is used again */
    RECORD_GROUP_FORMING, /* its members are calling what makes it: it is of use to proofs alone */
    RECORD_GROUP_FORMED   /* such a slot, closed: of use to proofs alone, until it is used again */
};

/* What was called, as one word that is written at once: root or peer are its low 32 bits. */
#define RECORD_WHAT_KIND 32 /* its bits, from here on */
#define RECORD_WHAT_DTYPE 40
#define RECORD_WHAT_OP 48
#define RECORD_WHAT_STATE 56

/* 256 bytes. */
struct record_group {
    /* enum record_group_state. Released after the last store to the slot as it is opened or closed;
     * the thread that uses a closed slot again acquires it. */
    _Atomic uint32_t used;
    _Atomic uint32_t version; /* odd while the rank writes the current operation */
    char name[64];            /* may be cut */
    char scope[64];           /* equal for all members, and unique in the job: "NAME#GENERATION:
                                 HASH"; a hash and the end of it, if it is longer */
    uint32_t members, rank;   /* how many; of this process among them */
    uint32_t messages;        /* 1: the slot is about messages, which have no marks */
    uint32_t check;           /* enum collrun_check */
    uint64_t first;           /* head.next when it was opened: older entries are of other groups */
    /* The current operation. */
    uint64_t started;
    _Atomic uint64_t done; /* the highest number that has ended */
    uint64_t bytes;
    uint64_t since; /* ticks, when `started` last grew */
    uint64_t count;
    union {
        struct {
            int32_t root_or_peer; /* -1: none */
            uint8_t kind, dtype, op /* OP_USER: an operator of the caller */, reserved;
        };
        uint64_t what;
    };
    _Atomic int32_t status; /* the first error of the group, which every later call gets; 0: none */
    uint32_t generation;    /* how often the slot has been used */
    /* What names the group to other ranks: equal on all members, and unique in the job. 0: calls on
     * it are OPAQUE. */
    uint64_t id;
    /* Collectives begun: counted before the library is called. While a slot is CLOSED, id and count
     * remain. */
    _Atomic uint64_t called;
    uint32_t members_at; /* where its `members` world ranks begin in members[]; RECORD_RANGE */
    uint32_t nremote;    /* of an intercommunicator: its remote members follow the own ones */
    uint32_t unordered;  /* 1: messages of one sender may be received in another order */
    char padding[12];
};

/* In record_group.members_at: there are only two numbers, the first world rank and the step from
 * each to the next one. */
#define RECORD_RANGE 0x80000000u

/* What ranks must agree about, after the calls up to a number. A mark of another number, of an
 * earlier group of the slot, and one that the rank has written into at random, has a wrong
 * checksum: damaged memory is not taken for a rank that disagrees. */
struct record_mark {
    _Atomic uint64_t checksum; /* 0: not written yet, or being written */
    uint64_t signature;        /* equal on all members: rolling hash of what all must call alike */
    uint64_t pairs;            /* the sum over all members is 0 (mod 2^64): what each sends to each
                                  peer in v-forms, less what it expects from each */
    uint64_t called;           /* ticks, when the operation was called */
};

/* The checksum of the mark of operation `number`, in the group of this generation; never 0. */
static inline uint64_t record_mark_checksum(const struct record_mark *m, uint64_t number,
                                            uint32_t generation)
{
    __extension__ const unsigned __int128 product =
        (unsigned __int128)((m->signature + number) ^ 0x9e3779b97f4a7c15u) *
        ((m->pairs + m->called + generation) ^ 0xc4ceb9fe1a85ec53u);
    return ((uint64_t)product ^ (uint64_t)(product >> 64)) | 1;
}

/* 4096 bytes. */
struct record_marks {
    struct record_mark recent[RECORD_MARKS]; /* by number % 64 */
    struct record_mark steps[RECORD_MARKS];  /* of multiples of 64, by number / 64 % 64 */
};

enum record_state {
    RECORD_POSTED = 1, /* a request that no backend has begun */
    RECORD_STARTED,
    RECORD_DONE,
    RECORD_FAILED,
    RECORD_ABORTED, /* because another rank or another operation failed */
    RECORD_CANCELED /* a receive, by collrun_cancel */
};

#define RECORD_NO_COUNTS UINT32_MAX

/* 64 bytes: a cache line. */
struct record_entry {
    _Atomic uint32_t version; /* of entry i: 2 * i + 1 while it is written, then 2 * i + 2 */
    uint16_t group;           /* slot */
    uint16_t thread;          /* index of head.threads */
    union {
        struct {
            int32_t root_or_peer;    /* a rank of the group; -1: none */
            uint8_t kind, dtype, op; /* as in record_group */
            _Atomic uint8_t state;   /* enum record_state; an end is released */
        };
        uint64_t what;
    };
    uint32_t number; /* the low 32 bits */
    uint32_t
        tag; /* messages; of an operator of the caller, its record_user_op.hash; v-forms: the low 32
                bits of the index of their counts, or RECORD_NO_COUNTS. counts[tag] is how many this
                rank sends | how many it expects << 32; these follow, the sent ones first. */
    uint64_t count; /* v-forms: what this rank contributes */
    uint64_t called, started;
    _Atomic uint64_t ended;
    uint64_t site; /* the return address of the function of collrun.h; 0: not known */
};

/* ---- the calls of threads: record_writer.h writes, record_cut.h reads ---- */

/* record_thread.word is 4 * calls + phase. What stands between two odd phases is being written. */
enum record_phase { RECORD_OUTSIDE, RECORD_ENTERING, RECORD_INSIDE, RECORD_LEAVING };

/* What a thread waits for. */
enum record_mode {
    RECORD_NONE, /* the call does not block */
    RECORD_ALL,  /* each of its operations and requests */
    RECORD_ANY   /* one of its requests */
};

/* Kinds of record_op beside those of enum collrun_kind. */
enum record_kind {
    RECORD_NEIGHBORS = 250, /* a neighborhood collective: needs the members that its counts name */
    RECORD_FORM,            /* a group forms, or makes another one: needs all members */
    RECORD_FINALIZE,
    RECORD_OPAQUE, /* may return at any time: nothing is known about it */
    RECORD_PROBE = 255
};

enum {
    RECORD_SYNC = 1, /* record_op.flags: a send that cannot complete before it is received */
    RECORD_ANY_RANK = -1
};
#define RECORD_ANY_TAG UINT32_MAX

/* 32 bytes: an operation that may have to wait for other ranks. */
struct record_op {
    uint8_t kind, flags, dtype, op;
    uint16_t group;      /* slot */
    uint16_t generation; /* of the slot, the low bits */
    int32_t peer;        /* world rank of the root, source or destination; RECORD_ANY_RANK */
    uint32_t tag;        /* messages; v-forms: where their counts begin, as in record_entry */
    union {
        uint64_t number; /* collectives: how many of the group this rank has called, with it */
        uint64_t order;  /* sends: at least so many of this thread precede it on its channel */
        uint64_t post;   /* receives: the place among all that this thread has posted */
        uint64_t takes;  /* probes: messages that the process had received when it began */
    };
    uint64_t count; /* elements of this rank; 0: the call needs no other rank, unless a barrier */
};

/* 128 bytes, written by its thread alone. */
struct record_thread {
    _Atomic uint32_t word;
    _Atomic uint32_t tid;
    uint8_t mode;                   /* enum record_mode */
    uint8_t nops;                   /* 0 to 2: sendrecv has two */
    uint16_t nwaits;                /* how many of its requests are listed */
    uint32_t cut;                   /* requests that it waits for and that are not listed */
    _Atomic uint64_t takes;         /* messages that this thread has received */
    uint64_t posted;                /* receives that it has posted */
    uint64_t since, deadline, site; /* ticks; deadline 0: none */
    uint64_t number;                /* of its messages, as in record_entry; 0: not known */
    struct record_op ops[2];
};

/* record_request.state: these, and above them how often the slot has been used, which the handle of
 * a request holds, too. */
enum record_request_state {
    RECORD_FREE,
    RECORD_OPEN,
    RECORD_WITHDRAWN, /* MPI_Cancel: it may complete at any time */
    RECORD_ABANDONED  /* freed, or its call was left: it may still match a message */
};
/* A handle is slot + RECORD_HANDLE_SLOT * use. */
#define RECORD_HANDLE_SLOT 4096u
#define RECORD_HANDLE_USES (1u << 20)

/* 64 bytes: a nonblocking operation, or a persistent one that was started. */
struct record_request {
    _Atomic uint32_t state; /* enum record_request_state + 4 * use */
    uint16_t thread, reserved;
    uint64_t since, site, number; /* as in record_thread */
    struct record_op op;
};

#define RECORD_FOLDS 8u /* channels that all further tags of a peer share */

/* 64 bytes: both directions between this rank and a peer with one tag in one group. */
struct record_channel {
    union {
        struct {
            uint16_t group;
            uint16_t folded;     /* 1: `tag` is record_fold() of several tags */
            uint32_t generation; /* of the slot of the group */
        };
        uint64_t of;
    };
    union {
        struct {
            uint32_t peer, tag;
        };
        uint64_t to;
    };
    /* Begun: counted before the library is called; and received: counted after it has returned. The
     * first thread that sends, and the first one that receives, counts alone, without an atomic
     * addition; all others count together. */
    _Atomic uint64_t sent, taken, sent_by_others, taken_by_others;
    _Atomic uint16_t sender, taker; /* the first ones; 0: none has */
    _Atomic uint16_t unordered;     /* 1: a send was canceled */
    char padding[10];
};

#define RECORD_LINE_BUSY UINT64_MAX
/* 256 bytes: a line of the log of the rank, without its newline. */
struct record_line {
    _Atomic uint64_t version; /* of line i: i + 1; BUSY while it is written. Released. */
    char text[248];           /* terminated; may be cut */
};

/* What a mistake is about. */
enum record_mistake_kind {
    RECORD_MISTAKE_NONE, /* the place is free, or is being written */
    RECORD_MISTAKE_CALL, /* an argument that the standard forbids, and the library accepts */
    RECORD_MISTAKE_LEAK  /* an object or a request is still there in MPI_Finalize */
};
/* 256 bytes: one or several of one call in the source. */
struct record_mistake {
    _Atomic uint32_t kind;  /* released */
    _Atomic uint32_t times; /* relaxed */
    uint64_t site;          /* the return address of the call */
    char text[240];         /* terminated; may be cut */
};

/* A condition that proofs of deadlock need. tests/mutation compiles this with one that is false. */
#ifndef RECORD_RULE
#define RECORD_RULE(condition) true
#endif

static inline uint32_t record_fold(uint32_t tag)
{
    return (uint32_t)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 61) % RECORD_FOLDS;
}

/* Where the arrays begin, for the lengths in `head`; .size: of all. */
struct record_layout {
    size_t modules, groups, marks, counts, entries, threads, waits, requests, channels, lines,
        mistakes, members;
    size_t size;
};
struct record_layout record_layout(const struct record_head *head);

/* The agent makes new memory for a rank, with a ring for `entries` operations: 0, or a power of 2
 * up to RECORD_ENTRIES_MAX. Returns its memory file, or -errno. */
int record_make(uint32_t rank, uint32_t entries);
/* The agent or the rank maps it; NULL: it is not there, or not of this build. */
struct record_head *record_map(int fd);
void record_unmap(struct record_head *head, size_t len); /* NULL: no effect */
/* The length of the memory behind a new head. The agent keeps it: a rank that writes at random may
 * change the lengths in the head later. */
size_t record_len(const struct record_head *head);
/* Sets ticks_mult by the time since record_make. The agent or the rank calls it before it reads
 * times. */
void record_calibrate(struct record_head *head);

/* CLOCK_MONOTONIC in ns. */
uint64_t record_mono_ns(void);

/* One of the threads that the library has made. */
static inline bool record_is_library(const struct record_head *head, uint32_t tid)
{
    bool found = false;
    for (uint32_t i = 0; i < RECORD_LIBRARY; i++)
        found = found || atomic_load_explicit(&head->library[i], memory_order_relaxed) == tid;
    return found;
}

/* The present time. A reading takes up to 30 ns on virtual machines. */
static inline uint64_t record_ticks(const struct record_head *head)
{
#if defined __x86_64__
    if (head->has_tsc)
        return __builtin_ia32_rdtsc();
#endif
    (void)head;
    return record_mono_ns();
}

/* The present time, if that of a begin or an end is kept; else 0. */
static inline uint64_t record_ticks_if_timed(const struct record_head *head)
{
    return head->timed ? record_ticks(head) : 0;
}

#endif

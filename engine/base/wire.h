/* SPDX-License-Identifier: Apache-2.0
 *
 * The control protocol: frames on a byte stream. It is the same between rank and agent (a
 * socketpair) and between agent and runner (any transport).
 *
 *  - A frame is a 16-byte head {u32 payload length, u16 type, u16 0, u32 rank, u32 attempt},
 *    little-endian, then the payload, written and read with base/buf.h.
 *  - `rank` is the world rank of the sender or receiver of a frame; WIRE_HOST is the host.
 *  - The agent relays the types that it does not handle, in both directions, without reading them.
 *
 * Happy path:
 *
 *   rank                       agent                       runner
 *    |                           |------- HELLO ------------->|  the build must match
 *    |                           |<------ JOB ----------------|  struct desc, index of this host
 *    |<-- fork, exec, WELCOME ---|------- SPAWNED ----------->|  pid, or why there is none
 *    |---- ATTACHED ----------------------------------------->|  plugins are loaded
 *    |---- JOIN, PUT, GET, FENCE ---------------------------->|  groups form, in file order
 *    |<--- REPLY, FENCED -------------------------------------|
 *    |---- READY -------------------------------------------->|  groups are open, init returned
 *    |<--- GO ------------------------------------------------|  all ranks are ready: run
 *    |---- DONE --------------------------------------------->|  foreground workloads returned 0
 *    |<--- STOP_BACKGROUND -----------------------------------|  all ranks are done
 *    |---- IDLE --------------------------------------------->|  no workload runs on this rank
 *    |<--- FINISH --------------------------------------------|  close groups, exit
 *    | exits                     |------- EXITED ------------>|  wait status, resources
 *
 * Failure modes:
 *  - A rank fails: it sends FAILED and exits without waiting; the runner sends ABORT to all others.
 *  - A stream carries bytes that are not a frame: wire_next fails, and the reader closes it.
 */
#ifndef ENGINE_BASE_WIRE_H
#define ENGINE_BASE_WIRE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/record_view.h"

#define WIRE_MAGIC "collrun-wire"
enum {
    WIRE_VERSION = 1,
    WIRE_HEAD_LEN = 16,
    WIRE_MAX_PAYLOAD = 64 << 20,
    WIRE_STDIN_WINDOW = 256 << 10,
    WIRE_CONTROL_FD = 3 /* of collrun-engine: its end of the socketpair */
};
#define WIRE_HOST UINT32_MAX
/* Flags of a group in AUDIT. STRICT: it has `check: strict`. ENDED: the rank calls no more in the
 * group; DESTROYED: since it has closed it, and runs. */
enum { WIRE_AUDIT_ENDED = 1, WIRE_AUDIT_STRICT = 2, WIRE_AUDIT_DESTROYED = 4 };

/* The payload of each type stands beside it, or its fields in base/wire_fields.h. */
enum wire_type {
    /* ---- agent -> runner ---- */

    WIRE_HELLO = 1,
    WIRE_SPAWNED,
    WIRE_EXITED,
    WIRE_OUTPUT,
    WIRE_HEARTBEAT,
    WIRE_HOST_ERROR,
    /* empty: every rank of this host has exited, and no process of the job is left on it */
    WIRE_BYE,
    /* What a rank is doing, read from its record: u8 process state (as in /proc, 0 = gone), u32
     * record_head.ended_by, u64 in_fini, u64 ns since the last workload has entered its fini, u32
     * n, n x {str group, u64 started, u64 done, u64 bytes, u64 age ns, u64 count, u32 root or peer,
     * u8 kind, u8 dtype, u8 op, str scope, u32 members, u32 rank in the group, u8 messages, u32 n,
     * n x pending operation, oldest first {u64 number, u64 age ns, u64 ns since the last call of
     * its thread, u64 count, u32 root or peer, u32 tag, u8 kind, u8 dtype, u8 op, u64 address of
     * the call or 0}}. Answers QUERY, and precedes the EXITED of a rank that failed. */
    WIRE_STATUS,
    WIRE_EXAMINED,
    WIRE_PROBED,
    /* Marks of the collectives of a rank (base/record.h): u32 n, n x {str scope, str group, u32
     * members, u64 collectives called, u64 completed, u32 status of the group, u8 WIRE_AUDIT_...,
     * u32 n, n x {u64 number, in ascending order, u64 signature, u64 pairs, u64 ns of
     * CLOCK_MONOTONIC when it was called, 0: not known}}. Those of a rank that has ended precede
     * its IDLE or EXITED. */
    WIRE_AUDIT,
    WIRE_STACKS = 12,
    /* Answers READ_RECORDS, for one rank: a copy of its record (base/record.h) to the end. Without
     * READ_RECORDS it precedes BYE: a rank may have failed, or its last calls may be wrong. */
    WIRE_RECORDS = 13,
    /* empty: the program of a rank that runs a command has been executed. It precedes all OUTPUT of
     * the rank. The rank counts as ready. */
    WIRE_STARTED = 14,
    WIRE_MASTER = 15,
    /* The operations of a rank that have ended since the last one (base/trace_op.h). All of them
     * precede its EXITED. Only if desc.trace is set. */
    WIRE_TRACE = 16,
    /* Answers MEASURE, for one rank: u64 CPU time in us and u64 bytes of memory (RSS) of its
     * process; u32 n, n x {str group, u32 operations that its record holds and that ended within
     * the last second, u64 the sum of their durations in ns, u64 the longest of them} */
    WIRE_USAGE = 17,

    WIRE_STDIN_TAKEN = 19,
    WIRE_MPI = 20,
    WIRE_PLACED = 21,

    WIRE_DETACHED = 23,
    WIRE_NETWORK = 24,
    WIRE_DEBUG_LINES = 25,
    /* Cuts of ranks of this host (base/cut_frame.h). Those of a rank that has ended precede its
     * EXITED. */
    WIRE_SNAPSHOT = 26,

    /* ---- runner -> agent ---- */

    WIRE_JOB = 32,
    WIRE_SIGNAL,
    WIRE_CREDIT,
    WIRE_MULTICAST,
    /* empty: kill every rank now, send BYE, exit */
    WIRE_QUIT,
    WIRE_KEEPALIVE,
    WIRE_EXAMINE,
    WIRE_PROBE,
    /* empty: send the STATUS of every rank */
    WIRE_QUERY,
    /* empty: send the RECORDS of every rank, also of those that have exited */
    WIRE_READ_RECORDS = 44,
    WIRE_READ_STACKS = 45,
    /* empty: send the USAGE of every rank that runs */
    WIRE_MEASURE = 47,

    WIRE_STDIN = 49,
    WIRE_WINDOW = 51,
    WIRE_PLACE = 53,
    WIRE_DEBUG = 55,
    WIRE_LOOK = 56,

    /* ---- rank -> runner, relayed ---- */

    WIRE_ATTACHED = 64,
    WIRE_READY, /* empty */
    WIRE_DONE,
    WIRE_IDLE, /* empty */
    WIRE_FAILED,
    WIRE_LOG,
    WIRE_PROGRESS,
    WIRE_METRIC,
    WIRE_JOIN,
    WIRE_PUT,
    WIRE_GET,
    WIRE_FENCE,
    WIRE_LEAVE,
    WIRE_AGREE,
    /* The threads of the rank have been blocked for a while, in these calls: u8 certain: no other
     * thread can make progress; u8 a thread that made calls before is in none, and not idle; u32 n,
     * n x {u32 thread, str scope, u64 number, u64 time-out ns, u8 kind, u8 dtype, u8 op, u8 may
     * complete without its receiver, u64 count, or the id of a KIND_CREATE, u32 world rank of the
     * peer or WIRE_HOST, u32 tag, u64 of a send: how many of its thread
     * precede it with its peer and tag; of a receive: its place among those of its thread};
     * u32 n, n x {str scope, str group, u64 collectives called, u64 splits called, u32 n, n x u32
     * members if a thread waits in it, u32 n, n x open receive {u8 kind, u32 peer, u32 tag, u32
     * thread or 0, u64 its place}, u8 messages were not counted, u32 n, n x {u32 peer, u32 tag, u64
     * sent, u64 received}}; u8 not all of what follows is listed, u32 n, n x {u64 id of a creation,
     * u64 times} */
    WIRE_WAIT_REPORT,
    /* The rank waits for the other members of a group, outside of operations: u8 0: it does not any
     * more; u8 enum wire_forming; str name of the group, u64 ns that it has waited, u32 n, n x u32
     * world ranks of the members */
    WIRE_FORMING,
    WIRE_EXCEPTION,

    /* ---- runner -> rank, relayed ---- */

    WIRE_REPLY = 96,
    WIRE_FENCED,
    WIRE_GO,              /* empty */
    WIRE_STOP_BACKGROUND, /* empty */
    WIRE_FINISH,          /* empty */
    WIRE_RANK_LOST,
    WIRE_ABORT,

    /* ---- between rank and agent only ---- */

    WIRE_WELCOME = 128
};

enum { WIRE_LOG_IN_VERDICT = 0x80 };

/* What the members of a group do together, besides operations. */
enum wire_forming {
    WIRE_FORMING_CREATE,
    WIRE_FORMING_SPLIT,
    WIRE_FORMING_SHRINK,
    WIRE_FORMING_FINALIZE, /* a program waits for the others to end, too */
    WIRE_FORMING_KINDS
};

enum wire_phase {
    WIRE_PHASE_LOAD,
    WIRE_PHASE_GROUPS,
    WIRE_PHASE_INIT,
    WIRE_PHASE_RUN,
    WIRE_PHASE_FINI
};

/* What WIRE_MPI is about. */
enum wire_mpi {
    WIRE_MPI_LEFT,      /* its MPI process has ended without MPI_Finalize; the text says how */
    WIRE_MPI_SINGLETON, /* Open MPI came up as rank 0 of 1; the text is the library */
    WIRE_MPI_NO_SPAWN   /* it has called MPI_Comm_spawn */
};

/* The subject of a failure's text. A text about a workload names it; other texts do not. */
enum wire_subject { WIRE_SUBJECT_RANK, WIRE_SUBJECT_WORKLOAD };

struct wire_frame {
    uint16_t type;
    uint32_t rank, attempt;
    const unsigned char *payload; /* borrowed from the input buffer until it is fed or consumed */
    size_t len;
};

/* Appends a frame. */
void wire_put(struct buf *out, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
              size_t len);
/* Writes a payload in place: all bytes put into `out` between the two calls. wire_begin returns the
 * mark for wire_end. */
size_t wire_begin(struct buf *out, uint16_t type, uint32_t rank, uint32_t attempt);
void wire_end(struct buf *out, size_t mark);

/* Reads the next whole frame at the front of `in`; the caller consumes it with wire_next_done after
 * use. 1 = a frame, 0 = more bytes are needed, negative = the bytes are not this protocol. */
int wire_next(const struct buf *in, struct wire_frame *frame, struct diag *d);
void wire_next_done(struct buf *in, const struct wire_frame *frame);

/* A diag as part of a payload. File names are copied into `arena`; NULL: every location is taken to
 * be in the job file. */
void wire_put_diag(struct buf *out, const struct diag *d);
void wire_read_diag(struct reader *r, struct arena *arena, struct diag *d);
/* A failed call: i32 status, u64 number, str group, str text; NULL: none, status 0. */
void wire_put_failure(struct buf *out, const struct record_view_failure *f);
void wire_read_failure(struct reader *r, struct record_view_failure *f);

/* What the handler of a frame could not read: INVALID, "malformed WHAT"; or NO_MEMORY, "out of
 * memory for the WHAT", if an allocation has failed since the frame arrived. By errno, in which
 * malloc leaves ENOMEM, and which conn resets for each frame: readers and arenas say only that they
 * failed. Returns the code. */
int wire_malformed(struct diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name for error messages: "FENCE". */
const char *wire_type_name(uint16_t type);

/* The type and the fields of a frame, for a log: `ABORT status=-9 culprit=3 text="..."`; of a type
 * without a codec, and of secrets, only the length. Texts are cut. */
void wire_print(const struct wire_frame *f, char *out, size_t size);
/* Logs a frame that was received from a peer, or put between wire_begin and wire_end; but no
 * OUTPUT.
 */
void wire_debug_received(const char *peer, const struct wire_frame *f);
void wire_debug_sent(const char *peer, const struct buf *out, size_t mark);

#endif

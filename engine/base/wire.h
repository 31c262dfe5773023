/* SPDX-License-Identifier: Apache-2.0
 *
 * The control protocol: frames on a byte stream, the same between rank and agent (a socketpair) and
 * between agent and runner (whatever the transport is). A frame is a 16-byte head {u32 payload
 * length, u16 type, u16 0, u32 rank, u32 attempt}, little-endian, then the payload, written and
 * read with base/buf.h. `rank` is the world rank that a frame comes from or goes to; WIRE_HOST
 * means the host itself. The agent relays what it does not handle, in both directions, without
 * looking inside.
 *
 * A rank that fails sends FAILED and exits without waiting; the runner answers with ABORT to all
 * others. Without failures:
 *
 *   rank                       agent                       runner
 *    |                           |------- HELLO ------------->|  who I am; the build must match
 *    |                           |<------ JOB ----------------|  struct desc, which host this is
 *    |<-- fork, exec, WELCOME ---|------- SPAWNED ----------->|  a pid, or why there is none
 *    |---- ATTACHED ----------------------------------------->|  plugins are loaded
 *    |---- JOIN, PUT, GET, FENCE ---------------------------->|  groups form, in file order
 *    |<--- REPLY, FENCED -------------------------------------|
 *    |---- READY -------------------------------------------->|  groups are open, init is over
 *    |<--- GO ------------------------------------------------|  all ranks are ready: run
 *    |---- DONE --------------------------------------------->|  its foreground ones returned 0
 *    |<--- STOP_BACKGROUND -----------------------------------|  all ranks are done
 *    |---- IDLE --------------------------------------------->|  nothing runs here any more
 *    |<--- FINISH --------------------------------------------|  close groups, exit
 *    | exits                     |------- EXITED ------------>|  wait status, resources
 */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

#define WIRE_MAGIC "collrun-wire"
enum {
    WIRE_VERSION = 1,
    WIRE_HEAD_LEN = 16,
    WIRE_MAX_PAYLOAD = 64 << 20,
    WIRE_CONTROL_FD = 3 /* of collrun-engine: its end of the socketpair */
};
#define WIRE_HOST UINT32_MAX

enum wire_type {
    /* agent -> runner */
    WIRE_HELLO = 1, /* str magic, u32 version, str build id, str host name, u32 pid, u32 cpus, str
                       machine (equal where processes share one network stack), u64 realtime ns */
    WIRE_SPAWNED,   /* u32 pid, str UUIDs of its GPUs, with commas; pid 0 = failed: then diag */
    WIRE_EXITED,    /* u32 wait status, u64 user us, u64 system us, u64 max rss bytes, str how much
                       memory there was, if the kernel killed it for lack of it, else ""; output has
                       been sent before it */
    WIRE_OUTPUT,    /* u8 stream (1 stdout, 2 stderr), u64 realtime ns, bytes to the end */
    WIRE_HEARTBEAT, /* empty */
    WIRE_TROUBLE,   /* diag: the host cannot go on */
    WIRE_BYE,       /* empty: every rank is gone, nothing is left on this host */
    WIRE_SEEN, /* what a rank is doing, from its record: u8 process state (as /proc says, 0 = gone),
                  u32 n, n x {str group, u64 started, u64 done, u64 bytes, u64 age ns, u64 count,
                  u32 root or peer, u8 kind, u8 dtype, u8 op}; before EXITED, and after LOOK */

    WIRE_EXAMINED, /* answers EXAMINE: str address, str interface, u16 port that it listens on
                      there, diag (code 0: none), u32 GPUs that it has to give, str words about
                      them, u32 n, n x blob: what the engine says of each */
    WIRE_PROBED,   /* answers PROBE: u32 n, n x str: "" or why there is no connection */

    /* runner -> agent */
    WIRE_JOB = 32, /* u32 host index, str engine path ("" = beside the agent), u8 all hosts are one
                      machine, blob desc */
    WIRE_SIGNAL,   /* u32 signal: to every process of the addressed rank, or of all (WIRE_HOST) */
    WIRE_CREDIT,   /* u32 bytes of OUTPUT that were written out: the agent may send as many more */
    WIRE_MANY, /* u32 count, u32 ranks..., u16 type, payload to the end: one frame for several ranks
                  of this host */
    WIRE_QUIT, /* empty: stop every rank now, say BYE, exit */
    WIRE_ALIVE, /* u32 milliseconds: the runner is there; if nothing comes for so long, it is lost,
                   or the connection is; 0: silence means nothing */
    WIRE_EXAMINE, /* str interface, u8 all hosts are one machine, u32 n, n x str KIND:PATH of
                     plugins */
    WIRE_PROBE,   /* u32 n, n x {str address, u16 port}: connect to each */
    WIRE_LOOK,    /* empty: answer with SEEN for every rank */

    /* rank -> runner, relayed */
    WIRE_ATTACHED = 64, /* u32 pid */
    WIRE_READY,         /* empty */
    WIRE_DONE,          /* empty */
    WIRE_IDLE,          /* empty */
    WIRE_FAILED, /* u32 workload index or UINT32_MAX, u32 phase (enum wire_phase), str group or "",
                    u64 operation number, diag */
    WIRE_LOG,    /* u8 level, str text */
    WIRE_PROGRESS, /* u32 workload, u64 done, u64 total, str what */
    WIRE_METRIC,   /* u32 workload, str name, u64 bits of the double */
    WIRE_JOIN,     /* str scope, str group, u64 timeout ns, u32 n, n x u32 world ranks, str identity
                      (backend, version, ABI), u32 group index or UINT32_MAX */
    WIRE_PUT,      /* str scope, str key, blob value */
    WIRE_GET,      /* str scope, str key; answered by REPLY */
    WIRE_FENCE,    /* str scope, u32 number (0, 1, ... in this scope); answered by FENCED */
    WIRE_LEAVE,    /* str scope */
    WIRE_WAITS, /* its threads have stood still for a while, and this is what they wait for: u8 sure
                   that nothing else in it can go on; u32 n, n x {u32 thread, str scope, u64 number,
                   u64 time-out ns, u8 kind, u8 dtype, u8 op, u8 may end without its receiver, u64
                   count, u32 world rank of the peer or WIRE_HOST, u32 tag}; u32 n, n x {str scope,
                   str group, u64 collectives so far, u32 n, n x u32 members if it waits there, u32
                   n, n x posted {u8 kind, u32 peer, u32 tag}, u8 messages were not counted, u32 n,
                   n x {u32 peer, u32 tag, u64 sent, u64 received}} */

    /* runner -> rank, relayed */
    WIRE_REPLY = 96, /* str scope, str key, i32 status as u32, then OK: blob value; else diag */
    WIRE_FENCED,     /* str scope, u32 number, i32 status as u32, then OK: u32 n, n x {str key, blob
                        value}; else diag */
    WIRE_GO,         /* empty */
    WIRE_STOP_BACKGROUND, /* empty */
    WIRE_FINISH,          /* empty */
    WIRE_LOST,  /* u32 rank, str sentence: on_failure: continue: this rank is gone, the job goes on
                 */
    WIRE_ABORT, /* i32 status as u32 (PEER_FAILED or ABORTED), u32 culprit rank or WIRE_HOST, str
                   sentence */

    /* between rank and agent only */
    WIRE_WELCOME = 128, /* u32 rank, u32 attempt, u32 host index, str address, str interface, u32
                           cpus of the host that ranks may use, blob desc */
    WIRE_SEGMENT,       /* rank -> agent: str scope, str key, u64 len */
    WIRE_SEGMENT_FD /* agent -> rank: str scope, str key, i32 status as u32, then OK: nothing, with
                       one descriptor (SCM_RIGHTS) on the frame's first byte; else diag */
};

enum wire_phase {
    WIRE_PHASE_LOAD,
    WIRE_PHASE_GROUPS,
    WIRE_PHASE_INIT,
    WIRE_PHASE_RUN,
    WIRE_PHASE_FINI
};

struct wire_frame {
    uint16_t type;
    uint32_t rank, attempt;
    const unsigned char
        *payload; /* borrowed from the input buffer: valid until it is fed or consumed */
    size_t len;
};

/* Appends a frame. wire_begin/wire_end write the payload in place: everything put into `out`
 * between them. */
void wire_put(struct buf *out, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
              size_t len);
size_t wire_begin(struct buf *out, uint16_t type, uint32_t rank,
                  uint32_t attempt); /* a mark for wire_end */
void wire_end(struct buf *out, size_t mark);

/* Takes the next whole frame off the front of `in` (the caller consumes it with wire_next_done
 * after use): 1 = a frame, 0 = more bytes are needed, negative = not our protocol (diag says so).
 */
int wire_next(const struct buf *in, struct wire_frame *frame, struct diag *d);
void wire_next_done(struct buf *in, const struct wire_frame *frame);

/* A diag as part of a payload. What it says of files is kept in `arena`; NULL: its places are taken
 * to be in the job file. */
void wire_put_diag(struct buf *out, const struct diag *d);
void wire_read_diag(struct reader *r, struct arena *arena, struct diag *d);

/* A name for messages: "FENCE". */
const char *wire_type_name(uint16_t type);

#endif

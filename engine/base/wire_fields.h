/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of frames, each once. For every frame of WIRE_FIELDS there are, for WIRE_ABORT:
 *
 *   struct wire_abort     its fields
 *   wire_put_abort        appends the payload
 *   wire_read_abort       false: the bytes are no such payload, or something follows it. Texts are
 *                         copied into the arena.
 *   wire_print            prints each field, for a log
 *
 * A field is F(type, name); the types are
 *
 *   u8, u16, u32, u64, i32, f64, str
 *   failure   struct record_view_failure
 *   diag      struct diag
 *   ranks     u32 n, n x u32 world rank
 *   blob      u32 length, bytes. What is read is borrowed from the frame; its length alone is
 *             printed, as of the next one: it may be a secret.
 *   bytes     the last field, to the end; borrowed and printed as a blob
 *   answer    of the store, the last field: i32 status, then OK: bytes to the end; else diag
 *
 * L(item, name) is a list: u32 n, n x the fields of WIRE_ITEM_...
 */
#ifndef ENGINE_BASE_WIRE_FIELDS_H
#define ENGINE_BASE_WIRE_FIELDS_H

#include "base/wire.h"

/* ---- the items of lists ---- */

#define WIRE_ITEM_text(F, L) F(str, text)
#define WIRE_ITEM_site(F, L) F(u64, address)
/* A kind of memory: the backend that declares it, and what job.yaml says about its devices. */
#define WIRE_ITEM_kind(F, L) F(str, backend) F(str, mask) F(str, title)
/* n: devices in the pool of the host */
#define WIRE_ITEM_pool(F, L) F(u32, n) F(str, text)
/* collrun-engine's description of a plugin */
#define WIRE_ITEM_plugin(F, L) F(blob, json)
/* "": none */
#define WIRE_ITEM_command(F, L) F(str, program) F(str, path) F(str, folder)
#define WIRE_ITEM_peer(F, L) F(str, address) F(u16, port)
/* cpus "": any; memory_node UINT32_MAX: any; devices: their ids, with commas */
#define WIRE_ITEM_place(F, L) F(u32, rank) F(str, cpus) F(u32, memory_node) F(str, devices)
/* state: as in /proc; use: of a CPU, in 1/1000; call: the system call, or "" */
#define WIRE_ITEM_thread(F, L) F(u32, tid) F(str, name) F(u8, state) F(u32, use) F(str, call)
/* threads 1: the stacks of all threads; sites: addresses of code whose places are asked for */
#define WIRE_ITEM_look(F, L) F(u32, rank) F(u8, threads) L(site, sites)

#define WIRE_ITEMS(X)                                                                              \
    X(text)                                                                                        \
    X(site)                                                                                        \
    X(kind)                                                                                        \
    X(pool)                                                                                        \
    X(plugin)                                                                                      \
    X(command)                                                                                     \
    X(peer)                                                                                        \
    X(place)                                                                                       \
    X(thread)                                                                                      \
    X(look)

/* ---- agent -> runner ---- */

/* The first frame. Those of other builds have the same first three fields, and any others.
 *   machine      equal where processes share one network stack
 *   realtime_ns  the clock of the host
 *   rdma         its active RDMA ports */
#define WIRE_FIELDS_HELLO(F, L)                                                                    \
    F(str, magic)                                                                                  \
    F(u32, version)                                                                                \
    F(str, build)                                                                                  \
    F(str, host) F(u32, pid) F(u32, cpus) F(str, machine) F(u64, realtime_ns) F(str, rdma)
/* devices: their ids, with commas. pid 0: the rank does not start, and why. */
#define WIRE_FIELDS_SPAWNED(F, L) F(u32, pid) F(str, devices) F(diag, why)
/* This host cannot run the job; ABORTED: a signal ended its agent. */
#define WIRE_FIELDS_HOST_ERROR(F, L) F(diag, error)
/* MASTER_ADDR and MASTER_PORT of the job. The agent of rank 0 sends it before it starts ranks; the
 * runner relays it to all other agents, which wait for it. */
#define WIRE_FIELDS_MASTER(F, L) F(str, address) F(u16, port)
/* The wait status and resources of a rank that has exited. All OUTPUT of the rank precedes it.
 *   memory     the memory limit if the kernel killed it for lack of memory, else ""
 *   disturbed  a call had returned that another rank failed or that the job stops, or the agent had
 *              sent SIGTERM to a command as the job failed
 *   why        its last failed call */
#define WIRE_FIELDS_EXITED(F, L)                                                                   \
    F(i32, status)                                                                                 \
    F(u64, user_us)                                                                                \
    F(u64, system_us) F(u64, max_rss) F(str, memory) F(u8, disturbed) F(failure, why)
/* Once a second, in ns of the agent's CLOCK_MONOTONIC but for the first: the time in the last
 * KEEPALIVE that had one, or 0; when it arrived; and now. */
#define WIRE_FIELDS_HEARTBEAT(F, L) F(u64, sent_ns) F(u64, arrived_ns) F(u64, now_ns)
/* The bytes of STDIN that the rank's pipe has taken; closed: the rank reads no more. */
#define WIRE_FIELDS_STDIN_TAKEN(F, L) F(u32, bytes) F(u8, closed)
/* What (enum wire_mpi) the agent has seen of MPI in a rank that runs a command. */
#define WIRE_FIELDS_MPI(F, L) F(u8, what) F(str, text)
/* What a member has done that ends its part in the job before it has exited, for a message: "has
 * closed its connection to collrun" */
#define WIRE_FIELDS_DETACHED(F, L) F(str, text)
/* Precedes the STACKS that answer READ_STACKS, from every agent of a job on several hosts; of the
 * rank of this host with the connection that has had no answer for longest, or of its first one:
 * address of the host, what the kernel says about the connection (base/network.h), or "" */
#define WIRE_FIELDS_NETWORK(F, L) F(str, address) F(str, text)
/* stream: 1 stdout, 2 stderr; realtime_ns: when the agent has read the bytes */
#define WIRE_FIELDS_OUTPUT(F, L) F(u8, stream) F(u64, realtime_ns) F(bytes, bytes)
/* Answers READ_STACKS, for one rank. stacks: the stacks and places, as collrun-stack prints them;
 * why: there are none, or "" */
#define WIRE_FIELDS_STACKS(F, L) L(thread, threads) F(blob, stacks) F(str, why)
/* Answers EXAMINE, each list in the order of EXAMINE. The agent listens at the port. A text of the
 * commands is "", or why the host cannot start it. */
#define WIRE_FIELDS_EXAMINED(F, L)                                                                 \
    F(str, address)                                                                                \
    F(str, interface)                                                                              \
    F(u16, port) F(diag, error) L(pool, pools) L(plugin, plugins) L(text, commands)
/* Answers PROBE: for each peer "", or why the connection failed. */
#define WIRE_FIELDS_PROBED(F, L) L(text, peers)
/* Answers PLACE; unbound: why the ranks are not bound. "": they are, or nothing asks for it.
 * changes: what env.activate changes in the environment, "NAME=VALUE", or "NAME" if it is removed
 */
#define WIRE_FIELDS_PLACED(F, L) F(diag, error) F(str, unbound) L(place, places) L(text, changes)
/* Lines of the log of the agent (base/debug.h), each with its newline. */
#define WIRE_FIELDS_DEBUG_LINES(F, L) F(str, lines)

/* ---- runner -> agent ---- */

/* host: its index. engine: its path; "": beside the agent. one_machine: all hosts are one. */
#define WIRE_FIELDS_JOB(F, L) F(u32, host) F(str, engine) F(u8, one_machine) F(blob, desc)
/* In the place of JOB: no rank starts. */
#define WIRE_FIELDS_PLACE(F, L) WIRE_FIELDS_JOB(F, L)
/* The agent may send this many more bytes of OUTPUT. */
#define WIRE_FIELDS_CREDIT(F, L) F(u32, bytes)
/* What to log (base/debug.h), when the runner started (CLOCK_REALTIME, ns), and the name of the
 * host in the job. It answers HELLO, if anything is logged. */
#define WIRE_FIELDS_DEBUG(F, L) F(u64, areas) F(u64, start_ns) F(str, host)
/* warning 0: for every process of the addressed rank, or of all ranks (WIRE_HOST); 1: for one
 * process of each rank */
#define WIRE_FIELDS_SIGNAL(F, L) F(u32, signal) F(u8, warning)
/* The agent treats the runner as lost after limit_ms without a frame; 0: never. now_ns, of the
 * runner, comes back in HEARTBEAT. */
#define WIRE_FIELDS_KEEPALIVE(F, L) F(u32, limit_ms) F(u64, now_ns)
/* For the rank with the terminal, whenever its size changes. */
#define WIRE_FIELDS_WINDOW(F, L) F(u16, rows) F(u16, columns)
/* Send a SNAPSHOT at once that has this number, with the ranks that have gone on since their last
 * cut; without one, if none has. */
#define WIRE_FIELDS_LOOK(F, L) F(u64, number)
/* For one rank: standard input; no bytes: its end. At most WIRE_STDIN_WINDOW bytes are not taken.
 */
#define WIRE_FIELDS_STDIN(F, L) F(bytes, bytes)
/* One frame for several ranks of the host. */
#define WIRE_FIELDS_MULTICAST(F, L) F(ranks, ranks) F(u16, type) F(bytes, payload)
/* Send the STACKS of each of these ranks. */
#define WIRE_FIELDS_READ_STACKS(F, L) L(look, ranks)
/* What job.yaml needs of the host. A plugin is KIND:PATH. */
#define WIRE_FIELDS_EXAMINE(F, L)                                                                  \
    F(str, interface)                                                                              \
    F(u8, one_machine) L(kind, kinds) L(text, plugins) L(command, commands)
/* Connect to each of them. */
#define WIRE_FIELDS_PROBE(F, L) L(peer, peers)

/* ---- rank -> runner, relayed ---- */

#define WIRE_FIELDS_ATTACHED(F, L) F(u32, pid)
/* at_exit: the program has ended with exit code 0; else it has called collrun_finalize, or the rank
 * runs plugins */
#define WIRE_FIELDS_DONE(F, L) F(u8, at_exit)
/* workload: an index, or UINT32_MAX; phase: enum wire_phase; group, number: of an operation, or "";
 * subject: enum wire_subject; last: the last failed call, if the end of the rank may be its
 * consequence */
#define WIRE_FIELDS_FAILED(F, L)                                                                   \
    F(u32, workload)                                                                               \
    F(u32, phase) F(str, group) F(u64, number) F(u8, subject) F(diag, why) F(failure, last)
/* level: with WIRE_LOG_IN_VERDICT for a warning that the verdict lists */
#define WIRE_FIELDS_LOG(F, L) F(u8, level) F(str, text)
/* An exception that the program has not caught; thread: that has ended by it, or "": the program
 * ends. */
#define WIRE_FIELDS_EXCEPTION(F, L)                                                                \
    F(str, type) F(str, text) F(str, file) F(u32, line) F(str, thread)
/* identity: backend, version, ABI; index: of the group, or UINT32_MAX */
#define WIRE_FIELDS_JOIN(F, L)                                                                     \
    F(str, scope) F(str, group) F(u64, timeout_ns) F(ranks, members) F(str, identity) F(u32, index)
#define WIRE_FIELDS_PUT(F, L) F(str, scope) F(str, key) F(blob, value)
/* Answered by REPLY. */
#define WIRE_FIELDS_GET(F, L) F(str, scope) F(str, key)
/* number: 0, 1, ... in this scope; answered by FENCED */
#define WIRE_FIELDS_FENCE(F, L) F(str, scope) F(u32, number)
#define WIRE_FIELDS_LEAVE(F, L) F(str, scope)
/* Answered by FENCED number 0 when all members that have not exited have sent it. The value of each
 * of their keys is u32 world rank, i32 status as u32. */
#define WIRE_FIELDS_AGREE(F, L)                                                                    \
    F(str, scope) F(str, group) F(u64, timeout_ns) F(ranks, members) F(i32, status)
#define WIRE_FIELDS_PROGRESS(F, L) F(u32, workload) F(u64, done) F(u64, total) F(str, what)
#define WIRE_FIELDS_METRIC(F, L) F(u32, workload) F(str, name) F(f64, value)

/* ---- runner -> rank, relayed ---- */

/* The answer is a blob: the value. */
#define WIRE_FIELDS_REPLY(F, L) F(str, scope) F(str, key) F(answer, answer)
/* The answer is u32 n, n x {str key, blob value}. */
#define WIRE_FIELDS_FENCED(F, L) F(str, scope) F(u32, number) F(answer, answer)
/* This rank has failed, and the job continues (on_failure: continue). */
#define WIRE_FIELDS_RANK_LOST(F, L) F(u32, rank) F(str, text)
/* status: PEER_FAILED or ABORTED; culprit: a rank, or WIRE_HOST */
#define WIRE_FIELDS_ABORT(F, L) F(i32, status) F(u32, culprit) F(str, text)

/* ---- between rank and agent only ---- */

/* host: its index; cpus: of the host, that ranks may use */
#define WIRE_FIELDS_WELCOME(F, L)                                                                  \
    F(u32, rank)                                                                                   \
    F(u32, attempt) F(u32, host) F(str, address) F(str, interface) F(u32, cpus) F(blob, desc)

#define WIRE_FIELDS(X)                                                                             \
    X(WELCOME, welcome)                                                                            \
    X(OUTPUT, output)                                                                              \
    X(STDIN, stdin_bytes)                                                                          \
    X(MULTICAST, multicast)                                                                        \
    X(EXAMINE, examine)                                                                            \
    X(EXAMINED, examined)                                                                          \
    X(PROBE, probe)                                                                                \
    X(PROBED, probed)                                                                              \
    X(PLACED, placed)                                                                              \
    X(READ_STACKS, read_stacks)                                                                    \
    X(STACKS, stacks)                                                                              \
    X(DONE, done)                                                                                  \
    X(HELLO, hello)                                                                                \
    X(SPAWNED, spawned)                                                                            \
    X(HOST_ERROR, host_error)                                                                      \
    X(MASTER, master)                                                                              \
    X(JOB, job)                                                                                    \
    X(PLACE, place)                                                                                \
    X(CREDIT, credit)                                                                              \
    X(ATTACHED, attached)                                                                          \
    X(FAILED, failed)                                                                              \
    X(LOG, log)                                                                                    \
    X(EXCEPTION, exception)                                                                        \
    X(JOIN, join)                                                                                  \
    X(PUT, store_put)                                                                              \
    X(GET, store_get)                                                                              \
    X(FENCE, fence)                                                                                \
    X(LEAVE, leave)                                                                                \
    X(AGREE, agree)                                                                                \
    X(REPLY, reply)                                                                                \
    X(FENCED, fenced)                                                                              \
    X(EXITED, exited)                                                                              \
    X(HEARTBEAT, heartbeat)                                                                        \
    X(STDIN_TAKEN, stdin_taken)                                                                    \
    X(MPI, mpi_report)                                                                             \
    X(DETACHED, detached)                                                                          \
    X(NETWORK, network)                                                                            \
    X(DEBUG_LINES, debug_lines)                                                                    \
    X(DEBUG, debug)                                                                                \
    X(SIGNAL, signal)                                                                              \
    X(KEEPALIVE, keepalive)                                                                        \
    X(LOOK, look)                                                                                  \
    X(WINDOW, window)                                                                              \
    X(PROGRESS, progress)                                                                          \
    X(METRIC, metric)                                                                              \
    X(RANK_LOST, rank_lost)                                                                        \
    X(ABORT, abort)

struct wire_ranks {
    const uint32_t *items;
    uint32_t n;
};

struct wire_blob {
    const void *data;
    size_t len;
};

struct wire_answer {
    struct diag failure;    /* code 0: none */
    struct wire_blob bytes; /* else nothing */
};

#define WIRE_C_u8 uint8_t
#define WIRE_C_u16 uint16_t
#define WIRE_C_u32 uint32_t
#define WIRE_C_u64 uint64_t
#define WIRE_C_i32 int32_t
#define WIRE_C_f64 double
#define WIRE_C_str const char *
#define WIRE_C_failure struct record_view_failure
#define WIRE_C_diag struct diag
#define WIRE_C_ranks struct wire_ranks
#define WIRE_C_blob struct wire_blob
#define WIRE_C_bytes struct wire_blob
#define WIRE_C_answer struct wire_answer
#define WIRE_MEMBER(type, name) WIRE_C_##type name;
#define WIRE_MEMBER_LIST(item, name) struct wire_list_##item name;
#define WIRE_DECLARE_ITEM(item)                                                                    \
    struct wire_item_##item {                                                                      \
        WIRE_ITEM_##item(WIRE_MEMBER, WIRE_MEMBER_LIST)                                            \
    };                                                                                             \
    struct wire_list_##item {                                                                      \
        const struct wire_item_##item *items;                                                      \
        uint32_t n;                                                                                \
    };
WIRE_ITEMS(WIRE_DECLARE_ITEM)
#define WIRE_DECLARE(TYPE, name)                                                                   \
    struct wire_##name {                                                                           \
        WIRE_FIELDS_##TYPE(WIRE_MEMBER, WIRE_MEMBER_LIST)                                          \
    };                                                                                             \
    void wire_put_##name(struct buf *out, const struct wire_##name *fields);                       \
    bool wire_read_##name(const struct wire_frame *f, struct arena *arena,                         \
                          struct wire_##name *fields);
WIRE_FIELDS(WIRE_DECLARE)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-agent: the process of collrun on one host. It talks to the runner on descriptors 0 and 1,
 * spawns the ranks of its host, relays their frames, serves the rendezvous of this host, and cleans
 * up.
 *
 *  - Happy path: HELLO; JOB; ranks are spawned; frames in both directions; ranks exit; BYE; the
 *    runner closes the stream.
 *  - A rank dies early: the agent sends ABORT to the other ranks of the host at once, without a
 *    round trip to the runner.
 *  - QUIT: SIGKILL to every process; then all descendants are reaped, orphans included.
 *  - The stream to the runner ends, or no frame arrives within the time of KEEPALIVE, or a signal
 *    asks the agent to end: ABORT to every rank, timeouts.grace, then as after QUIT.
 *
 * One thread, one loop. The agent never blocks on a rank nor on the runner.
 */
#ifndef RUNNER_AGENT_AGENT_H
#define RUNNER_AGENT_AGENT_H

#include "agent/activate.h"
#include "agent/address.h"
#include "agent/audit_sender.h"
#include "agent/cut_sender.h"
#include "agent/guard.h"
#include "agent/local_rdv.h"
#include "agent/memory_watch.h"
#include "agent/open_mpi.h"
#include "agent/placement.h"
#include "agent/rank.h"
#include "agent/status.h"
#include "agent/trace_sender.h"
#include "base/desc.h"

#include <sys/resource.h>

enum { AGENT_OUTPUT = 65536 };

struct agent {
    struct loop *loop;
    struct conn runner;
    struct loop_fd signals, debug; /* debug: the pipe with the lines of its log */
    char debug_lines[4096];        /* read from it, and not sent: a line is shorter */
    size_t debug_len;
    struct loop_timer heartbeat, silence, kill_timer, leftovers;
    uint64_t silence_ns;   /* how long the runner may be silent; 0: any time */
    uint64_t heartbeat_ns; /* when the last heartbeat was sent */
    uint32_t heartbeats;
    uint64_t leftovers_ns; /* until when it waits for what ranks left behind; 0: not yet */
    struct arena arena;    /* of desc */
    struct desc desc;
    bool have_job, stopping, bye_sent, aborted;
    bool no_memory;       /* for the stream to the runner, which is closed because of it */
    bool failed;          /* a rank ended early */
    bool foreground_done; /* commands in the background may end as they like */
    bool records_sent;
    pid_t guard;            /* the parent (guard.h), as long as it lives */
    uint32_t host;          /* index into desc.hosts */
    const char *engine;     /* path of collrun-engine */
    bool one_machine;       /* all hosts of the job are this machine */
    const void *desc_bytes; /* desc, encoded */
    size_t desc_len;
    char address[64], interface[64]; /* that the ranks of this host publish */
    struct master master;
    bool awaits_master;      /* ranks start when MASTER arrives */
    struct rank_proc *ranks; /* of this host */
    uint32_t nranks, nrunning;
    void (*on_rank_frame)(struct rank_proc *p, const struct wire_frame *f);
    struct local_rdv rendezvous;
    struct pmi_keys *pmi_keys; /* one per workload; NULL: no program has used PMI */
    int hostmem;               /* of its ranks (base/hostmem.h); -1: not made yet */
    struct guard_files *left;  /* NULL: no memory for them */
    struct open_mpi open_mpi;
    struct cores cores;
    struct memory_watch memory;
    struct rlimit files, file_size;         /* limits of the ranks; the agent raises its own */
    int nice;                               /* of the ranks; base/thread.h */
    unsigned char *output;                  /* AGENT_OUTPUT bytes: a part of a rank's output */
    uint64_t credit;                        /* bytes of output that the runner accepts now */
    uint64_t keepalive_ns, keepalive_at_ns; /* the time in the last KEEPALIVE; when it arrived */
    struct audit_sender audit;
    struct trace_sender trace;
    struct cut_sender cuts;
    struct stacks_network network;
    struct activate_change *changes; /* of env.activate */
    uint32_t nchanges;
};

int agent_main(struct guard_files *files);      /* the exit code */
int agent_main_text(struct guard_files *files); /* the same; it writes lines of base64 */

#endif

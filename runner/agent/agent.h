/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-agent: the hand of collrun on one host. It talks to the runner on descriptors 0 and 1,
 * whatever carries them, spawns the ranks of its host, relays their frames, owns the memory that
 * they share, and sees to it that nothing of the job remains: when the runner says QUIT, when the
 * stream to the runner ends, or when a signal asks for it, every rank is stopped and every
 * descendant, whoever its parent is by then, is killed and reaped before the agent exits.
 *
 * One thread, one loop. The agent never blocks on a rank nor on the runner: output waits in the
 * ranks' pipes while the runner has given no credit for more.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "base/conn.h"
#include "base/desc.h"
#include "base/gpus.h"
#include "base/record.h"

#include <sys/resource.h>
#include <sys/types.h>

struct agent;

/* ---- segment.c: memory files that the ranks of this host share ---- */

struct segment {
    struct segment *next;
    char *scope, *key;
    uint64_t len;
    int fd;
    uint32_t *holders; /* ranks that asked and have not left */
    uint32_t nholders;
};
/* A descriptor for the caller to send and close. */
int segment_get(struct segment **list, uint32_t rank, const char *scope, const char *key,
                uint64_t len, int *fd, struct diag *d);
/* The rank has left the scope, or all of them (scope NULL): what nobody holds any more is freed. */
void segment_leave(struct segment **list, uint32_t rank, const char *scope);

/* ---- address.c: network.interface, resolved here ---- */

/* Refuses an address that leads back to this host only, unless all hosts are one machine. */
int address_check(const char *address, const char *interface, bool together, struct diag *d);
/* `wanted` is the name of an interface, a CIDR, "default-route" or "loopback". */
int address_resolve(const char *wanted, char *address, size_t address_size, char *interface,
                    size_t interface_size, struct diag *d);

/* ---- rank.c: one rank of this host ---- */

struct rank_pipe {
    int fd;               /* -1: at its end */
    struct loop_fd watch; /* not while there is no credit */
    struct rank_proc *proc;
    uint8_t stream; /* 1 stdout, 2 stderr */
};

struct rank_proc {
    struct agent *agent;
    uint32_t rank;
    pid_t pid;                          /* 0: not running */
    bool spawned, exited, idle, failed; /* idle: said IDLE; failed: said FAILED */
    struct conn control;
    struct rank_pipe out, err;
    struct record_page *record; /* what it is doing; shared with it */
    const char *gpus;           /* for CUDA_VISIBLE_DEVICES; NULL: as the agent has it */
    const char *near;           /* cpus near them, if it shall be bound to these; else "" */
};

int rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome, struct diag *d);
/* Forwards what is there, as far as the credit goes, and watches for more when credit is left.
 * False: at its end. */
bool rank_pipe_pump(struct rank_pipe *p);
void rank_close(struct rank_proc *p);
/* Libraries that were staged because the host lacks them: LD_LIBRARY_PATH leads there. For the
 * child, ahead of its exec. */
void rank_private_libraries(const char *engine);

/* ---- placement.c: the GPUs of this host's ranks ---- */

/* Fills in `gpus` and `near` of the ranks; refuses GPUs that are not here. */
int placement_make(struct agent *a, struct diag *d);
/* The pool: what CUDA_VISIBLE_DEVICES of the agent leaves of the machine's GPUs. */
int placement_pool(struct gpus *pool, struct arena *arena, struct diag *d);

/* ---- memory.c: whether the kernel killed for lack of memory ---- */

struct memory_watch {
    char dir[4096];             /* of the agent's cgroup; "": it cannot be told */
    const char *events, *limit; /* files in it */
    uint64_t kills;             /* known so far */
};
/* `proc_cgroup` is /proc/self/cgroup and `root` /sys/fs/cgroup, but for tests. */
void memory_watch_init(struct memory_watch *w, const char *proc_cgroup, const char *root);
/* The kernel has killed one more process than were asked about. `text`: what there was to have. */
bool memory_was_short(struct memory_watch *w, char *text, size_t size);

/* ---- examine.c: EXAMINE and PROBE, of `collrun doctor` ---- */

void examine_host(struct agent *a, const struct wire_frame *f);
void examine_paths(struct agent *a, const struct wire_frame *f);

/* ---- job.c: JOB ---- */

/* Where collrun-engine is: beside this program, unless `given` says otherwise. */
int agent_engine_path(const char *given, char *path, size_t size, struct diag *d);
int agent_take_job(struct agent *a, const struct wire_frame *f, struct diag *d);

/* ---- look.c: LOOK ---- */

void agent_tell_seen(struct agent *a, const struct rank_proc *p);

/* ---- agent.c ---- */

struct agent {
    struct loop *loop;
    struct conn runner;
    struct loop_fd signals;
    struct loop_timer heartbeat, silence, kill_timer;
    struct arena arena; /* of desc */
    struct desc desc;
    bool have_job, stopping, bye_sent, aborted;
    uint32_t host;           /* index into desc.hosts */
    struct rank_proc *ranks; /* those of this host */
    uint32_t nranks, nrunning;
    struct segment *segments;
    struct memory_watch memory;
    struct rlimit files; /* the ranks' limit of descriptors; the agent's own is the hard one */
    uint64_t credit;     /* bytes of output that the runner will take now */
};

void agent_rank_output(struct rank_pipe *p, const void *bytes, size_t len);
void agent_rank_frame(struct rank_proc *p, const struct wire_frame *f);
int agent_main(void); /* the exit code */

#endif

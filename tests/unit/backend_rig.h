/* SPDX-License-Identifier: Apache-2.0
 *
 * A rig that tests one backend .so without the engine: it plays engine, agent and runner for a
 * group of ranks on this machine. rig_run forks one process per rank (or one thread per rank inside
 * one forked process, for ThreadSanitizer), loads the backend as the registry would, opens a group
 * over all ranks, runs a function in every rank, closes the group, and collects what failed. A run
 * that passes its time limit is killed and reported.
 *
 * The ranks get complete collrun_services (reduce is the engine's own) and a collrun_rendezvous
 * over shared memory: put, get, fence and segment with the deadlines and errors that backend.h
 * promises. host_of simulates several hosts: segments are shared inside one simulated host only.
 *
 *     static int check_sum(struct rig_rank *r)
 *     {
 *         float in = (float)r->rank, out = -1;
 *         struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
 *         call.send = &in; call.recv = &out; call.count = 1; call.dtype = COLLRUN_FLOAT32;
 *         RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
 *         RIG_CHECK(r, out == (float)(r->nranks * (r->nranks - 1) / 2));
 *         return 0;
 *     }
 *     ...
 *     struct rig_options options = {.path = rig_backend_path("shm"), .nranks = 4};
 *     assert_int_equal(rig_run(&options, check_sum), 0);
 *
 * The function runs in another process than the test, so it reports by its return value and
 * RIG_CHECK, never by cmocka's asserts. rig_run prints the failures as "# ..." lines on stderr.
 */
#ifndef TESTS_UNIT_BACKEND_RIG_H
#define TESTS_UNIT_BACKEND_RIG_H

#include <collrun/backend.h>

#define RIG_MAX_RANKS 128u

/* Zero is a good default for everything but path and nranks. */
struct rig_options {
    const char *path;       /* of the backend's .so */
    uint32_t nranks;        /* 1 .. RIG_MAX_RANKS */
    uint32_t ncpus;         /* what group descriptions say; 0: the cores this process may use */
    uint64_t timeout_ns;    /* of an operation; 0: 10 s */
    uint64_t rendezvous_ns; /* of one rendezvous call; 0: 10 s */
    double limit_s;         /* of the whole run; 0: 30 s */
    bool threads;           /* ranks are threads of one process */
    bool no_group;          /* r->group stays NULL; the function opens its own */
    bool abort_on_death; /* when a rank dies, abort the groups of all others, as an agent would */
    const uint32_t *host_of;     /* nranks numbers, equal = same host; NULL: one host */
    const char *const *settings; /* what services->option answers: key, value, ..., NULL */
    const char *address;         /* NULL: 127.0.0.1 */
    const char *interface;       /* NULL: lo */
    const bool *may_die;         /* nranks; a rank marked here may end by a signal; NULL: none */
    void *arg;                   /* for the function, as r->arg; read-only across processes */
};

struct rig_rank;

/* One open group, as one rank sees it. */
struct rig_group {
    const struct collrun_backend *backend; /* the complete table */
    void *handle;                          /* the backend's own */
    struct rig_rank *owner;
    uint32_t rank, nranks;
    uint64_t timeout_ns;
    struct rig_group *next;
};

/* One rank of the run. */
struct rig_rank {
    uint32_t rank, nranks;
    const struct collrun_backend
        *backend;            /* the complete table: what the .so knows, NULL elsewhere */
    void *state;             /* what backend->open gave */
    struct rig_group *group; /* over all ranks, in order */
    const struct rig_options *options;
    void *arg;
    void *scratch; /* 64 KiB that all ranks and the test share, zeroed at the start of a run */
    struct rig_inside *inside;
};

/* $BUILD/lib/collrun/backends/libcollrun_NAME.so of the build that this test program belongs to. */
const char *rig_backend_path(const char *name);

/* Runs fn in every rank. 0 if it returned 0 everywhere (and no rank died but those that may); else
 * 1, and what happened is on stderr. `options->scratch` results are read through rig_scratch. */
int rig_run(const struct rig_options *options, int (*fn)(struct rig_rank *r));

/* The same for each number of ranks from `first` to options->nranks; 0 if all were fine. */
int rig_run_each(const struct rig_options *options, uint32_t first, int (*fn)(struct rig_rank *r));

/* The scratch memory of the last rig_run, for the test to read. */
const void *rig_scratch(void);

/* Opens a further group over `members` (ranks of the run, in the order of group ranks); only
 * members call. Returns the backend's status. Name the same group twice and its rendezvous keys
 * start afresh. */
int rig_group_open(struct rig_rank *r, const char *name, const uint32_t *members, uint32_t nmembers,
                   struct rig_group **out);
void rig_group_close(struct rig_group *group);
/* A second handle of the same group, as the engine opens it for messages. */
int rig_group_open_beside(struct rig_group *first, const char *name, const uint32_t *members,
                          struct rig_group **out);

/* A message of `bytes` uint8: COLLRUN_SEND to, or COLLRUN_RECV or COLLRUN_RECV_ANY from, a peer. */
struct collrun_call rig_message(enum collrun_kind kind, void *buf, size_t bytes, uint32_t peer,
                                uint32_t tag);

/* exec, or start and test for a backend without it. Sizes and time-outs of 0 are filled in, as the
 * engine does. */
int rig_exec(struct rig_group *group, const struct collrun_call *calls, uint32_t ncalls);

/* Tests a request that start gave until it is over; its status. */
int rig_wait(struct rig_group *group, void *request);

/* The sentence that this thread's last failure left behind. "" if none. */
const char *rig_error(void);

/* Waits until every rank of the run is here; independent of the backend. */
void rig_sync(struct rig_rank *r);

/* For how long that rank has been inside its present rig_exec; 0 outside any. Who has been in one
 * for tens of milliseconds waits for somebody. */
uint64_t rig_inside_ms(const struct rig_rank *r, uint32_t rank);

/* Whether the process of that rank is over (process mode only). */
bool rig_is_gone(const struct rig_rank *r, uint32_t rank);

/* This rank falls behind the others, where a case is about that; nothing may hang on how far. */
void rig_lag_us(unsigned us);

/* SIGKILLs a rank of this run (process mode only); its own is allowed. */
void rig_kill(struct rig_rank *r, uint32_t rank);

/* Calls group_abort on this rank's groups from another thread after `delay_ms`. At most once per
 * rank and run. */
void rig_abort_after(struct rig_rank *r, unsigned delay_ms);

/* Makes the service thread of every rank abort its groups now, as an agent does when the job fails.
 */
void rig_abort_everywhere(struct rig_rank *r);

/* What happens "at once" takes less, on a slow and busy machine too; time-outs are longer where the
 * two have to be told apart. */
#define RIG_AT_ONCE_NS 3000000000u

/* CLOCK_MONOTONIC now, and at the moment of the first death or rig_abort_everywhere (0: none), to
 * measure delays. */
uint64_t rig_now_ns(void);
uint64_t rig_abort_ns(const struct rig_rank *r);

/* Stores this rank's report and returns 1. */
int rig_fail(struct rig_rank *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define RIG_CHECK(r, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return rig_fail((r), "%s:%d: %s does not hold (last error: %s)", __FILE__, __LINE__,   \
                            #condition, rig_error());                                              \
    } while (0)

/* Waits, 10 s at the most, until the condition holds. */
#define RIG_UNTIL(r, condition)                                                                    \
    for (const uint64_t rig_start = rig_now_ns(); !(condition); rig_lag_us(200))                   \
    RIG_CHECK((r), rig_now_ns() - rig_start < 10000000000u && "10 s for " #condition)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A harness that tests one backend .so without the engine. It simulates engine, agent and runner
 * for a group of ranks on this machine.
 *
 * - harness_run forks one process per rank (or one process with a thread per rank, for
 *   ThreadSanitizer), loads the backend as the registry would, opens a group over all ranks, runs a
 *   function in every rank, closes the group, and collects the failures.
 * - A run that passes its time limit is killed and reported.
 * - The ranks get complete collrun_services (most are the engine's) and a collrun_rendezvous over
 *   shared memory: put, get, fence and segment with the deadlines and errors that backend.h
 *   promises.
 * - host_of simulates several hosts: segments are shared inside one simulated host only.
 *
 *     static int check_sum(struct harness_rank *r)
 *     {
 *         float in = (float)r->rank, out = -1;
 *         struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
 *         call.send = &in; call.recv = &out; call.count = 1; call.dtype = COLLRUN_FLOAT32;
 *         HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
 *         HARNESS_CHECK(r, out == (float)(r->nranks * (r->nranks - 1) / 2));
 *         return 0;
 *     }
 *     ...
 *     struct harness_options options = {.path = harness_backend_path("shm"), .nranks = 4};
 *     assert_int_equal(harness_run(&options, check_sum), 0);
 *
 * The function runs in another process than the test. It therefore reports by its return value and
 * HARNESS_CHECK, never by cmocka's asserts; harness_run prints the failures as "# ..." lines on
 * stderr.
 */
#ifndef TESTS_UNIT_BACKEND_HARNESS_H
#define TESTS_UNIT_BACKEND_HARNESS_H

#include <collrun/backend.h>

#define HARNESS_MAX_RANKS 128u

/* Zero is the default of every member but path and nranks. */
struct harness_options {
    const char *path;       /* of the backend's .so */
    uint32_t nranks;        /* 1 .. HARNESS_MAX_RANKS */
    uint32_t ncpus;         /* of group descriptions; 0: the cores that this process may use */
    uint64_t timeout_ns;    /* of an operation; 0: 10 s */
    uint64_t rendezvous_ns; /* of one rendezvous call; 0: 10 s */
    double limit_s;         /* of the whole run; 0: 120 s */
    bool threads;           /* ranks are threads of one process */
    bool no_group;          /* r->group stays NULL; the function opens groups */
    bool abort_on_death; /* when a rank dies, abort the groups of all others, as an agent would */
    const uint32_t *host_of;     /* nranks numbers, equal = same host; NULL: one host */
    const char *const *settings; /* for services->option: key, value, ..., NULL */
    const char *address;         /* NULL: 127.0.0.1 */
    uint32_t desc_size; /* size of group descriptions, to simulate an older engine; 0: complete */
    const char *interface; /* NULL: lo */
    const bool *may_die;   /* nranks entries; true: this rank may die of a signal; NULL: none may */
    void *arg;             /* for the function, as r->arg; read-only across processes */
};

struct harness_rank;

/* One open group, as one rank sees it. */
struct harness_group {
    const struct collrun_backend *backend; /* the complete table */
    void *handle;                          /* of the backend */
    struct harness_rank *owner;
    uint32_t rank, nranks;
    uint64_t timeout_ns;
    int segment;     /* the descriptor of its shared memory; -1: none */
    struct p2p *p2p; /* the engine's half of the backend's messages; NULL: it has no transport */
    struct harness_group *next;
};

/* One rank of the run. */
struct harness_rank {
    uint32_t rank, nranks;
    const struct collrun_backend
        *backend;                /* the complete table: what the .so knows, NULL elsewhere */
    void *state;                 /* from backend->open */
    struct harness_group *group; /* over all ranks, in order */
    const struct harness_options *options;
    void *arg;
    void *scratch; /* 64 KiB, shared by all ranks and the test; zero at the start of a run */
    struct harness_inside *inside;
};

/* $BUILD/lib/collrun/backends/libcollrun_NAME.so of the build that this test program belongs to. */
const char *harness_backend_path(const char *name);

/* Runs fn in every rank. Returns 0 if fn returned 0 on all ranks and no rank died that must not;
 * else 1, and the failures are on stderr. The test reads r->scratch through harness_scratch. */
int harness_run(const struct harness_options *options, int (*fn)(struct harness_rank *r));

/* harness_run for each number of ranks from `first` to options->nranks; 0 if all succeed. */
int harness_run_each(const struct harness_options *options, uint32_t first,
                     int (*fn)(struct harness_rank *r));

/* The scratch memory of the last harness_run, for the test to read. */
const void *harness_scratch(void);

/* Opens a further group over `members` (ranks of the run, in the order of group ranks); only
 * members call it. Returns the backend's status. A name may be used again: each use has a new set
 * of rendezvous keys. */
int harness_group_open(struct harness_rank *r, const char *name, const uint32_t *members,
                       uint32_t nmembers, struct harness_group **out);
void harness_group_close(struct harness_group *group);
/* A second handle of the same group, as the engine opens it for messages. */
int harness_group_open_beside(struct harness_group *first, const char *name,
                              const uint32_t *members, struct harness_group **out);

/* A message of `bytes` uint8: COLLRUN_SEND to, or COLLRUN_RECV or COLLRUN_RECV_ANY from, a peer. */
struct collrun_call harness_message(enum collrun_kind kind, void *buf, size_t bytes, uint32_t peer,
                                    uint32_t tag);

/* exec, or start and test for a backend without it. Sizes and time-outs of 0 are filled in, and
 * without a call the backend is not called, as the engine does. */
int harness_exec(struct harness_group *group, const struct collrun_call *calls, uint32_t ncalls);

/* Tests a request of `start` until it completes; returns its status. */
int harness_wait(struct harness_group *group, void *request);

/* The error message of the last failure of this thread; "" if none. */
const char *harness_error(void);

/* Barrier over all ranks of the run; does not use the backend. */
void harness_sync(struct harness_rank *r);

/* How long that rank has been in its current harness_exec; 0 outside of one. A rank that has been
 * in one for tens of milliseconds waits for another rank. */
uint64_t harness_inside_ms(const struct harness_rank *r, uint32_t rank);

/* True if the process of that rank has exited (process mode only). */
bool harness_is_gone(const struct harness_rank *r, uint32_t rank);

/* Delays this rank, for cases about late ranks; no result may depend on how long. */
void harness_lag_us(unsigned us);

/* SIGKILLs a rank of this run, also the calling one (process mode only). */
void harness_kill(struct harness_rank *r, uint32_t rank);

/* Calls group_abort on this rank's groups from another thread after `delay_ms`. At most once per
 * rank and run. */
void harness_abort_after(struct harness_rank *r, unsigned delay_ms);

/* Makes the service thread of every rank abort its groups now, as an agent does when the job fails.
 */
void harness_abort_everywhere(struct harness_rank *r);

/* Longer than anything immediate takes, also on a slow and busy machine. Where a test distinguishes
 * both, time-outs are longer than this. */
#define HARNESS_AT_ONCE_NS 3000000000u

/* CLOCK_MONOTONIC now, and at the moment of the first death or harness_abort_everywhere (0: none),
 * to measure delays. */
uint64_t harness_now_ns(void);
uint64_t harness_abort_ns(const struct harness_rank *r);

/* Stores this rank's failure text; returns 1. */
int harness_fail(struct harness_rank *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define HARNESS_CHECK(r, condition)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return harness_fail((r), "%s:%d: %s does not hold (last error: %s)", __FILE__,         \
                                __LINE__, #condition, harness_error());                            \
    } while (0)

/* Waits up to 60 s until the condition holds. */
#define HARNESS_UNTIL(r, condition)                                                                \
    for (const uint64_t harness_start = harness_now_ns(); !(condition); harness_lag_us(200))       \
    HARNESS_CHECK((r), harness_now_ns() - harness_start < 60000000000u && "60 s for " #condition)

#endif

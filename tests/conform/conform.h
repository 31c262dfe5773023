/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance workload: every operation of <collrun/collrun.h> against an oracle that knows
 * nothing but rank numbers. Nothing here looks at how collrun or a backend works; it is built like
 * any user's workload. The parts:
 *
 *   values.c   what a rank sends and what must arrive, from (rank, index, salt) alone
 *   guard.c    buffers between guard bytes, filled with poison
 *   trial.c    one operation: prepare, call, verify
 *   sweep.c    which operations: everything at small counts, pairwise at large ones
 *   conform.c  parameters, choice of suites, totals
 *   device.c   the same on GPUs: what lies between preparing a trial and judging it
 *
 * and one file for each of the other suites: p2p, envelope, special, user_op, batch, arguments,
 * mismatch, async, huge, dynamic, fuzz.
 */
#ifndef CONFORM_CONFORM_H
#define CONFORM_CONFORM_H

#include <collrun/workload.h>

#define MAX_RANKS 64
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* One run of a suite in one rank: its parameters and its results. */
struct conform {
    struct collrun_ctx *ctx;
    bool full;          /* all operations, types and operators; else the core set */
    bool wide;          /* every root and every pair also in groups of more than four ranks */
    bool alloc;         /* buffers come from collrun_alloc */
    bool early;         /* a rank that needs nothing of the others returns before they call */
    bool async;         /* collrun_start and collrun_wait instead of the blocking forms */
    bool shuffle;       /* each rank of the fuzzer starts operations in a different order */
    bool direct;        /* messages with tag 0 are launched at their call */
    bool first;         /* the first failure ends the rank */
    uint64_t seed;      /* of fuzz and sweep */
    uint64_t steps;     /* length of a fuzz program, repetitions elsewhere */
    uint64_t max_bytes; /* largest buffer of the large sweep */
    struct cuda *cuda;  /* buffers are on GPUs; NULL: in host memory */
    const char *dir;    /* a folder that all ranks see, to exchange data without collrun */
    uint64_t cases, failures, unsupported;
};

/* One group under test. `serial` counts its trials, alike on all members, and salts their data. */
struct team {
    struct conform *run;
    struct collrun_group *group;
    const char *name;
    int rank, size;
    uint64_t serial;
    bool dead; /* the group has failed for good; what is left is skipped */
};

/* ---- report ---- */
bool fail(struct conform *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool team_fail(struct team *team, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts one case, once per group. */
void team_case(struct team *team);
/* One failure unless `status` is `want`. */
bool team_want(struct team *team, int status, int want, const char *what);

/* ---- values ---- */
enum { OP_NONE = -1 }; /* data that is only moved: any bit pattern */
struct stream {
    enum collrun_dtype dtype;
    int op; /* enum collrun_op or OP_NONE */
    uint64_t salt;
    int shares; /* AVG may multiply by 1/n before it sums, over so many ranks; 0: it divides the sum
                 */
};
/* Elements first..first+count-1 of what `rank` contributes. */
void stream_input(const struct stream *s, int rank, uint64_t first, size_t count, void *out);
/* The same elements, reduced over ranks 0..size-1. */
void stream_reduced(const struct stream *s, int size, uint64_t first, size_t count, void *out);
/* Index of the first element that differs, or `count`. */
size_t stream_differs(const struct stream *s, const void *got, const void *want, size_t count);
void stream_print(enum collrun_dtype dtype, const void *element, char *out, size_t len);
size_t width(enum collrun_dtype dtype);
bool is_float(enum collrun_dtype dtype);
bool op_applies(enum collrun_dtype dtype, enum collrun_op op);
uint64_t mix(uint64_t x);
uint16_t half_of(float x);
uint16_t bfloat_of(float x);
extern const char *const dtype_names[COLLRUN_DTYPE_COUNT];
extern const char *const op_names[COLLRUN_OP_COUNT];
extern const char *const kind_names[COLLRUN_KIND_COUNT];

/* ---- guarded buffers ---- */
struct guarded {
    struct collrun_group *owner; /* memory comes from its collrun_alloc; NULL: malloc */
    unsigned char *base;         /* owned */
    unsigned char *at;           /* payload */
    size_t len, capacity;
};
/* (Re)shapes to `len` bytes that start `misalign` bytes past a 64-byte boundary, guards and poison
 * in place. */
void guarded_set(struct guarded *b, size_t len, unsigned misalign);
bool guarded_intact(const struct guarded *b);
void guarded_free(struct guarded *b);
void poison(unsigned char *at, size_t len);

/* ---- one operation ---- */
enum layout {
    LAYOUT_PACKED,
    LAYOUT_GAPS,
    LAYOUT_REVERSED
}; /* of v-forms; packed passes NULL displacements */
struct shape {
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op op;
    int root;
    int from, to; /* point to point: all members know both ends */
    size_t count;
    bool in_place;
    unsigned misalign;
    enum layout layout;
    uint32_t tag;
    const struct collrun_user_op *user_op; /* its values are not verified here */
};
struct device_copy {             /* of a buffer, on a GPU */
    struct collrun_group *owner; /* its collrun_alloc_device; NULL: cudaMalloc */
    void *base;
    size_t capacity;
    int device;
};
struct trial {
    struct team *team;
    struct shape shape;
    struct stream stream;
    struct guarded send, recv, want;
    size_t sendcounts[MAX_RANKS], senddispls[MAX_RANKS], recvcounts[MAX_RANKS],
        recvdispls[MAX_RANKS];
    struct collrun_call call;
    struct collrun_request *request;
    int source;
    struct device_copy device_copies[2]; /* of recv and send */
    int device;
    bool uploaded;
};
/* prepare, call and verify at once, blocking or not as the run says. False after a failure. */
bool trial_run(struct trial *t, struct team *team, const struct shape *shape);
/* The steps of it. trial_prepare takes the next serial number of the team; it leaves t->call ready
 * for collrun_start. */
void trial_prepare(struct trial *t, struct team *team, const struct shape *shape);
int trial_block(struct trial *t);
bool trial_verify(struct trial *t, int status);
void trial_free(struct trial *t);
void shape_print(const struct shape *s, char *out, size_t len);
bool has_op(enum collrun_kind kind);
bool has_root(enum collrun_kind kind);
bool has_in_place(enum collrun_kind kind);
bool is_v(enum collrun_kind kind);

/* ---- buffers on GPUs; only with run->cuda ---- */
bool device_open(struct conform *run, const char *prefix); /* "cuda" or "hpu" */
/* The group's calls come after the caller's streams. */
void device_join(struct team *team);
/* Copies the buffers to the GPU and points the call at the copies. */
void device_upload(struct trial *t);
/* Once the operation is over. */
void device_download(struct trial *t);
int device_wait(struct trial *t, struct collrun_request *request);
void device_free(struct trial *t);
/* Memory that is not a trial's: what the group takes, which is the bytes themselves, or with
 * run->cuda a copy of them on that GPU of the group; and back. */
void *lend(struct team *team, int device, void *host, size_t len);
void take_back(struct team *team, void *host, void *lent, size_t len);

/* What the scope lets in. */
bool kind_in_scope(const struct conform *run, enum collrun_kind kind);
bool dtype_in_scope(const struct conform *run, enum collrun_dtype dtype);
bool op_in_scope(const struct conform *run, enum collrun_op op);

/* ---- suites: all members of the group call the same one ---- */
void suite_sweep(struct team *team);
void suite_large(struct team *team);
void suite_p2p(struct team *team);
void suite_envelope(struct team *team);
void suite_special(struct team *team);
void suite_sync(struct team *team);
void suite_user_op(struct team *team);
void suite_batch(struct team *team);
void suite_arguments(struct team *team);
void suite_mismatch(struct team *team);
void suite_async(struct team *team);
void suite_huge(struct team *team);
void suite_devices(struct team *team);
/* Suites of several groups. */
void suite_dynamic(struct conform *run);
void suite_fuzz(struct conform *run, struct team *teams, int nteams, int nthreads);

double now_s(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication of one rank as a trace recorded it: operations in the order of their calls, and
 * the groups that they work in. Readers of the formats build it; nothing here depends on a format.
 *
 * - Ranks in a trace are ranks of the world that was traced: peers and roots too.
 * - An error names the file and the place in it, and is kept in the trace: the first one counts.
 */
#ifndef REPLAY_TRACE_H
#define REPLAY_TRACE_H

#include <collrun/types.h>
#include <jansson.h>

enum { TRACE_WAIT = COLLRUN_KIND_COUNT, TRACE_KINDS };
enum { TRACE_RANKS_MAX = 1 << 16, TRACE_GROUPS_MAX = 1024, TRACE_NAME_MAX = 64 };
#define TRACE_NO_OP SIZE_MAX
/* In the place of a place: the whole file. */
#define TRACE_FILE UINT64_MAX
/* Bytes of one buffer: more is a damaged trace. */
#define TRACE_BYTES_MAX ((uint64_t)1 << 40)

struct op {
    int kind;      /* enum collrun_kind, or TRACE_WAIT: for the operation `target` */
    bool blocking; /* the call returned when the operation was complete */
    bool timed;    /* recorded_ns is the time of the operation */
    enum collrun_dtype dtype;
    int group; /* index in trace.groups */
    int peer;  /* messages: the other rank; collectives with a root: the root */
    uint32_t tag;
    size_t count; /* elements, as struct collrun_call has them; of a receive: the room */
    size_t
        counts; /* alltoallv: index in trace.counts, of one send and one receive count per rank */
    size_t target;
    uint64_t gap_ns; /* computation between the call before and this one */
    uint64_t recorded_ns;
    uint64_t place; /* line of the file, or id of the node */
};

struct trace_group {
    char name[TRACE_NAME_MAX];
    int *ranks; /* in the order of the group */
    int size;
};

struct trace {
    const char *file; /* borrowed */
    const char *unit; /* of op.place: "line", "node" */
    int rank;         /* -1: any; the file does not name one */
    int world_size;   /* 0: the file does not say */
    struct op *ops;
    size_t nops, ops_room;
    size_t *counts;
    size_t ncounts, counts_room;
    struct trace_group *groups;
    int ngroups;
    uint64_t span_ns; /* from the first call to the end of the last; 0: not recorded */
    /* For PyTorch: for each node record_param_comms, the index of its operation, or TRACE_NO_OP. */
    size_t *calls;
    size_t ncalls, calls_room;
    uint64_t old_waits; /* for operations that began before the trace */
    char error[512];    /* "": none */
};

void trace_fini(struct trace *t);

/* Sets the error, and returns -1. */
int trace_fail(struct trace *t, uint64_t place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes room for `need` entries of `width` bytes, at least twice as many as before. */
int trace_grow(struct trace *t, void **array, size_t *room, size_t need, size_t width);
/* Appends; the op is zeroed but for its place. NULL: out of memory. */
struct op *trace_add(struct trace *t, uint64_t place);
/* Appends to `calls`; 0, or -1: out of memory. */
int trace_add_call(struct trace *t, size_t op);
/* Room for n counts; their index. -1: out of memory. */
int trace_add_counts(struct trace *t, size_t n, size_t *index);
/* A group of this name with room for `size` ranks, which are 0 .. size - 1; its index, or -1. */
int trace_add_group(struct trace *t, const char *name, int size);
/* -1: none. */
int trace_find_group(const struct trace *t, const char *name);
/* Where the rank is in the group; -1: it is no member. */
int trace_group_rank(const struct trace_group *g, int rank);
/* Reads one JSON object value by value, so that only one value at a time is in memory: `take` gets
 * each member, and an array that is a member item by item, after an empty array with item 0. It
 * returns 0, or -1 with the error set, which ends the reading. A text that is no object has no
 * members. */
struct trace_json {
    struct trace *t;
    char *text; /* changed: PyTorch writes numbers that are no JSON; a byte 0 follows */
    size_t len;
    int (*take)(struct trace_json *j);
    void *reader; /* for `take` */
    /* What `take` gets: all are valid until it returns. */
    const char *key;
    const json_t *value;
    size_t item; /* counts from 1; 0: the member */
    size_t at;   /* where the value begins, for trace_json_again */
    /* The functions below keep these. */
    size_t next;
    bool mended; /* the numbers from here on are JSON */
};

/* 0, or -1: the error is set. */
int trace_json_read(struct trace_json *j);
/* Reads a value once more; NULL: out of memory, and the error is set. */
json_t *trace_json_again(struct trace_json *j, size_t at);
/* False: no whole number in the range of the type. */
bool trace_json_int(const json_t *value, int64_t *out);
/* Copies a string; false: no string, or longer than `size` - 1. */
bool trace_json_text(const json_t *value, char *out, size_t size);
/* The larger of what the rank sends and receives. */
size_t trace_bytes(const struct trace *t, const struct op *op);
/* A short name: "allreduce", "wait". */
const char *trace_kind_name(int kind);
const char *trace_dtype_name(enum collrun_dtype dtype);
/* The type of an MPI element of so many bytes; -1: there is none. */
int trace_dtype_of_size(int64_t bytes);
#endif

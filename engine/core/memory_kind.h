/* SPDX-License-Identifier: Apache-2.0
 *
 * struct memory_kind: one kind of device memory in this process, as a backend declares it (struct
 * collrun_memory_kind): where pointers are, copies, and host memory for bounce buffers. Open kinds
 * are in memory_kinds.h. Every function takes a list of kinds, or one; none of them changes it.
 */
#ifndef ENGINE_CORE_MEMORY_KIND_H
#define ENGINE_CORE_MEMORY_KIND_H

#include <collrun/backend.h>
#include <pthread.h>

enum {
    MEMORY_KIND_NAME_LEN = 32,
    MEMORY_KIND_DEVICES = 64,
    MEMORY_KIND_SIZES = 64,
    MEMORY_KINDS_MAX = 8
};

/* Host memory of a kind that was given back, by size; kept for reuse. */
struct memory_kind_blocks {
    pthread_mutex_t lock;
    struct memory_kind_block *free[MEMORY_KIND_SIZES]; /* of 2^i bytes */
    size_t kept;                                       /* bytes */
};

struct memory_kind {
    struct collrun_memory_kind table; /* complete; devices, locate and copy are set */
    char name[MEMORY_KIND_NAME_LEN];
    const char *title;
    void *state; /* of the backend, from open */
    bool usable; /* else no pointer is of this kind, for the reason: */
    char reason[256];
    int32_t numbers[MEMORY_KIND_DEVICES]; /* in this process, of the devices of the rank */
    uint32_t ndevices;                    /* of the rank */
    bool renumbered;                      /* numbers[i] is not i */
    struct memory_kind_blocks blocks;
};

/* Some kinds, borrowed. */
struct memory_kind_set {
    struct memory_kind *items[MEMORY_KINDS_MAX];
    uint32_t n;
};

/* True if `ptr` is in memory of this kind. *device (may be NULL): the index among the rank's
 * devices; -1: none of them. */
bool memory_kind_locate(const struct memory_kind *kind, const void *ptr, int *device);
/* The kind of a pointer; NULL: host memory. */
struct memory_kind *memory_kind_of(const struct memory_kind_set *set, const void *ptr, int *device);

/* Copies between memory of any kinds, or of the host, as struct collrun_memory_copy says. On
 * failure the cause is stored. */
int memory_kind_copy(const struct memory_kind_set *set, const struct collrun_memory_copy *copy);
/* The same on no stream, within `timeout_ns`. */
int memory_kind_copy_bytes(const struct memory_kind_set *set, void *dst, const void *src,
                           size_t len, uint64_t timeout_ns);

/* Waits for all work on a device of the rank. UNAVAILABLE, UNSUPPORTED, or BACKEND; the cause is
 * stored. */
int memory_kind_synchronize(const struct memory_kind *kind, uint32_t device);

/* Memory on a device of the rank. UNSUPPORTED if the kind has none to give; the cause is stored. */
int memory_kind_alloc(const struct memory_kind *kind, uint32_t device, size_t len, void **out);
int memory_kind_free(const struct memory_kind *kind, void *ptr);

/* Host memory that the devices of the kind reach; NULL for the kind, or one without such memory:
 * plain memory. NULL: out of memory. */
void *memory_kind_host_take(struct memory_kind *kind, size_t len);
void memory_kind_host_give(struct memory_kind *kind, void *ptr, size_t len);
/* Frees what is kept. */
void memory_kind_host_drop(struct memory_kind *kind);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct devices: the devices of this machine that belong to one kind of memory, such as its GPUs.
 * The backend that declares the kind lists them in a process of `collrun-engine --devices PATH`,
 * which runner and agent read as text: one line "device\tID\tMODEL\tCPUS" per device, perhaps a
 * line "reason\tTEXT", and a last line "end". A pool is the part of them that the kind's mask (an
 * environment variable such as CUDA_VISIBLE_DEVICES, which Slurm or the user may set) leaves;
 * collrun assigns no other devices.
 */
#ifndef ENGINE_BASE_DEVICES_H
#define ENGINE_BASE_DEVICES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

enum { DEVICES_MAX = 1024 }; /* of one kind on one machine */

struct device {
    const char *id;    /* "GPU-..."; stable */
    const char *model; /* "NVIDIA H200"; "" = unknown */
    const char *cpus;  /* the CPUs near it, such as "0-31,64-95"; "" = unknown */
};

struct devices {
    struct device *items;
    uint32_t n;
    const char *reason; /* why the list lacks devices of the machine; "" = it lacks none */
};

/* Appends the lines. A tab or a line break in a text becomes a blank. */
void devices_write(const struct devices *devices, struct buf *out);
/* True if the last line is there. */
bool devices_complete(const char *text, size_t len);
/* Reads the lines; `out` has no devices if memory is missing. */
void devices_read(const char *text, size_t len, struct arena *arena, struct devices *out);

/* The devices that `mask`, the value of `variable`, lists by number or id, in its order; NULL =
 * all. As in CUDA, the first entry that matches no device, or several, ends the list, and a
 * duplicate makes it empty. */
int devices_pool(const struct devices *all, const char *variable, const char *mask,
                 struct arena *arena, struct devices *out, struct diag *d);

/* "8 x NVIDIA H200", "2 (NVIDIA A100, NVIDIA T4)", "none (libnvidia-ml.so.1: cannot open ...)".
 * `title` replaces a model that is unknown. */
const char *devices_text(const struct devices *devices, const char *title, struct arena *arena);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * struct gpus: the NVIDIA GPUs of this machine, as NVML lists them (libnvidia-ml.so.1 by dlopen, or
 * the file that COLLRUN_LIBNVML names), else as the kernel driver does in /proc/driver/nvidia. None
 * is no error; `reason` then says why. A pool is what CUDA_VISIBLE_DEVICES leaves of them: Slurm,
 * or whoever starts collrun, sets it, and collrun hands out nothing else.
 */
#ifndef BASE_GPUS_H
#define BASE_GPUS_H

#include "base/arena.h"
#include "base/diag.h"

struct gpu {
    const char *uuid; /* "GPU-..." */
    const char *name; /* "NVIDIA H200" */
    const char *cpus; /* those near it, a list such as "0-31,64-95"; "" = not known */
};

struct gpus {
    struct gpu *items;
    uint32_t n;
    const char *reason; /* why there are none, or not all that the machine has; else "" */
};

/* `proc` is "/proc/driver/nvidia", and `sys` "/sys", but for tests. Fails for lack of memory. */
int gpus_find(struct gpus *out, const char *proc, const char *sys, struct arena *arena,
              struct diag *d);

/* Those that `mask` names by number or UUID, in its order; NULL = all. As in CUDA, the first entry
 * that names none, or several, ends the list, and one that comes twice makes it empty. */
int gpus_pool(const struct gpus *all, const char *mask, struct arena *arena, struct gpus *out,
              struct diag *d);

/* "8 x NVIDIA H200", "2 (NVIDIA A100, NVIDIA T4)", "none (libnvidia-ml.so.1: cannot open ...)" */
const char *gpus_text(const struct gpus *gpus, struct arena *arena);

#endif

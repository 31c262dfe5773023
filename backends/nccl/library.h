/* SPDX-License-Identifier: Apache-2.0
 *
 * struct libraries: the CUDA runtime, NCCL and NVML of this machine, found at run time. Each is
 * looked for as the environment variable names it (COLLRUN_LIBCUDART, COLLRUN_LIBNCCL,
 * COLLRUN_LIBNVML: a file or a soname), else under its sonames, newest first, wherever the dynamic
 * loader looks (LD_LIBRARY_PATH, ld.so.conf), else in CUDA's own folder. They stay loaded for the
 * life of the process: neither runtime can be unloaded safely.
 */
#ifndef NCCL_LIBRARY_H
#define NCCL_LIBRARY_H

#include "nccl_api.h"
#include "nvml_api.h"

#include <stdbool.h>

struct libraries {
    struct cuda_api cuda;
    struct nccl_api nccl;
    struct nvml_api nvml;
    bool has_nvml;
    int cuda_version, driver_version; /* 13000 = 13.0 */
    int nccl_version;                 /* 22809 = 2.28.9 */
    int device_count;
};

/* 0, or -1 with what is missing in `why`: a library, a function of one, the driver, a device. */
int libraries_load(struct libraries *out, char *why, size_t len);

#endif

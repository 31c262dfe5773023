/* SPDX-License-Identifier: Apache-2.0
 *
 * struct libraries: the CUDA runtime, NCCL and NVML of this machine, found at run time. The search
 * for each:
 *   - what the environment variable names, if it is set (COLLRUN_LIBCUDART, COLLRUN_LIBNCCL,
 *     COLLRUN_LIBNVML: a file or a soname);
 *   - else its sonames, newest first, where the dynamic loader looks (LD_LIBRARY_PATH, ld.so.conf);
 *   - else CUDA's folder.
 * They stay loaded for the life of the process: neither runtime can be unloaded safely.
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

/* The CUDA runtime alone; NVML alone. 0, or -1 with the reason in `why`. */
int library_load_cuda(struct cuda_api *out, char *why, size_t len);
int library_load_nvml(struct nvml_api *out, char *why, size_t len);

/* 0, or -1 with the missing part in `why`: a library, a function, the driver, a device. */
int libraries_load(struct libraries *out, char *why, size_t len);

#endif

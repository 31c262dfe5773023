/* SPDX-License-Identifier: Apache-2.0
 *
 * The NVIDIA GPUs of this host, as listed by NVML, else by the kernel driver in /proc. NVML numbers
 * GPUs by PCI address, as the folder names of the kernel do. CUDA_VISIBLE_DEVICES is not read.
 */
#ifndef NCCL_DEVICES_H
#define NCCL_DEVICES_H

#include <collrun/backend.h>

/* `devices` of the kind of memory. */
int nccl_devices(const struct collrun_services *services, struct collrun_device *out, uint32_t max,
                 char *why, size_t len);

/* Where the kernel driver lists them: "/proc/driver/nvidia" and "/sys", except in tests. */
struct devices_folders {
    const char *proc, *sys;
};
/* Returns the number of GPUs, and writes up to `max` of them; 0 with the reason in `why`. */
int devices_find(const struct devices_folders *folders, struct collrun_device *out, uint32_t max,
                 char *why, size_t len);

#endif

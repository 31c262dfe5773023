/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated machine: the number of its GPUs, their names, and which of them this process sees.
 * Every setting is an environment variable that starts with FAKE_ (README.md lists them), read when
 * first needed. Linked into each of the three libraries.
 */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

enum { FAKE_GPUS_MAX = 16 };

/* FAKE_CUDA_DEVICES: GPUs of this machine (8). 0: a machine with the libraries and without a GPU.
 */
int fake_gpu_count(void);
/* "GPU-fa4e0000-0000-4000-8000-000000000003" */
void fake_gpu_uuid(int gpu, char *out, size_t len);
/* "00000000:13:00.0" (eight digits of domain as NVML writes it) or with four, as CUDA does */
void fake_gpu_bus_id(int gpu, int domain_digits, char *out, size_t len);

/* The GPUs in CUDA_VISIBLE_DEVICES, by index or UUID, in its order; the first invalid entry ends
 * the list, as in CUDA. Returns their number. */
int fake_visible(int gpus[FAKE_GPUS_MAX]);

/* A number from the environment. */
long fake_setting(const char *name, long otherwise);
/* Whether `NAME=FUNCTION:NTH:CODE` in the environment makes this call fail; *code is its result. */
bool fake_fault(const char *name, const char *function, int rank, int *code);

/* Prints one line on stderr, with the name of the library. */
void fake_log(const char *library, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sleeps for a random time, at most FAKE_CUDA_DELAY_US (50): nothing may depend on speed. */
void fake_delay(void);

double fake_seconds(void);

#endif

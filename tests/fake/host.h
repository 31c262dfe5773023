/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that the stand-ins pretend to be: how many GPUs it has, what they are called, which
 * of them this process may see. Every setting is an environment variable that starts with FAKE_
 * (README.md lists them), read when it is first needed. Linked into each of the three libraries.
 */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

enum { FAKE_GPUS_MAX = 16 };

/* FAKE_CUDA_DEVICES: GPUs of this machine (8). 0: a machine that has the libraries and no GPU. */
int fake_gpu_count(void);
/* "GPU-fa4e0000-0000-4000-8000-000000000003" */
void fake_gpu_uuid(int gpu, char *out, size_t len);
/* "00000000:13:00.0" (eight digits of domain as NVML writes it) or with four, as CUDA does */
void fake_gpu_bus_id(int gpu, int domain_digits, char *out, size_t len);

/* The GPUs that CUDA_VISIBLE_DEVICES leaves, by index or UUID, in its order; the first entry that
 * names none ends the list, as in CUDA. Returns how many. */
int fake_visible(int gpus[FAKE_GPUS_MAX]);

/* A number from the environment. */
long fake_setting(const char *name, long otherwise);
/* True for the call that `NAME=FUNCTION:NTH:CODE` of the environment says shall fail; *code is what
 * it returns. `calls` counts. */
bool fake_fault(const char *name, const char *function, int rank, int *code);

/* One line on stderr that says who speaks. */
void fake_say(const char *library, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sleeps a random while, at most FAKE_CUDA_DELAY_US (50): nothing may depend on speed. */
void fake_delay(void);

double fake_seconds(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings, names and random numbers of the simulated machine. Random numbers are per thread and
 * seeded from FAKE_SEED, so a run can be repeated as far as thread scheduling permits.
 */
#include "host.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

long fake_setting(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value && *value ? strtol(value, NULL, 10) : otherwise;
}

int fake_gpu_count(void)
{
    long n = fake_setting("FAKE_CUDA_DEVICES", 8);
    return n < 0 ? 0 : n > FAKE_GPUS_MAX ? FAKE_GPUS_MAX : (int)n;
}

void fake_gpu_uuid(int gpu, char *out, size_t len)
{
    snprintf(out, len, "GPU-fa4e0000-0000-4000-8000-%012x", (unsigned)gpu);
}

void fake_gpu_bus_id(int gpu, int domain_digits, char *out, size_t len)
{
    snprintf(out, len, "%0*x:%02X:00.0", domain_digits, 0u, 0x10u + (unsigned)gpu);
}

/* The GPU that an entry of CUDA_VISIBLE_DEVICES names; -1: none. A unique prefix of a UUID is
 * enough.
 */
static int named_gpu(const char *entry)
{
    char uuid[64], *end;
    int found = -1;
    if (!strncasecmp(entry, "GPU-", 4)) {
        for (int gpu = 0; gpu < fake_gpu_count(); gpu++) {
            fake_gpu_uuid(gpu, uuid, sizeof uuid);
            if (strncasecmp(entry, uuid, strlen(entry)) != 0)
                continue;
            if (found >= 0)
                return -1;
            found = gpu;
        }
        return found;
    }
    long gpu = strtol(entry, &end, 10);
    return end != entry && !*end && gpu >= 0 && gpu < fake_gpu_count() ? (int)gpu : -1;
}

int fake_visible(int gpus[FAKE_GPUS_MAX])
{
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (!mask) {
        for (; n < fake_gpu_count(); n++)
            gpus[n] = n;
        return n;
    }
    char copy[2048], *state = NULL;
    snprintf(copy, sizeof copy, "%s", mask);
    for (char *entry = strtok_r(copy, ",", &state); entry && n < FAKE_GPUS_MAX;
         entry = strtok_r(NULL, ",", &state)) {
        int gpu = named_gpu(entry + strspn(entry, " "));
        if (gpu < 0)
            break;
        for (int i = 0; i < n; i++)
            if (gpus[i] == gpu)
                return 0; /* CUDA treats a repetition as an error and shows none */
        gpus[n++] = gpu;
    }
    return n;
}

/* ---- faults ---- */

enum { FAULTS_MAX = 16 };
static struct {
    const char *at; /* in the environment */
    long calls;
} faults[FAULTS_MAX];
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;

/* Counts a call that matches the fault at `at`. Returns the count. */
static long count_call(const char *at)
{
    for (int i = 0; i < FAULTS_MAX; i++) {
        if (!faults[i].at)
            faults[i].at = at;
        if (faults[i].at == at)
            return ++faults[i].calls;
    }
    return 0;
}

/* FUNCTION:NTH:CODE[:RANK], several separated by commas. */
bool fake_fault(const char *name, const char *function, int rank, int *code)
{
    const char *at = getenv(name);
    size_t len = strlen(function);
    bool hit = false;
    while (at && *at && !hit) {
        long nth, result, only = -1;
        if (!strncmp(at, function, len) && at[len] == ':' &&
            sscanf(at + len, ":%ld:%ld:%ld", &nth, &result, &only) >= 2 &&
            (only < 0 || only == rank)) {
            pthread_mutex_lock(&faults_lock);
            hit = count_call(at) == nth;
            pthread_mutex_unlock(&faults_lock);
            if (hit)
                *code = (int)result;
        }
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return hit;
}

/* ---- output and random numbers ---- */

void fake_log(const char *library, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s (stand-in): %s\n", library, text);
}

double fake_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t draw(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t state;
    if (!state)
        state = 0x9e3779b97f4a7c15u * (uint64_t)(fake_setting("FAKE_SEED", 1) + 1) +
                0xbf58476d1ce4e5b9u * (atomic_fetch_add(&threads, 1) + 1) + (uint64_t)getpid();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void fake_delay(void)
{
    static _Atomic long most = -1;
    long us = atomic_load(&most);
    if (us < 0)
        atomic_store(&most, us = fake_setting("FAKE_CUDA_DELAY_US", 50));
    if (us <= 0)
        return;
    long ns = (long)(draw() % (uint64_t)(us + 1)) * 1000;
    struct timespec pause = {ns / 1000000000, ns % 1000000000};
    nanosleep(&pause, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding libraries and their functions, and saying which is missing.
 */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum need { MUST, MAY };

struct symbol {
    enum need need;
    const char *name;
    size_t offset; /* of its pointer in the api struct */
};

#define CUDA_ROW(need, result, name, parameters) {need, #name, offsetof(struct cuda_api, name)},
#define NCCL_ROW(need, result, name, parameters) {need, #name, offsetof(struct nccl_api, name)},
#define NVML_ROW(need, result, name, parameters) {need, #name, offsetof(struct nvml_api, name)},
static const struct symbol cuda_symbols[] = {CUDA_FUNCTIONS(CUDA_ROW){MAY, NULL, 0}};
static const struct symbol nccl_symbols[] = {NCCL_FUNCTIONS(NCCL_ROW){MAY, NULL, 0}};
static const struct symbol nvml_symbols[] = {NVML_FUNCTIONS(NVML_ROW){MAY, NULL, 0}};

struct library {
    const char *what, *variable;
    const char *const *names; /* in the order in which they are tried */
    const struct symbol *symbols;
};

static const char *const cuda_names[] = {"libcudart.so.13",
                                         "libcudart.so.12",
                                         "libcudart.so.11.0",
                                         "libcudart.so",
                                         "/usr/local/cuda/lib64/libcudart.so",
                                         NULL};
static const char *const nccl_names[] = {"libnccl.so.2", "libnccl.so",
                                         "/usr/local/cuda/lib64/libnccl.so.2", NULL};
static const char *const nvml_names[] = {"libnvidia-ml.so.1", NULL};

static const struct library cuda_library = {"the CUDA runtime", "COLLRUN_LIBCUDART", cuda_names,
                                            cuda_symbols};
static const struct library nccl_library = {"NCCL", "COLLRUN_LIBNCCL", nccl_names, nccl_symbols};
static const struct library nvml_library = {"NVML", "COLLRUN_LIBNVML", nvml_names, nvml_symbols};

/* And which it was. NULL with the loader's words in `why`, those about a file that is there and
 * does not load. */
static void *open_any(const struct library *l, const char **file, char *why, size_t len)
{
    const char *named = getenv(l->variable);
    if (named && *named) {
        void *object = dlopen(*file = named, RTLD_NOW | RTLD_LOCAL);
        if (!object)
            snprintf(why, len, "%s=%s: %s", l->variable, named, dlerror());
        return object;
    }
    for (const char *const *name = l->names; *name; name++) {
        void *object = dlopen(*file = *name, RTLD_NOW | RTLD_LOCAL);
        if (object)
            return object;
        const char *words = dlerror();
        if (!strstr(words, "cannot open shared object file")) {
            snprintf(why, len, "%s does not load: %s", l->what, words);
            return NULL;
        }
    }
    snprintf(why, len, "%s (%s) not found; LD_LIBRARY_PATH or %s may name it", l->names[0], l->what,
             l->variable);
    return NULL;
}

static int load(const struct library *l, void *api, char *why, size_t len)
{
    const char *file;
    void *object = open_any(l, &file, why, len);
    if (!object)
        return -1;
    for (const struct symbol *s = l->symbols; s->name; s++) {
        void *address = dlsym(object, s->name);
        if (!address && s->need == MUST) {
            snprintf(why, len, "%s is too old or not %s: it has no %s", file, l->what, s->name);
            return -1;
        }
        memcpy((char *)api + s->offset, &address, sizeof address);
    }
    return 0;
}

/* The runtime answers even where there is no driver. */
static int find_devices(struct libraries *l, char *why, size_t len)
{
    const struct cuda_api *cuda = &l->cuda;
    cuda->cudaRuntimeGetVersion(&l->cuda_version);
    if (cuda->cudaDriverGetVersion(&l->driver_version) != cudaSuccess || l->driver_version == 0) {
        snprintf(why, len, "no NVIDIA driver here (libcuda.so.1 is not installed or not loaded)");
        return -1;
    }
    cudaError_t error = cuda->cudaGetDeviceCount(&l->device_count);
    if (error == cudaErrorInsufficientDriver)
        snprintf(why, len, "the NVIDIA driver is too old for CUDA %d.%d: it knows CUDA %d.%d",
                 l->cuda_version / 1000, l->cuda_version % 1000 / 10, l->driver_version / 1000,
                 l->driver_version % 1000 / 10);
    else if (error == cudaErrorNoDevice || (error == cudaSuccess && l->device_count == 0))
        snprintf(why, len, "the NVIDIA driver finds no GPU%s",
                 getenv("CUDA_VISIBLE_DEVICES") ? " among CUDA_VISIBLE_DEVICES" : "");
    else if (error != cudaSuccess)
        snprintf(why, len, "the CUDA runtime cannot count the GPUs: %s",
                 cuda->cudaGetErrorString(error));
    return error == cudaSuccess && l->device_count > 0 ? 0 : -1;
}

int libraries_load(struct libraries *out, char *why, size_t len)
{
    char ignored[256];
    *out = (struct libraries){0};
    if (load(&cuda_library, &out->cuda, why, len) != 0 ||
        load(&nccl_library, &out->nccl, why, len) != 0 || find_devices(out, why, len) != 0)
        return -1;
    out->nccl.ncclGetVersion(&out->nccl_version);
    out->has_nvml = load(&nvml_library, &out->nvml, ignored, sizeof ignored) == 0;
    return 0;
}

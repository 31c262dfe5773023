/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the CUDA runtime.
 */
#include "cuda.h"

#include <dlfcn.h>

struct cuda cuda;

int cuda_load(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {{"cudaSetDevice", offsetof(struct cuda, set_device)},
                   {"cudaGetDevice", offsetof(struct cuda, get_device)},
                   {"cudaMalloc", offsetof(struct cuda, malloc)},
                   {"cudaFree", offsetof(struct cuda, free)},
                   {"cudaHostAlloc", offsetof(struct cuda, host_alloc)},
                   {"cudaMemcpyAsync", offsetof(struct cuda, memcpy_async)},
                   {"cudaMemsetAsync", offsetof(struct cuda, memset_async)},
                   {"cudaStreamCreateWithFlags", offsetof(struct cuda, stream_create)},
                   {"cudaStreamSynchronize", offsetof(struct cuda, stream_synchronize)},
                   {"cudaLaunchHostFunc", offsetof(struct cuda, launch_host)},
                   {"cudaMemGetInfo", offsetof(struct cuda, mem_get_info)},
                   {"cudaGetErrorString", offsetof(struct cuda, error_string)},
                   {"cudaStreamBeginCapture", offsetof(struct cuda, begin_capture)},
                   {"cudaStreamEndCapture", offsetof(struct cuda, end_capture)}};
    void *object = dlopen("libcudart.so.13", RTLD_NOW);
    if (!object)
        object = dlopen("libcudart.so.12", RTLD_NOW);
    for (size_t i = 0; object && i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(object, symbols[i].name);
        if (!address)
            return -1;
        memcpy((char *)&cuda + symbols[i].offset, &address, sizeof address);
    }
    return object ? 0 : -1;
}

void cuda_must(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, cuda.error_string(error));
    exit(1);
}

void *cuda_new(int device, size_t len)
{
    void *ptr = NULL;
    cuda_must(cuda.set_device(device), "cudaSetDevice");
    cuda_must(cuda.malloc(&ptr, len ? len : 1), "cudaMalloc");
    return ptr;
}

void *cuda_new_stream(int device)
{
    void *stream = NULL;
    cuda_must(cuda.set_device(device), "cudaSetDevice");
    cuda_must(cuda.stream_create(&stream, CUDA_NON_BLOCKING), "cudaStreamCreateWithFlags");
    return stream;
}

void cuda_copy(int device, void *dst, const void *src, size_t len)
{
    static void *streams[16];
    cuda_must(cuda.set_device(device), "cudaSetDevice");
    if (!streams[device])
        streams[device] = cuda_new_stream(device);
    cuda_must(cuda.memcpy_async(dst, src, len, CUDA_COPY, streams[device]), "cudaMemcpyAsync");
    cuda_must(cuda.stream_synchronize(streams[device]), "cudaStreamSynchronize");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See capture.h. Of the modes: a capture that began with cudaStreamCaptureModeGlobal is broken by
 * an unsafe call in any thread, and one with ThreadLocal by one in its thread; a thread in mode
 * Relaxed breaks none.
 */
#include "capture.h"

#include "cudart.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { CAPTURES_MAX = 16 };

static struct capture {
    struct CUstream_st *stream; /* NULL: free */
    pthread_t thread;
    int mode;
    bool invalid;
} captures[CAPTURES_MAX];
static atomic_uint ncaptures;
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int thread_mode = cudaStreamCaptureModeGlobal;

/* With the lock. NULL: the stream does not capture. */
static struct capture *capture_of(const struct CUstream_st *stream)
{
    for (int i = 0; i < CAPTURES_MAX; i++)
        if (captures[i].stream == stream)
            return &captures[i];
    return NULL;
}

static bool capture_is_unsafe(const char *function)
{
    static const char *const names[] = {"cudaMalloc",
                                        "cudaFree",
                                        "cudaHostAlloc",
                                        "cudaMallocHost",
                                        "cudaFreeHost",
                                        "cudaEventQuery",
                                        "cudaStreamQuery",
                                        "cudaEventSynchronize",
                                        "cudaStreamSynchronize",
                                        "cudaMemcpy",
                                        "cudaMemset",
                                        "cudaDeviceSynchronize"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(function, names[i]) == 0)
            return true;
    return false;
}

int capture_check_call(const char *function)
{
    bool broken = false;
    if (!atomic_load(&ncaptures) || thread_mode == cudaStreamCaptureModeRelaxed ||
        !capture_is_unsafe(function))
        return cudaSuccess;
    pthread_mutex_lock(&capture_lock);
    for (struct capture *c = captures; c < captures + CAPTURES_MAX; c++) {
        bool own = pthread_equal(c->thread, pthread_self());
        bool others =
            c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        if (!c->stream || c->mode == cudaStreamCaptureModeRelaxed || (!own && !others))
            continue;
        fake_log("libcudart", "%s invalidates the capture of a stream", function);
        c->invalid = broken = true;
    }
    pthread_mutex_unlock(&capture_lock);
    return broken ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

int capture_check_work(const struct CUstream_st *stream)
{
    if (!atomic_load(&ncaptures))
        return cudaSuccess;
    pthread_mutex_lock(&capture_lock);
    struct capture *c = capture_of(stream);
    if (c) {
        fake_log("libcudart", "work on a stream that captures, which the stand-in does not record");
        c->invalid = true;
    }
    pthread_mutex_unlock(&capture_lock);
    return c ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* ---- exports ---- */

int cudaStreamBeginCapture(struct CUstream_st *stream, int mode)
{
    int code = cuda_enter("cudaStreamBeginCapture");
    struct CUstream_st *s = code ? NULL : stream_get(stream);
    if (code)
        return cuda_return(code);
    if (!s)
        return cuda_return(cudaErrorInvalidResourceHandle);
    if (s != stream) /* the default stream cannot capture */
        return cuda_return(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&capture_lock);
    struct capture *c = capture_of(s) ? NULL : capture_of(NULL);
    if (c) {
        *c = (struct capture){.stream = s, .thread = pthread_self(), .mode = mode};
        atomic_fetch_add(&ncaptures, 1);
    }
    pthread_mutex_unlock(&capture_lock);
    return cuda_return(c ? cudaSuccess : cudaErrorIllegalState);
}

/* The graph is no object that other functions take. */
int cudaStreamEndCapture(struct CUstream_st *stream, void **graph)
{
    int code = cuda_enter("cudaStreamEndCapture");
    *graph = NULL;
    if (code)
        return cuda_return(code);
    pthread_mutex_lock(&capture_lock);
    struct capture *c = stream ? capture_of(stream) : NULL;
    if (c) {
        code = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
        *c = (struct capture){0};
        atomic_fetch_sub(&ncaptures, 1);
    }
    pthread_mutex_unlock(&capture_lock);
    return cuda_return(c ? code : cudaErrorIllegalState);
}

/* Using the default stream is an error while a stream captures that waits for it. */
int cudaStreamIsCapturing(struct CUstream_st *stream, int *status)
{
    int code = cuda_enter("cudaStreamIsCapturing");
    struct CUstream_st *s = code ? NULL : stream_get(stream);
    *status = cudaStreamCaptureStatusNone;
    if (code || !s)
        return cuda_return(code ? code : cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&capture_lock);
    const struct capture *own = capture_of(s);
    if (own)
        *status = own->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    for (const struct capture *c = captures; s != stream && c < captures + CAPTURES_MAX; c++)
        if (c->stream && !(stream_flags(c->stream) & cudaStreamNonBlocking) &&
            stream_device(c->stream) == stream_device(s))
            code = cudaErrorStreamCaptureImplicit;
    pthread_mutex_unlock(&capture_lock);
    return cuda_return(code);
}

int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    int before = thread_mode;
    if (*mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
        return cuda_return(cudaErrorInvalidValue);
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

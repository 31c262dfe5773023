/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph capture. A stream that captures records its work; operations do not begin after it, since
 * they are launched by the host when both ends, or all ranks, are ready (scheduler.h, p2p.h), and a
 * replay has no host. cuda_memory_stream_check refuses them.
 *
 * While another stream of the process captures (in CUDA's mode "global", which is the default),
 * every thread is prohibited from calls that CUDA deems unsafe: allocations, and the query of an
 * event. They would invalidate that capture, which has nothing to do with this backend. The calls
 * of the backend concern its own streams and memory, so it makes them in the mode "relaxed".
 */
#ifndef NCCL_CAPTURE_H
#define NCCL_CAPTURE_H

#include "cuda_api.h"

/* Relaxes the mode of the calling thread from now on. Returns the mode that was, for
 * capture_restore. */
static inline enum cudaStreamCaptureMode capture_relax(const struct cuda_api *cuda)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda->cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static inline void capture_restore(const struct cuda_api *cuda, enum cudaStreamCaptureMode before)
{
    cuda->cudaThreadExchangeStreamCaptureMode(&before);
}

#endif

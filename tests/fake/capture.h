/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph capture of the stand-in libcudart: which streams capture, and which calls break a capture.
 * Nothing is recorded: a stream that captures refuses all work, which invalidates the capture. So
 * does an unsafe call, as CUDA defines it, in a thread whose mode does not allow it.
 */
#ifndef FAKE_CAPTURE_H
#define FAKE_CAPTURE_H

#include "stream.h"

/* cudaSuccess; or the error of a call that is unsafe now, or of work on a stream that captures. */
int capture_check_call(const char *function);
int capture_check_work(const struct CUstream_st *stream);

#endif

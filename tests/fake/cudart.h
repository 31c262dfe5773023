/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the exported functions of the stand-in libcudart.
 */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H

#include "memory.h"
#include "stream.h"

/* Checks that precede every call; cudaSuccess: continue. */
int cuda_enter(const char *function);
/* Remembers an error for cudaGetLastError and returns it. */
int cuda_return(int code);

#endif

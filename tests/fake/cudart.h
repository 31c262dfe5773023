/* SPDX-License-Identifier: Apache-2.0
 *
 * What the exported functions of the stand-in libcudart have in common.
 */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H

#include "memory.h"
#include "stream.h"

/* The error with which the call ends before it begins; cudaSuccess: go on. */
int cuda_enter(const char *function);
/* Remembers an error for cudaGetLastError and returns it. */
int cuda_return(int code);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction kernels for x86-64 CPUs with AVX2 and F16C (2013 and later); reduce.c tests the CPU
 * before it uses them. On other architectures this file is empty.
 */
#ifdef __x86_64__
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#define __F16C__ 1
#else
#pragma GCC target("avx2,f16c")
#endif

#define KERNELS reduce_kernels_avx2
#include "core/reduce_kernels.h"

#ifdef __clang__
#pragma clang attribute pop
#endif

#else
typedef int reduce_avx2_is_empty_here;
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction kernels for any CPU that the compiler targets by default.
 */
#define KERNELS reduce_kernels_generic
#include "core/reduce_kernels.h"

/* SPDX-License-Identifier: Apache-2.0
 *
 * Last words of a rank that crashes: the signal, the address and a backtrace, on stderr, before the
 * signal takes its course. A workload that installs handlers of its own replaces these.
 */
#ifndef ENGINE_CRASH_H
#define ENGINE_CRASH_H

#include <stdint.h>

void crash_install(uint32_t rank); /* for the process */
void crash_thread(
    void); /* for every thread that runs foreign code: a stack to crash on; freed at its end */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The payloads of the frames with which a rank takes part in a rendezvous (base/wire.h), for tests
 * of the stores that answer them. The caller frees them with buf_fini.
 */
#ifndef TESTS_UNIT_RDV_FRAMES_H
#define TESTS_UNIT_RDV_FRAMES_H

#include "base/buf.h"

/* The group is "g". */
struct buf rdv_frames_join(const char *scope, uint64_t timeout_ns, uint32_t n,
                           const uint32_t *ranks, const char *identity);
struct buf rdv_frames_agree(const char *scope, uint64_t timeout_ns, uint32_t n,
                            const uint32_t *ranks, int status);
struct buf rdv_frames_put(const char *scope, const char *key, const char *value);
struct buf rdv_frames_get(const char *scope, const char *key);
struct buf rdv_frames_fence(const char *scope, uint32_t number);
struct buf rdv_frames_leave(const char *scope);

#endif

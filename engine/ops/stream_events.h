/* SPDX-License-Identifier: Apache-2.0
 *
 * struct stream_events: an event for each stream of the calls of a request, recorded when the
 * request was started. The request is executed when all of them have passed, so collrun_start does
 * not wait for the streams.
 */
#ifndef ENGINE_OPS_STREAM_EVENTS_H
#define ENGINE_OPS_STREAM_EVENTS_H

#include <collrun/types.h>

struct group_backend;
struct stream_events;

/* For calls that are checked, trimmed and completed. OK; UNSUPPORTED: a kind of memory has no
 * events, and the caller has to wait for the streams (bounce.h); or a failure, with its cause
 * stored. */
int stream_events_record(const struct group_backend *gb, const struct collrun_call *calls,
                         uint32_t n, struct stream_events **out);
/* OK: all have passed. AGAIN: not yet. Or a failure, with its cause stored. Does not block. */
int stream_events_query(struct stream_events *events);
void stream_events_free(struct stream_events *events); /* accepts NULL */

#endif

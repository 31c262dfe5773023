/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounce buffers: calls with buffers in device memory, for a backend that works on host memory. The
 * buffers are copied to host memory that the devices reach, the calls run on the copies, and
 * received data is copied back.
 */
#ifndef ENGINE_OPS_BOUNCE_H
#define ENGINE_OPS_BOUNCE_H

#include <collrun/types.h>

struct bounce;
struct group_backend;
struct route;

/* Waits for the work on the streams of calls as bounce_in takes them: for device memory that a
 * transport moves, and for copies that are made later. On failure the cause is stored. */
int bounce_await_streams(const struct group_backend *gb, const struct collrun_call *calls,
                         uint32_t n);

/* Replaces the buffers of `n` checked, trimmed and completed calls by copies of them, if the route
 * says so; else *out is unchanged. The copies are made after the work on the calls' streams, unless
 * it has ended already (route.settled); waits for them. On failure the cause is stored. */
int bounce_in(const struct route *route, struct collrun_call *calls, uint32_t n,
              struct bounce **out);
/* After the operation has ended with `status`: copies received data back and frees. Returns the
 * status that the caller gets. */
int bounce_out(struct bounce *bounce, int status);

/* ---- events of streams ---- */

/* struct stream_events: an event for each stream of the calls of a request, recorded when the
 * request was started. The request is executed when all of them have passed, so collrun_start does
 * not wait for the streams. */

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

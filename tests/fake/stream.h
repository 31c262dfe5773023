/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events of the stand-in libcudart. Work on the default stream waits for all blocking
 * streams of its device, and their work for it, as with CUDA's legacy default stream.
 */
#ifndef FAKE_STREAM_H
#define FAKE_STREAM_H

#include "device.h"

/* NULL: out of memory. */
struct CUstream_st *stream_new(int device, unsigned flags, int priority);
/* The stream that a program passes; NULL and 1 mean the default stream of the current device.
 * Returns NULL if it is not a stream, or was destroyed. */
struct CUstream_st *stream_get(struct CUstream_st *stream);
/* Queued work still runs. */
void stream_destroy(struct CUstream_st *stream);
int stream_device(const struct CUstream_st *stream);
unsigned stream_flags(const struct CUstream_st *stream);
int stream_priority(const struct CUstream_st *stream);

/* Appends work; returns its number, from 1. 0: out of memory. */
uint64_t stream_push(struct CUstream_st *stream, void (*run)(void *arg), void *arg);
/* The number of the last work; whether work `n` is done; waits until it is. */
uint64_t stream_last(struct CUstream_st *stream);
bool stream_done(struct CUstream_st *stream, uint64_t n);
void stream_wait(struct CUstream_st *stream, uint64_t n);

struct CUevent_st *event_new(int device, unsigned flags);
bool event_valid(const struct CUevent_st *event);
void event_destroy(struct CUevent_st *event);
int event_device(const struct CUevent_st *event);
bool event_timed(const struct CUevent_st *event);
bool event_record(struct CUevent_st *event, struct CUstream_st *stream);
/* Whether the last record is done; true if there is none. */
bool event_done(struct CUevent_st *event);
void event_wait(struct CUevent_st *event);
bool event_order(struct CUstream_st *stream, struct CUevent_st *event);
/* When the stream reached it, in seconds; 0: never recorded. */
double event_time(struct CUevent_st *event);

/* True in the thread that runs a host function: CUDA calls are forbidden there. */
extern _Thread_local bool stream_in_host_function;

#endif

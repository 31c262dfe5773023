/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred requests. Most requests are waited for by the thread that has started them, before
 * anything else happens in their queue, and it is the waiting thread that executes them. Such a
 * request needs no list and no lock between its start and its wait:
 *
 * - pq_defer leaves it in `requests.deferred`, a place for one request.
 * - The thread that waits takes it out, is directly inside the queue, and executes it as a blocking
 *   call is executed.
 * - Whatever else needs the queue (another request, a poll, a cancellation, the worker a
 * millisecond later, the report of what ranks wait for) first puts it into the queue: pq_admit.
 * Then it is a request as any other, in its order.
 * - It counts in `pending` from the start, so no blocking call overtakes it.
 */
#ifndef ENGINE_PROGRESS_PROGRESS_DEFERRED_H
#define ENGINE_PROGRESS_PROGRESS_DEFERRED_H

#include "progress/progress_queue.h"

/* For a request of this queue, with `needs_exec` set, that need not begin before it is waited for.
 * False: the queue is not idle, or contended, or the worker sleeps; nothing has happened. */
bool pq_defer(struct collrun_request *r);

/* True: the request is deferred no more, and this thread is directly inside; until
 * pq_leave_deferred. */
bool pq_enter_deferred(struct collrun_request *r);
/* `status`: how it has ended. AGAIN: another thread needs the queue, and the messages of the
 * request have begun; it is one in flight from now on. */
void pq_leave_deferred(struct collrun_request *r, int status);

#endif

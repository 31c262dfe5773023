/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker thread of a progress queue: it drives the requests that no other thread drives. The
 * thread that starts a request is expected to wait for it soon, so the worker looks at the queue
 * again LOOK_NS later, and takes over what is still where it was. While requests are submitted it
 * looks every LOOK_NS; when there are no more, or a thread waits for them, it sleeps until a thread
 * wakes it.
 */
#ifndef ENGINE_PROGRESS_PROGRESS_WORKER_H
#define ENGINE_PROGRESS_PROGRESS_WORKER_H

#include "progress/progress_queue.h"

/* With the lock held. Starts the thread unless it runs. False: there is no thread. */
bool pq_worker_start(struct progress_queue *pq);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that the threads of this rank wait for, as a WAIT_REPORT frame. The runner
 * compares the frames of all ranks and decides whether any rank can continue (diagnose/deadlock.h).
 *
 * - The calls that threads are in, the open receives and the counts of messages are those of the
 *   rank's record (base/record_cut.h); a thread that waits for the members of a new group is in
 *   group_table.forming. Without a record, or a slot in it, a call is not known, and not reported.
 * - At every tick the service thread compares the words of the threads that call. While they
 * change, that is all. Once they do not, it takes a snapshot at every tick, and sends one only if
 * two in a row are equal. A thread that went through a call in between has changed its word.
 * - A frame is certain if every other thread of the process is blocked, too, and none
 *   is in a wait of the engine that is not for an operation (threads_busy), in two snapshots, a
 *   tick apart. One that is not certain explains a time-out, but never ends a job. It says whether
 *   a thread that has called this library before is free to call it again.
 * - A rank that continues after its frame withdraws it by one without waits that is not certain,
 *   unless an operation has timed out, which the frame explains.
 *
 * A frame also holds the receives that were not waited for yet and the numbers of messages that
 * were sent and received, of splits and of creations, which only grow. A frame that is old when it
 * is read can therefore hide a deadlock, but never invent one.
 */
#ifndef ENGINE_OBSERVE_WAIT_REPORT_H
#define ENGINE_OBSERVE_WAIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct group_table;

enum { WAIT_REPORT_TICK_MS = 100 };

/* Hashes of the counters at the last tick, of the last snapshot and of the last frame that was
 * sent; 0 = none. */
struct wait_reporter {
    struct group_table *groups;
    uint64_t counters, last, sent;
    bool sent_certain;
};

/* True: no call has begun since the last tick, and no blocking one has ended.
 * Called by the service thread every WAIT_REPORT_TICK_MS, while all workloads run. `background`: a
 * background workload has not ended. It is stopped, and its waits aborted, when all others have
 * ended, so no report is certain. */
bool wait_report_update(struct wait_reporter *w, bool background);

#endif

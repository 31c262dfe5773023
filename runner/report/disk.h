/* SPDX-License-Identifier: Apache-2.0
 *
 * The files below one folder, written by a thread, in the order of the calls. No call waits for the
 * disk: a file system that stalls, as a shared one does at a failover, delays the files and not the
 * job.
 *
 *  - What waits to be written is bounded by the caller, who asks disk_full before it lets more
 *    arrive. Appended bytes above DISK_QUEUE_MAX are lost, with ENOBUFS.
 *  - An error ends the file that it concerns and is kept until disk_take_error.
 *  - A link that another user may have made in the folder is not followed.
 *
 * All functions are called by the thread that opened it.
 */
#ifndef RUNNER_REPORT_DISK_H
#define RUNNER_REPORT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_QUEUE = 4 << 20, DISK_QUEUE_MAX = 64 << 20, DISK_NAME = 128 };

struct disk;
struct disk_error {
    char name[DISK_NAME];
    int err; /* an errno */
};

/* Takes `dir`, the descriptor of the folder. `nfiles`: how many files are open for appending.
 * NULL: see errno; `dir` is still the caller's. */
struct disk *disk_open(int dir, uint32_t nfiles);
/* Waits up to `limit_ms` for what is queued, and frees. False: the disk has not accepted it. */
bool disk_close(struct disk *d, unsigned limit_ms);

/* Appends to a file, which is opened at its first byte. The number says which; `name` is the same
 * in each call. After an error nothing is written to that number any more. */
void disk_append(struct disk *d, uint32_t file, const char *name, const void *bytes, size_t len);
/* Closes the files with the numbers first..last; their names may change. */
void disk_end_files(struct disk *d, uint32_t first, uint32_t last);
/* Writes a whole file under a temporary name and renames it: a reader sees all of it or nothing. */
void disk_replace(struct disk *d, const char *name, const void *bytes, size_t len);
/* An empty file, or the file as it is. */
void disk_create(struct disk *d, const char *name);
void disk_make_folder(struct disk *d, const char *name);
void disk_rename(struct disk *d, const char *from, const char *to); /* an error is not reported */

/* So much is queued that no more should arrive now. */
bool disk_full(struct disk *d);
bool disk_is_idle(struct disk *d); /* everything is written */
/* Waits up to `limit_ms` until it is. */
bool disk_wait(struct disk *d, unsigned limit_ms);
/* Readable after an error, and when disk_full has become false; disk_acknowledge resets it. */
int disk_event(const struct disk *d);
void disk_acknowledge(struct disk *d);
/* The oldest error that was not taken; false: none. Of many, the last ones are dropped except the
 * very last. */
bool disk_take_error(struct disk *d, struct disk_error *error);

#endif

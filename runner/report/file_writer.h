/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread between a pipe and a file. Writing to a regular file blocks while its disk stalls,
 * whatever O_NONBLOCK says; the pipe accepts bytes until it is full, and poll tells when.
 *
 *  - The caller writes to file_writer_fd and counts the bytes; the thread appends them to the file.
 *  - An error of the file is kept until it is taken; the bytes that it concerns are dropped.
 */
#ifndef RUNNER_REPORT_FILE_WRITER_H
#define RUNNER_REPORT_FILE_WRITER_H

#include <stdint.h>

struct file_writer;

/* `file` stays the caller's. NULL: no memory, descriptor or thread. */
struct file_writer *file_writer_new(int file);
/* `given`: how many bytes were written to the pipe. If the file has not accepted all of them within
 * a second, the thread goes on until the process ends, and so does `w`. */
void file_writer_free(struct file_writer *w, uint64_t given);

int file_writer_fd(const struct file_writer *w); /* non-blocking */
/* How many bytes are in the file, or were dropped after an error. */
uint64_t file_writer_done(const struct file_writer *w);
/* Readable when file_writer_done has grown since the last file_writer_acknowledge. */
int file_writer_event(const struct file_writer *w);
void file_writer_acknowledge(struct file_writer *w);
/* An errno, once; 0: none. */
int file_writer_take_error(struct file_writer *w);

#endif

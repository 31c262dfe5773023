/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a trace of any format: Chakra if the name of the file ends with .et, else by its first
 * bytes, unless the caller names a format.
 */
#ifndef REPLAY_FORMAT_H
#define REPLAY_FORMAT_H

#include "trace.h"

#define FORMAT_FILE_MAX ((size_t)1 << 31) /* bytes */

/* In the order of the choices of the parameter `format`. */
enum format { FORMAT_AUTO, FORMAT_MPI, FORMAT_PYTORCH, FORMAT_CHAKRA };

/* Reads the file of trace rank `rank`, of `world_size` ranks (0: the file has to say it). 0, or -1
 * with an error in `t`. The caller calls trace_fini in both cases. */
int format_read(struct trace *t, const char *file, enum format format, int rank, int world_size);
/* The same for a text in memory, which a byte 0 follows; t is zeroed but for file, rank and
 * world_size. */
int format_parse(struct trace *t, char *text, size_t len, enum format format);

/* Adds the times of a PyTorch trace from the timeline that Kineto wrote of the same run. */
int format_read_times(struct trace *t, const char *file);

/* The readers. */
int mpi_read(struct trace *t, const char *text, size_t len);
int pytorch_read(struct trace *t, char *text, size_t len);
int kineto_read(struct trace *t, char *text, size_t len);
int chakra_read(struct trace *t, const char *text, size_t len);
#endif

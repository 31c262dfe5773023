/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether copies that another core reads are plain or streaming ones.
 *
 * - If the two cores share a cache, plain stores are three times faster than streaming ones, of
 *   which the reader finds nothing in its cache. If they do not, every plain store has to fetch the
 *   line's ownership from another cache, and is four to ten times slower. Which case holds depends
 *   on where the ranks run, and changes: virtual machines do not report it, and are moved.
 * - So plain copies are measured, some together, since one of them may find cold lines. The
 *   streaming ones would prove nothing: they are fast for the sender in both cases.
 * - While plain copies are slow, copies stream. Then plain ones get a trial, which says little
 *   before a lap over the memory that is written: until then, lines that were streamed are in no
 *   cache. Each trial that is lost doubles the time until the next one.
 */
#ifndef SHM_TRANSPORT_COPY_POLICY_H
#define SHM_TRANSPORT_COPY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed at the start. */
struct copy_policy {
    bool streams;    /* how to copy now */
    bool trial;      /* of plain copies */
    size_t left;     /* bytes until that ends, streaming or a trial */
    size_t streamed; /* bytes that streamed before this trial, or do now */
    uint32_t slow;   /* windows of plain copies in a row that were slow */
    uint32_t brief;  /* copies that were too short to be measured one by one */
    size_t len;      /* bytes of plain copies in this window, */
    uint64_t cycles; /* and the cycles of the time stamp counter that they took */
};

/* A copy of `len` bytes has taken `cycles`. */
void copy_policy_measured(struct copy_policy *p, size_t len, uint64_t cycles);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of MPI whose sender and receiver disagree: the types differ, or the message is longer
 * than the receive. MPI itself compares no types, and tells the receiver of a message that is too
 * long no more than its length.
 *
 * The messages of one source, destination, tag and communicator are received in the order in which
 * they were sent. So the n-th send belongs to the n-th receive, if the records have all of both.
 * Nothing is found where that is not certain:
 *
 * - where a record has lost its first operations, or where any thread may call (MULTIPLE);
 * - in a communicator in which the receiver has received from any source or with any tag, has
 *   probed, canceled, or failed.
 *
 * Types count as equal that programs mix: signed and unsigned ones, and those of one byte with all
 * others. Derived types with different elements are not compared.
 */
#ifndef RUNNER_DIAGNOSE_MESSAGE_PAIRS_H
#define RUNNER_DIAGNOSE_MESSAGE_PAIRS_H

#include "diagnose/verdict_types.h"

/* A rank has ended in MPI, or (WIRE_HOST) all ranks have ended well. True: two ranks disagree, and
 * the class of the verdict becomes CAUSE_MISMATCH. Of a rank that has ended, only a message counts
 * that is too long for a receive of that rank which has not completed. */
bool message_pairs_find(const struct evidence *e, uint32_t rank, struct arena *arena,
                        struct verdict *v);

#endif

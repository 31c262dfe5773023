/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffers of a call, and their values where they are checked: element j of a block has a value
 * that follows from its sender, its receiver and j, so every receiver computes what it expects.
 */
#ifndef REPLAY_DATA_H
#define REPLAY_DATA_H

#include <collrun/collrun.h>

struct data_call {
    struct collrun_call *call;
    int rank, size; /* of the group */
};

/* Bytes of the two buffers. */
size_t data_send_bytes(const struct data_call *d);
size_t data_recv_bytes(const struct data_call *d);
/* Writes what the rank sends, and wrong values to what it receives. */
void data_fill(const struct data_call *d, void *send, void *recv);
/* Whether all of what was received is right; `received`: elements of a message. */
bool data_right(const struct data_call *d, const void *recv, size_t received);
#endif

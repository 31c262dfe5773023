/* SPDX-License-Identifier: Apache-2.0
 *
 * Large messages: straight from and to the caller's memory, on slots that name the call. A transfer
 * is one stretch of memory with any number of sends and receives in flight on it, cut into pieces:
 * Gloo holds a connection's lock and the buffer while it copies one, so pieces bound how long an
 * abort or another message has to wait. Pieces of one slot arrive in order.
 */
#ifndef BACKENDS_GLOO_TRANSFER_H
#define BACKENDS_GLOO_TRANSFER_H

#include "mesh.h"

namespace collrun_gloo
{

class group;

constexpr size_t piece_bytes = 1u << 20;
constexpr size_t long_piece = 4u << 20; /* where overlap brings less than a wake-up costs */

class transfer
{
  public:
    transfer(group &g, const void *memory, size_t len);

    /* Neither waits. `head` makes the slot; both sides give the same. */
    void send(int peer, const signature &head, size_t offset, size_t len,
              size_t piece = piece_bytes);
    void recv(int peer, const signature &head, size_t offset, size_t len,
              size_t piece = piece_bytes);

    /* Wait for one more piece, or for all. */
    void await_piece();
    void await_departure(); /* of one piece */
    void await_arrivals();
    void await_departures();

    uint32_t arriving() const
    {
        return arriving_;
    }
    uint32_t departing() const
    {
        return departing_;
    }

  private:
    group &group_;
    std::unique_ptr<buffer> buffer_;
    std::vector<uint32_t> owed_, owing_; /* pieces by peer */
    uint32_t arriving_ = 0, departing_ = 0;
};

} // namespace collrun_gloo
#endif

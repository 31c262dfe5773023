/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers. Gloo tells from whom a piece came, but when two complete at once it names the later
 * twice; the counts by peer are therefore only used to say who is missing.
 */
#include "transfer.h"

#include "group.h"

#include <algorithm>

namespace collrun_gloo
{

transfer::transfer(group &g, const void *memory, size_t len)
    : group_(g), buffer_(g.net().make_buffer(const_cast<void *>(memory), len)),
      owed_(static_cast<size_t>(g.size())), owing_(static_cast<size_t>(g.size()))
{
}

void transfer::send(int peer, const signature &head, size_t offset, size_t len, size_t piece)
{
    const uint64_t slot = slot_of(head);
    for (size_t done = 0; done < len; done += piece) {
        group_.net().post(peer, {*buffer_, slot, offset + done, std::min(piece, len - done)},
                          false);
        owing_[static_cast<size_t>(peer)]++;
        departing_++;
    }
}

void transfer::recv(int peer, const signature &head, size_t offset, size_t len, size_t piece)
{
    const uint64_t slot = slot_of(head);
    for (size_t done = 0; done < len; done += piece) {
        group_.net().expect(peer, {*buffer_, slot, offset + done, std::min(piece, len - done)},
                            true);
        owed_[static_cast<size_t>(peer)]++;
        arriving_++;
    }
}

void transfer::await_piece()
{
    int from = no_peer;
    group_.await(*buffer_, mesh::receiving, {no_peer, &owed_}, &from);
    arriving_--;
    if (from >= 0 && owed_[static_cast<size_t>(from)] > 0)
        owed_[static_cast<size_t>(from)]--;
}

void transfer::await_departure()
{
    group_.await(*buffer_, mesh::sending, {no_peer, &owing_});
    departing_--;
}

void transfer::await_arrivals()
{
    while (arriving_ > 0)
        await_piece();
}

void transfer::await_departures()
{
    while (departing_ > 0)
        await_departure();
}

} // namespace collrun_gloo

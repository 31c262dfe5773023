/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets between the members of a mesh, over Gloo's send and receive.
 *
 * Gloo can wait for a buffer, but cannot test one, and needs the length of a message in advance. So
 * packets have one of three sizes, and each member keeps a ring of posted receives per peer and
 * size. All these receives belong to one buffer of Gloo's, which ends a wait for any of them; the
 * last word of each packet (its mark) shows which one has arrived. A packet is read only after Gloo
 * has reported as many receives as there are marks.
 *
 * A sender uses a place in the peer's ring again after a packet of that peer has said that it was
 * taken (credits). Some places are reserved for packets that carry nothing else.
 *
 * Each receive that is posted is a message of Gloo's to the peer, and most pairs of a large group
 * never send a packet. So a ring of such a group begins with few receives, its window, and each
 * packet that is taken adds one, until there is one for each place. The sender counts alike, by the
 * credits.
 */
#ifndef BACKENDS_GLOO_RINGS_H
#define BACKENDS_GLOO_RINGS_H

#include "abortable.h"

#include <utility>
#include <vector>

namespace collrun_gloo
{

constexpr unsigned ring_sizes = 2;

struct packet {
    uint32_t type, use;         /* enum packet_type; of the mesh */
    uint64_t sequence;          /* of all packets from this sender to this receiver, from 1 */
    uint32_t taken[ring_sizes]; /* packets of the receiver that the sender has taken, modulo 2^32 */
    uint32_t message;
    uint32_t data_len; /* bytes that follow */
    collrun_envelope envelope;
    uint64_t len; /* bytes of the message: those that follow, or those that are announced */
};
static_assert(sizeof(packet) == 56, "packets travel");

constexpr size_t mark_bytes = sizeof(uint64_t);
constexpr size_t eager_limit = 64u << 10;

class rings
{
  public:
    /* Uses the slots from `first_slot` to `first_slot` + 15. */
    rings(abortable_context &context, uint32_t rank, uint32_t size, uint64_t first_slot);
    ~rings();
    rings(const rings &) = delete;
    rings &operator=(const rings &) = delete;

    /* Sends a packet with `p.len` bytes of data, if `data` is not NULL. False: there is no place
     * for it. Throws what Gloo throws if the connection is lost. */
    bool send(uint32_t peer, const packet &p, const void *data, bool reserved);
    /* Whether credits of this peer are due. */
    bool owes(uint32_t peer) const;
    /* Whether so many packets have been sent to the peer as this one of it reports as taken. */
    bool has_sent(uint32_t peer, const packet &from) const;

    /* What has arrived from `peer`. A packet may overtake one of another size, whose receive was
     * posted later. */
    struct arrival {
        uint32_t peer, count;
    };
    const std::vector<arrival> &packets() const
    {
        return packets_;
    }
    /* Looks for arrivals. Does not wait for any that has not begun. False also after poke(), or if
     * Gloo is slow. */
    bool collect();
    bool has_arrival(uint32_t peer) const;
    /* The next packet in order, of those that the last collect() has found; NULL: it is none of
     * them. One that has come since is marked, but Gloo has not reported it. */
    const packet *front(uint32_t peer) const;
    void pop(uint32_t peer);

    /* Waits for an arrival, or until poke(), which any thread may call. False: a connection is
     * lost, and this waits no longer: the caller looks again after a while. */
    bool wait();
    /* Whether the last collect() did not take all, so that the next wait() would return at once:
     * now it does not. */
    bool take_poke()
    {
        return std::exchange(poked_, false);
    }
    void poke() noexcept
    {
        in_->abortWaitRecv();
    }
    /* Waits until all packets have left this process, or until poke_flush(). True: they have. */
    bool flush();
    void poke_flush() noexcept
    {
        out_->abortWaitSend();
    }

  private:
    struct peer_state {
        uint64_t sent_sequence, next_sequence;
        uint64_t sent[ring_sizes], acked[ring_sizes]; /* to the peer */
        uint64_t taken[ring_sizes], told[ring_sizes]; /* from it */
        uint32_t seen[ring_sizes];                    /* by the last collect(), and not taken yet */
        uint32_t out_window[ring_sizes], in_window[ring_sizes], told_window[ring_sizes];
    };

    char *in_place(uint32_t peer, unsigned size, uint64_t number) const;
    size_t offset(uint32_t peer, unsigned size, uint64_t number) const;
    void post(uint32_t peer, unsigned size, uint64_t number);
    void repost(uint32_t peer, unsigned size, uint64_t number);
    void open(uint32_t peer);
    int fitting(const peer_state &p, size_t len, bool reserved) const;
    uint32_t marks(uint32_t peer, unsigned size) const;
    size_t look();
    enum class outcome { completed, poked, lost };
    outcome take_completion();
    void credit(peer_state &p, const packet &from);
    void take_sent();

    const uint32_t rank_, size_;
    const uint64_t first_slot_;
    const size_t region_; /* bytes of each of the two */
    char *in_memory_, *out_memory_;
    std::unique_ptr<gloo::transport::UnboundBuffer> in_, out_;
    std::vector<peer_state> peers_;
    std::vector<arrival> packets_;
    size_t completions_ = 0;  /* that Gloo has reported, of packets that have not been taken */
    uint64_t unfinished_ = 0; /* sends that are not known to have left */
    bool lost_ = false, poked_ = false;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's TCP pairs with two shorter ways for messages. Gloo tells the peer of every send before it
 * and of every receive: three writes and up to three wake-ups for one message.
 *
 * Where the receiver knows what comes from whom, the former is not needed, and the latter, a grant,
 * can stand for several receives:
 *
 *   receiver: expect(..., grant = false) ... expect(..., grant = true)
 *   sender:   post(..., granted = false), which waits for the grant; and once that message has
 * left, post(..., granted = true) for the others that were granted with it.
 *
 * Where it does not, a letter needs neither: it goes at once and waits at the receiver (inbox.h),
 * up to a limit that its receipts make room in. Beyond that, an offer is answered by a grant when
 * the receiver asks for it, also if there is room by then:
 *
 *   sender:   send_letter(...), and when that says no, offer(...)
 *   receiver: await_letter(...), which is for both
 *
 * All messages of a slot go one of these ways, and nothing goes Gloo's own. Completion, failure and
 * abort are as there.
 *
 * And pairs for connections that are there already. Gloo makes all pairs of a context at once, each
 * with a listening socket of its own, and waits for its I/O thread at every socket that it closes;
 * a group of 64 is 2016 pairs, of which a job uses few. So the backend connects when a connection
 * is first needed (connect.cc), and hands Gloo the socket.
 *
 * All of this is derived from Gloo's classes for what they keep protected. pair.cc has connections
 * and grants, letters.cc the letters.
 */
#ifndef BACKENDS_GLOO_PAIR_H
#define BACKENDS_GLOO_PAIR_H

#include "inbox.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include <deque>

namespace collrun_gloo
{

namespace tcp = gloo::transport::tcp;

/* A stretch of a buffer that travels as one message. */
struct parcel {
    gloo::transport::UnboundBuffer &buffer;
    uint64_t slot;
    size_t offset, len;

    inbox::buffer_ref ref() const
    {
        return static_cast<own_buffer &>(buffer).getWeakNonOwningPtr();
    }
};

class own_pair;

class own_context : public tcp::Context
{
  public:
    own_context(const std::shared_ptr<gloo::transport::Device> &device, int self, int n);
    /* It waits to be joined. */
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr,
                                                                        size_t len) override;
    /* Once it has been made. */
    own_pair &pair(int peer);
    inbox &from(int peer)
    {
        return inboxes_[static_cast<size_t>(peer)];
    }
    /* For these there need not be a connection yet; the latter is as inbox::look. */
    void await_letter(int peer, const parcel &m);
    inbox::answer look_for_letter(int peer, uint64_t slot, inbox::letter *out,
                                  gloo::transport::UnboundBuffer &bell);
    /* The peer has granted a receive that no send has used yet. */
    bool take_grant(int peer, uint64_t slot)
    {
        return Mutator(*this, slot, peer).shiftRemotePendingRecv();
    }

  private:
    std::deque<inbox> inboxes_;
};

class own_pair : public tcp::Pair
{
  public:
    own_pair(own_context &context, tcp::Device *device, int peer,
             std::chrono::milliseconds timeout);
    /* These throw what Gloo throws when the connection has failed. */
    void post(const parcel &m, bool granted);
    void expect(const parcel &m, bool grant);
    /* The letter starts with a signature. False: there is no room, and it is the caller's still. */
    bool send_letter(uint64_t slot, inbox::letter &l);
    /* Nothing else of this slot may be on offer. */
    void offer(const parcel &m);
    /* If one is due. */
    void give_receipt();
    bool is_over();

    /* The rest is for the I/O thread, which need not wait for itself. */

    /* Joins by a connected socket. When that throws, the socket remains the caller's. */
    void adopt(int fd);
    /* Closes the connection; `reset`: what was not yet sent is not sent. Nothing reaches the pair
     * any more, and after one more turn of the loop it can be freed. False: a thread has the pair
     * in hand, and may be waiting for this one. */
    bool sever(bool reset);
    void handleEvents(int events) override;

  protected:
    bool read() override;
    bool write(tcp::Op &op) override;
    void handleReadWrite(int events) override;
    void changeState(state next) noexcept override;

  private:
    /* A letter that may not have left for the network. */
    struct departing {
        std::unique_ptr<char[]> bytes;
        std::unique_ptr<own_buffer> buffer; /* over them; destroyed first */
    };

    void hear_offer(uint64_t slot);
    void receipt_if_due();
    bool fill(void *at, size_t from, size_t until);
    bool read_letter();

    own_context &owner_;
    inbox &in_;
    bool severed_ = false;
    std::unique_ptr<char[]> letter_; /* on its way in */
    inbox::receipt unread_;          /* letters that were sent and not receipted */
    std::deque<departing> departing_;
};

} // namespace collrun_gloo
#endif

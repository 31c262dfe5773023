/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes from one peer before anybody asks for it: letters, which are small messages sent
 * without a question (pair.h), and offers of messages that wait for their receiver. And what is
 * asked for before it comes. Slots say which belongs to which; of one slot there is one at a time.
 * The I/O thread puts things in, the group's thread takes them out, and there may be no connection
 * yet.
 */
#ifndef BACKENDS_GLOO_INBOX_H
#define BACKENDS_GLOO_INBOX_H

#include "common.h"

#include <gloo/transport/tcp/unbound_buffer.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace collrun_gloo
{

/* Gloo's buffer, with what the pairs of this backend need of it. All buffers of a group are such.
 */
class own_buffer : public gloo::transport::tcp::UnboundBuffer
{
  public:
    using gloo::transport::tcp::UnboundBuffer::getWeakNonOwningPtr;
    using gloo::transport::tcp::UnboundBuffer::signalException;
    using gloo::transport::tcp::UnboundBuffer::UnboundBuffer;
};

class inbox
{
  public:
    /* Where a message goes. */
    using buffer_ref = gloo::WeakNonOwningPtr<gloo::transport::tcp::UnboundBuffer>;
    struct place {
        buffer_ref buffer;
        size_t offset = 0, len = 0;
    };
    struct letter {
        std::unique_ptr<char[]> bytes; /* a signature, and what follows it */
        size_t len = 0;
    };
    /* Letters that were taken, to be told to their sender. */
    struct receipt {
        size_t letters = 0, bytes = 0;
    };

    explicit inbox(int peer_) : peer(peer_)
    {
    }
    const int peer;

    /* What there is of a message. taken: it has been handed over; offered: the peer waits to be
     * told to send it; awaited: nothing; left, lost: and nothing comes any more, for the peer has
     * closed its group, or has not. */
    enum answer { taken, offered, awaited, left, lost };

    /* The group's thread. The message goes to `where`, now or when it comes; if it is offered, the
     * caller must see to that. Throws what the connection has ended with. */
    answer expect(uint64_t slot, const place &where);
    /* Only looks; a letter is handed out. When it is awaited, one completion of `bell` tells that
     * anything has come or ended. */
    answer look(uint64_t slot, letter *out, const buffer_ref &bell);
    /* The signatures of the letters that nobody has asked for. */
    std::vector<signature> unasked();

    /* The I/O thread. */
    void deliver(uint64_t slot, letter l);
    /* True if the message is expected, at `where`. */
    bool offer(uint64_t slot, place *where);
    void fail(const std::exception_ptr &why);

    /* Either: true if there is enough to tell. */
    bool receipt_due(receipt *out);

  private:
    void put(const place &where, const letter &l);
    void ring();

    std::mutex lock_;
    std::unordered_map<uint64_t, place> expected_;
    std::unordered_map<uint64_t, letter> letters_;
    std::unordered_set<uint64_t> offered_;
    buffer_ref bell_;
    receipt taken_;
    bool left_ = false;
    std::exception_ptr failed_;
};

/* What waits for the buffer is told, if it is still there. */
void fail_buffer(const inbox::buffer_ref &ref, const std::exception_ptr &why);

/* What a sender may send without having been told that it was taken; a part of it at a time is told
 * of. */
constexpr size_t most_letters = 64, most_letter_bytes = 256u << 10;
constexpr size_t longest_letter = sizeof(signature) + (32u << 10);

} // namespace collrun_gloo
#endif

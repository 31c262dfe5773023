/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of long messages: Gloo moves it straight from and to the caller's memory.
 *
 * Gloo reports what it has moved only to a thread that waits. One that must not wait sees by the
 * last bytes of the memory whether the data is there: they are a mark until then. Data may look
 * like the mark, in its last byte or in all: so the caller also waits now and then, for a short
 * while.
 */
#ifndef BACKENDS_GLOO_BULK_H
#define BACKENDS_GLOO_BULK_H

#include "abortable.h"

#include <unordered_map>

namespace collrun_gloo
{

/* What the engine allocates for a message. */
struct p2p_message {
    collrun_message shared;
    uint32_t posted_for; /* of a receive: its peer, or COLLRUN_ANY_SOURCE until it is matched */
    bool receives;       /* the rest: of a long message */
    uint32_t number;     /* of those of its sender to its receiver */
    uint32_t pieces;     /* that Gloo has not reported as moved */
    union {
        uint64_t mark;   /* of a receive: the last bytes of the memory, until the data arrives */
        uint64_t ask_ns; /* of a send: when to ask for an ACK; 0: it is wanted already */
    };
};

class bulk
{
  public:
    explicit bulk(abortable_context &context) : context_(context)
    {
    }

    /* Gloo gets the memory. Both sides pass the same slot. */
    void send(p2p_message *m, uint64_t slot);
    void recv(p2p_message *m, uint64_t slot);
    /* Whether the last byte of the data is there; `maybe`: those before it are. */
    enum class arrival { no, maybe, yes };
    arrival has_arrived(const p2p_message *m) const;
    /* Waits until the data has been moved (true), or until poke(). Throws what Gloo throws if the
     * connection is lost. */
    bool wait(p2p_message *m);
    /* The data has been moved, and Gloo has reported it or does so now: the memory is free. An
     * abort ends this, too, for Gloo may be slow, and a peer may have claimed it in error. */
    void end(p2p_message *m);

    /* From any thread: ends the wait in progress, or the next one. */
    void poke() noexcept;
    /* Whether the next wait would end at once by a poke: now it does not. */
    bool take_poke() noexcept;
    /* From any thread: Gloo forgets the memory of all messages, until resume(). */
    void revoke() noexcept;
    void resume() noexcept
    {
        revoked_ = false;
    }

  private:
    using UnboundBuffer = gloo::transport::UnboundBuffer;
    template <typename F> void give(p2p_message *m, F move);
    UnboundBuffer *begin_wait(const p2p_message *m);
    void end_wait() noexcept;
    void poke_locked() noexcept;

    abortable_context &context_;
    std::mutex lock_; /* of the next two */
    std::unordered_map<const p2p_message *, std::unique_ptr<UnboundBuffer>> buffers_;
    bool revoked_ = false;
    std::mutex wait_lock_; /* of the next three; taken after lock_ */
    std::condition_variable ended_;
    UnboundBuffer *waited_for_ = nullptr;
    bool poked_ = false;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over a mesh: what struct collrun_transport asks for.
 *
 *     sender                                     receiver
 *     up to eager_limit:
 *       EAGER, with the data              --->   takes the data
 *     more:
 *       RTS; Gloo has the data            --->   gives Gloo the memory
 *       the data, then a notice           --->   (both by Gloo's threads)
 *       done                              <---   ACK
 *
 * Gloo sends the data of a long message when the receiver has given the memory, without the sender.
 * The object stays with its mesh; a group attaches to it and detaches from it. Each group has a
 * number, by which packets of an earlier one are recognised and dropped.
 */
#ifndef BACKENDS_GLOO_TRANSPORT_H
#define BACKENDS_GLOO_TRANSPORT_H

#include "mesh.h"
#include "rings.h"
#include "timer.h"

#include <deque>
#include <unordered_map>

namespace collrun_gloo
{

/* What the engine allocates for a message. */
struct p2p_message {
    collrun_message shared;
    uint32_t posted_for; /* of a receive: its peer, or COLLRUN_ANY_SOURCE until it is matched */
    uint32_t sender_id;  /* of a long receive: the sender's number of the message */
    uint64_t slot;       /* and the slot of the data */
};

class transport
{
  public:
    /* `number`: of this one among those of the mesh. */
    transport(mesh &owner, unsigned number, timer_thread &timers);
    ~transport();

    void attach(const collrun_p2p *engine);
    /* True if nothing is in flight, so that another group may attach. */
    bool detach() noexcept;

    void send(p2p_message *m);
    void post(p2p_message *m);
    void unpost(p2p_message *m);
    void recv(p2p_message *m, const void *data, size_t len);
    bool progress(uint64_t wait_ns);
    /* Throws the failure. */
    void fail(uint32_t peer, int status, const char *text);

    /* From any thread. */
    void wake() noexcept
    {
        rings_.poke();
    }
    void abort() noexcept;
    /* Gloo forgets the memory of all messages. */
    void revoke() noexcept;

  private:
    using buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
    struct peer_state {
        std::deque<p2p_message *> queue; /* sends that have not left */
        std::vector<uint32_t> acks;      /* that have not left */
        uint32_t sends = 0;              /* long ones that have left and are not done */
        uint32_t receives = 0;           /* posted for this peer, or of its messages */
        uint64_t next_slot = 0;
        bool left = false;
    };

    packet head(uint32_t type) const;
    bool start(p2p_message *m);
    void start_long_send(p2p_message *m, uint64_t slot);
    bool start_long_receive(p2p_message *m);
    template <typename F> void give_memory(p2p_message *m, F move);
    void release(p2p_message *m, bool received);
    void end_receive(int notice);
    void end_send(uint32_t id);

    bool take_arrivals();
    bool take_packet(uint32_t from);
    int handle(uint32_t from, const packet &p);
    void handle_acks(const packet &p);
    bool push();
    bool push_acks(uint32_t to);
    void wait(uint64_t wait_ns);
    void check_lost();
    void check_left() const;
    void throw_if_waiting_for(uint32_t peer, bool any) const;
    void throw_if_aborted() const;
    std::string end_of(uint32_t peer) const;
    template <typename F> void with_gloo(uint32_t peer, F f);

    mesh &mesh_;
    const uint64_t first_slot_;
    rings rings_;
    std::vector<peer_state> peers_;
    std::deque<p2p_message *> waiting_; /* long receives without a place for the notice */
    std::unordered_map<int, p2p_message *> by_notice_;
    const collrun_p2p *engine_ = nullptr;
    uint32_t any_receives_ = 0;
    uint64_t last_check_ns_ = 0;
    bool any_left_ = false;
    std::atomic<bool> aborted_{false};

    std::mutex lock_; /* of the next two */
    std::unordered_map<p2p_message *, buffer> buffers_;
    bool revoked_ = false;
    timer timer_; /* last: it pokes rings_ */
};

} // namespace collrun_gloo
#endif

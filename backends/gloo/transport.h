/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over a mesh: what struct collrun_transport asks for.
 *
 *     sender                                     receiver
 *     up to eager_limit:
 *       EAGER, with the data              --->   takes the data
 *     more:
 *       RTS; Gloo has the data            --->   gives Gloo the memory
 *       the data                          --->   (by Gloo's threads)
 *
 * Gloo sends the data of a long message when the receiver has given the memory, without the sender,
 * which waits until it has left. One that waits for packets at the same time, or does not wait at
 * all, asks for an ACK (ASK), and looks now and then: the receiver may be busy with other things.
 * The object stays with its mesh; a group attaches to it and detaches from it. Each group has a
 * number, by which packets of an earlier one are recognised and dropped.
 */
#ifndef BACKENDS_GLOO_TRANSPORT_H
#define BACKENDS_GLOO_TRANSPORT_H

#include "bulk.h"
#include "mesh.h"
#include "rings.h"
#include "timer.h"

#include <deque>

namespace collrun_gloo
{

class transport
{
  public:
    /* `number`: of this one among those of the mesh. */
    transport(mesh &owner, unsigned number, timer_thread &timers);
    ~transport();

    void attach(const collrun_p2p *engine);
    /* True if nothing is in flight, so that another group may attach. */
    bool detach() noexcept;
    /* Waits until all packets have left this process, or until the deadline. Those that have not
     * leave as long as this object is there. */
    void flush(uint64_t deadline_ns);

    void send(p2p_message *m);
    void post(p2p_message *m);
    void unpost(p2p_message *m);
    void recv(p2p_message *m, const void *data, size_t len);
    bool progress(uint64_t wait_ns);
    /* Throws the failure. */
    void fail(uint32_t peer, int status, const char *text);

    /* From any thread. */
    void wake() noexcept;
    void abort() noexcept;
    /* Gloo forgets the memory of all messages. */
    void revoke() noexcept
    {
        bulk_.revoke();
    }

  private:
    struct announcement {
        uint32_t number;
        bool ack_wanted;
    };
    struct peer_state {
        std::deque<p2p_message *> queue;     /* sends that have not left */
        std::vector<uint32_t> acks;          /* that have not left */
        std::vector<announcement> announced; /* long messages of its, not received yet */
        uint32_t sends = 0;                  /* long ones that have left and are not done */
        uint32_t receives = 0;               /* posted for this peer, or of its messages */
        uint32_t long_messages = 0;          /* to it, so far */
        bool wants_acks = true;              /* of the next long message to it */
        bool left = false;
    };

    packet head(uint32_t type) const;
    bool say_left() noexcept;
    void drop_earlier();
    bool start(p2p_message *m);
    void begin_long(std::deque<p2p_message *> &queue, p2p_message *m);
    void end_long(p2p_message *m);
    void end_send(uint32_t to, uint32_t number);
    static void end_announced(peer_state &p, uint32_t number);
    void ask_for_acks();
    static void handle_ask(peer_state &p, uint32_t number);
    uint64_t slot_of(uint32_t number) const;

    bool take_arrivals();
    bool take_packet(uint32_t from);
    int handle(uint32_t from, const packet &p);
    void handle_acks(uint32_t from, const packet &p);
    bool push();
    bool push_acks(uint32_t to);

    /* progress.cc */
    bool wait(uint64_t wait_ns);
    bool look_at_data();
    uint64_t longest_packets_wait() const;
    void wait_for_packets(uint64_t wait_ns);
    bool wait_for_data(p2p_message *m, uint64_t wait_ns);
    void uncount(const p2p_message *m);
    void check_lost();
    void check_left();
    void check_gone(uint32_t peer, bool any);
    void throw_if_waiting_for(uint32_t peer, bool any) const;
    void throw_if_aborted() const;
    std::string end_of(uint32_t peer) const;
    failure malformed(uint32_t peer) const
    {
        return {COLLRUN_ERR_BACKEND, "malformed packet from " + mesh_.name_of(peer)};
    }
    template <typename F> void with_gloo(uint32_t peer, F f);

    /* The age at which the ACK of a send is asked for, and how often there is a look at data. */
    static constexpr uint64_t ask_age_ns = 300000, look_period_ns = 10000000;

    mesh &mesh_;
    const uint64_t first_slot_;
    rings rings_;
    std::vector<peer_state> peers_;
    bulk bulk_;
    std::deque<p2p_message *> sends_, receives_; /* long ones that have begun and are not done */
    const collrun_p2p *engine_ = nullptr;
    uint32_t any_receives_ = 0, unmatched_ = 0; /* receives: from any peer; all */
    uint64_t last_check_ns_ = 0, next_look_ns_ = 0;
    bool any_left_ = false, has_queued_ = false; /* sends that have not left, after push() */
    bool looks_now_ = false;                     /* data may have arrived: Gloo knows */
    bool polls_ = false;                         /* the caller of progress does not wait */
    bool has_needed_acks_ = false; /* an ACK ended a send whose data could not be waited for */
    std::atomic<bool> aborted_{false};
    timer timer_; /* last: it pokes rings_ */
};

/* What Gloo throws says that the connection is lost, or that the peer has said farewell: then it is
 * waited for. */
template <typename F> void transport::with_gloo(uint32_t peer, F f)
{
    try {
        f();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        if (!peers_[peer].left && !mesh_.abortable->is_lost(peer))
            return;
        take_arrivals(); /* it may have said why */
        throw failure{COLLRUN_ERR_PEER_FAILED, end_of(peer)};
    }
}

} // namespace collrun_gloo
#endif

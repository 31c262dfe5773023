/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of one group: a Gloo transport context with a pair per peer that was needed so
 * far, and the only code that posts to it and waits for it. All exceptions of Gloo end here, as a
 * `failure` that names the peer.
 *
 * Abort: at most one thread is inside a group, so at most one buffer is waited for. wait()
 * publishes it; abort raises the sticky flag and wakes that buffer through Gloo's own
 * abortWaitRecv/Send, and a thread that is connecting through its bell. The watch ends a wait that
 * lasts past `until` the same way. Neither touches a connection, so neither can block. After a
 * failure the connections are cut 200 ms later by the watch: until then peers can come to their own
 * conclusions, afterwards they must not go on sending into freed buffers (Gloo's loop would spin on
 * them).
 */
#ifndef BACKENDS_GLOO_MESH_H
#define BACKENDS_GLOO_MESH_H

#include "card.h"
#include "common.h"
#include "door.h"
#include "pair.h"
#include "watch.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace collrun_gloo
{

using buffer = gloo::transport::UnboundBuffer;

/* For whom a wait waits: one peer, or all peers with a nonzero entry. */
struct awaited {
    int peer = no_peer;
    const std::vector<uint32_t> *owed = nullptr;
    std::vector<int> peers() const;
};

class mesh : public watched, private door::resident
{
  public:
    /* Collective: meets the other members through desc->rendezvous, and makes sure that the hosts
     * reach each other. Throws. */
    mesh(devices &devices, watch &watch, const collrun_group_desc &desc);
    ~mesh() override;
    mesh(const mesh &) = delete;
    mesh &operator=(const mesh &) = delete;

    const int rank, size;
    const std::string name;
    const collrun_services *const services;

    /* "rank 2 (world rank 6)" */
    std::string name_of(int peer) const;
    /* Ranks sorted by host, then by rank; and where each rank stands in that order. */
    const std::vector<int> &order() const
    {
        return order_;
    }
    const std::vector<int> &place() const
    {
        return place_;
    }
    /* Several members share a host, and there are several hosts. */
    bool crowded_hosts() const
    {
        return crowded_;
    }
    /* On some host the members outnumber their cores. The same answer on every rank. */
    bool busy_cores() const
    {
        return busy_;
    }

    /* How long a send or a receive may take to connect, in now_ns(). */
    void set_deadline(uint64_t at)
    {
        deadline_ = at;
    }
    std::unique_ptr<buffer> make_buffer(void *ptr, size_t len);
    /* By grants and by letters (pair.h). All connect first, if this peer has not been needed
     * before, unless the peer is to do that. */
    void post(int peer, const parcel &m, bool granted);
    void expect(int peer, const parcel &m, bool grant);
    bool send_letter(int peer, uint64_t slot, inbox::letter &l);
    void offer(int peer, const parcel &m);
    enum connecting { connect_first, peer_connects };
    void await_letter(int peer, const parcel &m, connecting how);
    inbox::answer look_for_letter(int peer, uint64_t slot, inbox::letter *out, buffer &bell);
    std::vector<signature> unasked_letters(int peer)
    {
        return context_->from(peer).unasked();
    }

    /* Waits for one completion. False when `until` has passed; throws when the group is aborted or
     * Gloo reports an error. */
    enum direction { receiving, sending };
    bool wait(buffer &b, direction d, const awaited &who, uint64_t until, int *from = nullptr);

    void abort() noexcept;
    bool aborted() const
    {
        return aborted_.load(std::memory_order_relaxed);
    }
    failure abort_failure() const;
    bool is_connected(int peer)
    {
        return link_to(peer) == joined;
    }
    /* The group has failed; cut the connections soon. */
    void doom() noexcept;
    bool tick(uint64_t now) noexcept override;
    /* Tears the connections down. Nothing may be used afterwards. */
    void close() noexcept;

  private:
    /* meet.cc */
    void sort_by_host(const collrun_group_desc &desc);
    void meet(const collrun_group_desc &desc);
    void exchange_cards(const collrun_rendezvous &r);
    std::vector<int> to_probe(const uint32_t *host_of) const;
    void probe_hosts(const collrun_rendezvous &r, const std::vector<int> &peers);

    /* connect.cc: how this rank and a peer stand. Only the I/O thread joins. */
    enum link : uint8_t { apart, knocking, joining, joined };
    std::atomic<uint8_t> &link_to(int peer)
    {
        return links_[static_cast<size_t>(peer)];
    }
    void reach(int peer)
    {
        if (link_to(peer).load(std::memory_order_acquire) != joined)
            connect(peer);
    }
    void connect(int peer);
    int dial(int peer);
    bool await(int fd, short events, int peer, uint64_t until);
    answer hear_answer(int fd, int peer);
    void knock_at(int peer);
    void take(int peer, descriptor &s);
    void join(int peer, int fd);
    bool admit(int fd, uint64_t who, answer *reply) noexcept override;
    void ring() noexcept;
    void sever_all(bool reset) noexcept;

    template <typename F> auto guarded(int peer, F post);
    /* There was a connection, and it has ended: nothing comes from there any more. */
    bool is_over(int peer);
    failure unreachable(int peer, int error) const;
    failure lost(int peer, const char *what) const;
    [[noreturn]] void rethrow(const awaited &who, const char *what);
    bool wait_in_gloo(buffer &b, direction d, int *from);
    void publish(buffer *b, uint64_t until);
    void retract() noexcept;
    void poke() noexcept;
    void cut() noexcept;

    watch &watch_;
    std::shared_ptr<device> device_;
    std::shared_ptr<own_context> context_;
    std::vector<card> cards_;
    std::vector<std::atomic<uint8_t>> links_;
    std::unique_ptr<door> door_;
    descriptor bell_;   /* wakes a thread that is connecting */
    bool shut_ = false; /* the I/O thread's own */
    uint64_t deadline_ = never;
    std::vector<uint32_t> world_rank_;
    std::vector<int> order_, place_;
    bool crowded_ = false, busy_ = false;

    std::mutex wait_lock_;
    buffer *waiting_ = nullptr;
    std::atomic<uint64_t> poke_at_{0}; /* 0: nobody waits */
    std::atomic<bool> aborted_{false};
    std::atomic<uint64_t> cut_at_{0}; /* 0: not doomed */
};

/* How a connect() that did not wait has ended: an errno, or 0. */
int connect_error(int fd);

} // namespace collrun_gloo
#endif

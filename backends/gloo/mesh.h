/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of one group: a Gloo transport context with a pair per peer, and the only code
 * that posts to it and waits for it. All exceptions of Gloo end here, as a `failure` that names the
 * peer.
 *
 * Abort: at most one thread is inside a group, so at most one buffer is waited for. wait()
 * publishes it; abort raises the sticky flag and wakes that buffer through Gloo's own
 * abortWaitRecv/Send. The watch ends a wait that lasts past `until` the same way. Neither touches a
 * connection, so neither can block. After a failure the connections are cut 200 ms later by the
 * watch: until then peers can come to their own conclusions, afterwards they must not go on sending
 * into freed buffers (Gloo's loop would spin on them).
 */
#ifndef BACKENDS_GLOO_MESH_H
#define BACKENDS_GLOO_MESH_H

#include "common.h"
#include "device.h"
#include "pairs.h"
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

class mesh : public watched
{
  public:
    /* Collective: meets the other members through desc->rendezvous and connects to each. Throws. */
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

    std::unique_ptr<buffer> make_buffer(void *ptr, size_t len);
    void send(buffer &b, int peer, uint64_t slot, size_t offset, size_t len);
    void recv(buffer &b, int peer, uint64_t slot, size_t offset, size_t len);
    /* The same by grants (pairs.h). */
    void post(int peer, const parcel &m, bool granted);
    void expect(int peer, const parcel &m, bool grant);
    void recv_any(buffer &b, const std::vector<int> &peers, uint64_t slot, size_t offset,
                  size_t len);

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
    bool is_broken(int peer);
    /* This peer has been sent something: the farewell must make sure that it arrives. */
    bool has_sent_to(int peer) const
    {
        return sent_to_[static_cast<size_t>(peer)];
    }
    /* The group has failed; cut the connections soon. */
    void doom() noexcept;
    bool tick(uint64_t now) noexcept override;
    /* Tears the connections down. Nothing may be used afterwards. */
    void close() noexcept;
    std::unique_ptr<pulse> quicken();

  private:
    struct addresses;
    void sort_by_host(const collrun_group_desc &desc);
    void connect(const collrun_group_desc &desc);
    void connect_peer(int peer, const std::vector<char> &address);
    failure lost(int peer, const char *what) const;
    [[noreturn]] void rethrow(const awaited &who, const char *what);
    bool wait_in_gloo(buffer &b, direction d, int *from);
    void publish(buffer *b, uint64_t until);
    void retract() noexcept;
    void poke() noexcept;
    void cut() noexcept;

    watch &watch_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::transport::Context> context_;
    std::vector<uint32_t> world_rank_;
    std::vector<int> order_, place_;
    std::vector<bool> sent_to_;
    bool crowded_ = false, busy_ = false;

    std::mutex wait_lock_;
    buffer *waiting_ = nullptr;
    std::atomic<uint64_t> poke_at_{0}; /* 0: nobody waits */
    std::atomic<bool> aborted_{false};
    std::atomic<uint64_t> cut_at_{0}; /* 0: not doomed */
};

} // namespace collrun_gloo
#endif

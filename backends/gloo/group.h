/* SPDX-License-Identifier: Apache-2.0
 *
 * One handle of a group: a mesh, Gloo's collectives on it, and its messages. These functions throw
 * nothing: they return statuses whose message is stored. The first failure is that of every later
 * call.
 */
#ifndef BACKENDS_GLOO_GROUP_H
#define BACKENDS_GLOO_GROUP_H

#include "transport.h"

namespace collrun_gloo
{

struct backend {
    timer_thread timers;
    mesh_pool pool{timers};
};

class group
{
  public:
    /* Throws what Gloo throws, failure, std::bad_alloc. */
    group(backend &owner, const collrun_group_desc &desc);
    ~group();
    group(const group &) = delete;
    group &operator=(const group &) = delete;

    int exec(const collrun_call &call) noexcept;
    void abort() noexcept;

    /* The members of struct collrun_transport. */
    int send(p2p_message *m) noexcept;
    int post(p2p_message *m) noexcept;
    void unpost(p2p_message *m) noexcept;
    int recv(p2p_message *m, const void *packet, size_t len) noexcept;
    int progress(uint64_t wait_ns) noexcept;
    void fail(uint32_t peer, int status, const char *text) noexcept;
    void wake() noexcept
    {
        messages_->wake();
    }

  private:
    template <typename F> int guarded(F call) noexcept;
    int store(const failure &f) noexcept;
    failure explained(failure f);
    failure lost_connection(const char *text);
    void set_failed(const failure &f) noexcept;

    backend &backend_;
    const collrun_services *services_;
    std::shared_ptr<mesh> mesh_;
    transport *messages_ = nullptr; /* the mesh's */
    uint64_t calls_ = 0, timeout_ns_ = 0;
    bool failed_ = false;
    failure first_ = {};
    timer timer_; /* of the collective in progress */
};

/* Runs Gloo's algorithm for the call. */
void run_collective(const std::shared_ptr<gloo::Context> &context, const collrun_services &services,
                    const collrun_call &call);
/* All that the members must agree about. */
uint64_t collective_key(const collrun_call &call, uint32_t nranks);

} // namespace collrun_gloo
#endif

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

/* Memory for one call at a time, which stays: Gloo's pieces of 64 MiB, mapped anew, would cost more
 * than the call. */
class scratch
{
  public:
    uint8_t *of(size_t bytes)
    {
        if (bytes > bytes_) {
            memory_.reset();
            memory_.reset(new uint8_t[bytes]);
            bytes_ = bytes;
        }
        return memory_.get();
    }

  private:
    std::unique_ptr<uint8_t[]> memory_;
    size_t bytes_ = 0;
};

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
    void wake() noexcept
    {
        messages_->wake();
    }
    /* Calls f(transport). */
    template <typename F> int with_messages(F f) noexcept
    {
        return guarded([&] { f(*messages_); });
    }
    /* One message less is posted; also after a failure. */
    void unpost(p2p_message *m) noexcept
    {
        messages_->unpost(m);
    }

  private:
    template <typename F> int guarded(F call) noexcept;
    void run(const collrun_call &call);
    int fail(failure f) noexcept;

    backend &backend_;
    const collrun_services *services_;
    std::shared_ptr<mesh> mesh_;
    transport *messages_ = nullptr; /* the mesh's */
    uint64_t calls_ = 0;
    bool failed_ = false;
    failure first_ = {};
    scratch scratch_; /* of the collective in progress */
    timer timer_;     /* the same */
};

template <typename F> int group::guarded(F call) noexcept
{
    if (failed_)
        return store(*services_, first_);
    const no_sigpipe guard;
    try {
        call();
        return COLLRUN_OK;
    } catch (...) {
        return fail(caught());
    }
}

/* Runs Gloo's algorithm for the call. */
void run_collective(const std::shared_ptr<gloo::Context> &context, const collrun_services &services,
                    const collrun_call &call, scratch &memory);
/* All that the members must agree about. */
uint64_t collective_key(const collrun_call &call, uint32_t nranks);

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A Gloo device: the thread that serves the connections of one local address.
 *
 * Gloo waits for a turn of that thread's loop, up to 10 ms, at each connection that it closes.
 * While a `device::closing` lives, the loop turns without sleeping, since one of its descriptors is
 * readable.
 */
#ifndef BACKENDS_GLOO_DEVICE_H
#define BACKENDS_GLOO_DEVICE_H

#include "api.h"
#include "common.h"

#include <sched.h>

#include <gloo/transport/tcp/device.h>

namespace collrun_gloo
{

class device : private gloo::transport::tcp::Handler
{
  public:
    /* `address` is numeric; NULL: the first address of `interface`. Throws failure, or what Gloo
     * throws. */
    device(const char *address, const char *interface);
    ~device() override;
    device(const device &) = delete;
    device &operator=(const device &) = delete;

    const std::shared_ptr<gloo::transport::Device> &gloo() const
    {
        return gloo_;
    }

    /* Gloo's thread serves `socket` under the descriptor `fd` of `handler`, whose old connection
     * ends. The caller keeps `socket`, too. */
    void replace(int fd, int socket, gloo::transport::tcp::Handler &handler) const;

    class closing
    {
      public:
        explicit closing(const device &d);
        ~closing();
        closing(const closing &) = delete;
        closing &operator=(const closing &) = delete;

      private:
        const int fd_;
    };

  private:
#if GLOO_API >= 2025
    void handleEvents(gloo::transport::tcp::Loop &, int) override
#else
    void handleEvents(int) override
#endif
    {
        sched_yield(); /* the loop turns as long as there is a closing */
    }
    gloo::transport::tcp::Device &tcp() const;

    int fd_; /* an eventfd that counts the closings */
    std::shared_ptr<gloo::transport::Device> gloo_;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo devices: one TCP device, that is one I/O thread, per local address, shared by all groups of
 * the process. Devices stay until the backend closes, so groups come and go without new threads.
 *
 * Gloo unregisters a socket by waiting for the next turn of the I/O thread's loop, which comes
 * every 10 ms when nothing happens; a group of 64 closes 63 sockets one after the other. A `pulse`
 * keeps the loop turning while it lives, giving way to other threads at each turn; should that last
 * (a peer that does not answer), every 200 us.
 */
#ifndef BACKENDS_GLOO_DEVICE_H
#define BACKENDS_GLOO_DEVICE_H

#include <gloo/transport/tcp/device.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace collrun_gloo
{

class devices
{
  public:
    /* `address` is numeric, IPv4 or IPv6; NULL: the first address of `interface`. Throws. */
    std::shared_ptr<gloo::transport::Device> get(const char *address, const char *interface);

  private:
    std::mutex lock;
    std::map<std::string, std::shared_ptr<gloo::transport::Device>> known;
};

class pulse
{
  public:
    explicit pulse(const std::shared_ptr<gloo::transport::Device> &device);
    ~pulse();
    pulse(const pulse &) = delete;
    pulse &operator=(const pulse &) = delete;

  private:
    struct beat : gloo::transport::tcp::Handler {
        static constexpr int turns_max = 20000;
        int fd = -1, turns = 0;
        void handleEvents(int events) override;
    };
    std::shared_ptr<gloo::transport::tcp::Device> device;
    beat beat_;
};

/* Blocks all signals of this thread while it lives: threads made meanwhile never run a handler. */
class quiet_signals
{
  public:
    quiet_signals();
    ~quiet_signals();
    quiet_signals(const quiet_signals &) = delete;
    quiet_signals &operator=(const quiet_signals &) = delete;

  private:
    sigset_t before;
};

/* Writing to a closed connection must not kill the process. Where SIGPIPE is not ignored already,
 * this blocks it for the thread and takes one that came meanwhile. */
class no_sigpipe
{
  public:
    no_sigpipe();
    ~no_sigpipe();
    no_sigpipe(const no_sigpipe &) = delete;
    no_sigpipe &operator=(const no_sigpipe &) = delete;

  private:
    bool active;
};

} // namespace collrun_gloo
#endif

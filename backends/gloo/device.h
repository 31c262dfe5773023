/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo devices: one TCP device, that is one I/O thread, per local address, shared by all groups of
 * the process. Devices stay until the backend closes, so groups come and go without new threads.
 *
 * run() has the I/O thread do something. Gloo waits for a turn of that thread's loop, up to 10 ms,
 * at every socket that another thread closes; in the thread itself it does not.
 */
#ifndef BACKENDS_GLOO_DEVICE_H
#define BACKENDS_GLOO_DEVICE_H

#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

namespace collrun_gloo
{

/* A file descriptor and its end. */
struct descriptor {
    int fd = -1;
    descriptor() = default;
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;
    ~descriptor()
    {
        reset();
    }
    void reset()
    {
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
};

class device : private gloo::transport::tcp::Handler
{
  public:
    explicit device(const gloo::transport::tcp::attr &resolved);
    ~device() override;
    device(const device &) = delete;
    device &operator=(const device &) = delete;

    const std::shared_ptr<gloo::transport::tcp::Device> gloo;
    const sockaddr_storage address; /* any port */
    const socklen_t address_len;

    /* In the I/O thread, between two events; returns when it is done. It must not throw. */
    void run(const std::function<void()> &task);

  private:
    struct order {
        const std::function<void()> &task;
        bool done;
    };
    void handleEvents(int events) override;

    int bell_;
    std::mutex lock_;
    std::condition_variable done_;
    std::vector<order *> orders_;
};

class devices
{
  public:
    /* `address` is numeric, IPv4 or IPv6; NULL: the first address of `interface`. Throws. */
    std::shared_ptr<device> get(const char *address, const char *interface);

  private:
    std::mutex lock;
    std::map<std::string, std::shared_ptr<device>> known;
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

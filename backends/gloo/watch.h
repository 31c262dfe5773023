/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock of the backend: one thread per process that wakes whoever has waited for too long.
 * Gloo's own time-outs destroy the whole context, so no wait in this backend ever uses them: a
 * waiter says until when it means to sleep, and the watch pokes it. The thread looks every 5 ms
 * while some group waits, and sleeps when none has waited for a second.
 */
#ifndef BACKENDS_GLOO_WATCH_H
#define BACKENDS_GLOO_WATCH_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace collrun_gloo
{

class watched
{
  public:
    virtual ~watched() = default;
    /* Called by the watch, never after watch::remove has returned. True while there is something to
     * look for. */
    virtual bool tick(uint64_t now) noexcept = 0;
};

class watch
{
  public:
    ~watch();
    void add(watched *w); /* throws when no thread can be made */
    void remove(watched *w) noexcept;
    /* What every waiter calls, after it has made its wish visible. */
    void wake_if_asleep() noexcept
    {
        if (asleep.load())
            wake();
    }

  private:
    void run() noexcept;
    bool look(uint64_t now) noexcept;
    void wake() noexcept;

    std::mutex lock;
    std::condition_variable signal;
    std::vector<watched *> all;
    std::thread thread;
    std::atomic<bool> asleep{false};
    bool leaving = false;
};

} // namespace collrun_gloo
#endif

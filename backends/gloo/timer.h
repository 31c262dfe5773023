/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of waits. One thread per process looks every 5 ms at the timers that run, and sleeps
 * when none has run for a while, so that starting and stopping a timer costs two stores.
 */
#ifndef BACKENDS_GLOO_TIMER_H
#define BACKENDS_GLOO_TIMER_H

#include "common.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace collrun_gloo
{

class timer;

class timer_thread
{
  public:
    ~timer_thread();
    void wake_if_asleep() noexcept
    {
        if (asleep_.load())
            wake();
    }

  private:
    friend class timer;
    void add(timer *t);
    void remove(timer *t) noexcept;
    void run() noexcept;
    bool look(uint64_t now) noexcept;
    void wake() noexcept;

    std::mutex lock_; /* of all that follows */
    std::condition_variable signal_;
    std::vector<timer *> timers_;
    std::thread thread_;
    std::atomic<bool> asleep_{false};
    bool ends_ = false;
};

class timer
{
  public:
    /* `expired` is called in the timer's thread, never after the destructor has begun, and must not
     * throw. Throws std::system_error if no thread can be started. */
    timer(timer_thread &thread, std::function<void()> expired);
    ~timer()
    {
        end();
    }
    /* `expired` is not called any more, nor is it being called. */
    void end() noexcept
    {
        thread_.remove(this);
    }
    timer(const timer &) = delete;
    timer &operator=(const timer &) = delete;

    void start(uint64_t deadline_ns) noexcept
    {
        deadline_ns_.store(deadline_ns);
        thread_.wake_if_asleep();
    }
    /* From `expired`, which is called once more then. */
    void start_again(uint64_t deadline_ns) noexcept
    {
        deadline_ns_.store(deadline_ns);
    }
    /* True if it has expired since it was started. */
    bool stop() noexcept
    {
        return deadline_ns_.exchange(never) == expired_mark;
    }

  private:
    friend class timer_thread;
    static constexpr uint64_t expired_mark = never - 1;
    bool look(uint64_t now) noexcept;
    void move(uint64_t by) noexcept;

    timer_thread &thread_;
    const std::function<void()> expired_;
    std::atomic<uint64_t> deadline_ns_{never};
};

} // namespace collrun_gloo
#endif

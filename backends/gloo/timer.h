/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of waits. One thread per process sleeps until the first deadline, so that starting and
 * stopping a timer costs two stores; only one whose deadline is the first wakes the thread.
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
    /* A timer has this deadline now. */
    void started(uint64_t deadline_ns) noexcept
    {
        if (deadline_ns < next_look_ns_.load())
            wake();
    }

  private:
    friend class timer;
    void add(timer *t);
    void remove(timer *t) noexcept;
    void run() noexcept;
    uint64_t first_deadline() const noexcept;
    void sleep(std::unique_lock<std::mutex> &guard, uint64_t now, uint64_t until) noexcept;
    void wake() noexcept;

    std::mutex lock_; /* of all that follows */
    std::condition_variable signal_;
    std::vector<timer *> timers_;
    std::thread thread_;
    std::atomic<uint64_t> next_look_ns_{0}; /* 0: the thread is awake */
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
        thread_.started(deadline_ns);
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
    uint64_t deadline() const noexcept
    {
        const uint64_t deadline_ns = deadline_ns_.load();
        return deadline_ns == expired_mark ? never : deadline_ns;
    }
    void look(uint64_t now) noexcept;
    void move(uint64_t by) noexcept;

    timer_thread &thread_;
    const std::function<void()> expired_;
    std::atomic<uint64_t> deadline_ns_{never};
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of the timers. Falling asleep races with a timer that is being started: the thread
 * stores `next_look_ns_` before its last look, and start() reads it after it has stored the
 * deadline, so one of them sees the other.
 */
#include "timer.h"

#include <algorithm>
#include <pthread.h>

namespace collrun_gloo
{

/* While a timer runs, the thread looks so often whether the process stands still. */
static constexpr uint64_t period_ns = 1000000000;
/* A look that comes as late as this is no delay of the scheduler: the process was stopped. */
static constexpr uint64_t standstill_ns = 2000000000;

timer_thread::~timer_thread()
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        ends_ = true;
    }
    signal_.notify_all();
    if (thread_.joinable())
        thread_.join();
}

void timer_thread::add(timer *t)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (!thread_.joinable()) {
        const quiet_signals quiet;
        thread_ = std::thread(&timer_thread::run, this);
        pthread_setname_np(thread_.native_handle(), "collrun/gloo");
    }
    timers_.push_back(t);
}

void timer_thread::remove(timer *t) noexcept
{
    std::lock_guard<std::mutex> guard(lock_);
    timers_.erase(std::remove(timers_.begin(), timers_.end(), t), timers_.end());
}

void timer_thread::wake() noexcept
{
    std::lock_guard<std::mutex> guard(lock_);
    next_look_ns_.store(0);
    signal_.notify_all();
}

/* The first deadline of a timer that runs; `never`: none does. */
uint64_t timer_thread::first_deadline() const noexcept
{
    uint64_t first = never;
    for (const timer *t : timers_)
        first = std::min(first, t->deadline());
    return first;
}

void timer_thread::sleep(std::unique_lock<std::mutex> &guard, uint64_t now, uint64_t until) noexcept
{
    if (until == never)
        return signal_.wait(guard);
    signal_.wait_for(guard, std::chrono::nanoseconds(until - now));
    const uint64_t passed = now_ns() - now;
    if (passed > standstill_ns) /* the process has stood still */
        for (timer *t : timers_)
            t->move(passed);
}

void timer_thread::run() noexcept
{
    std::unique_lock<std::mutex> guard(lock_);
    while (!ends_) {
        next_look_ns_.store(0);
        const uint64_t now = now_ns();
        for (timer *t : timers_)
            t->look(now);
        const uint64_t first = first_deadline();
        const uint64_t until = first == never ? never : std::min(first, now + period_ns);
        next_look_ns_.store(until);
        if (until > now && first_deadline() >= until)
            sleep(guard, now, until);
    }
}

timer::timer(timer_thread &thread, std::function<void()> expired)
    : thread_(thread), expired_(std::move(expired))
{
    thread_.add(this);
}

/* Not a timer that is started, stopped or expires meanwhile. */
void timer::move(uint64_t by) noexcept
{
    uint64_t deadline_ns = deadline_ns_.load();
    if (deadline_ns < expired_mark - by)
        deadline_ns_.compare_exchange_strong(deadline_ns, deadline_ns + by);
}

void timer::look(uint64_t now) noexcept
{
    uint64_t deadline_ns = deadline_ns_.load();
    if (now >= deadline_ns && deadline_ns_.compare_exchange_strong(deadline_ns, expired_mark))
        expired_();
}

} // namespace collrun_gloo

/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of the timers. Falling asleep races with a timer that is being started: the thread
 * sets `asleep_` before its last look, and start() reads it after it has stored the deadline, so
 * one of them sees the other.
 */
#include "timer.h"

#include <algorithm>
#include <pthread.h>

namespace collrun_gloo
{

static constexpr auto period = std::chrono::milliseconds(5);
static constexpr int idle_periods = 20;
/* A period that takes longer is no delay of the scheduler: the process was stopped. */
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
    asleep_.store(false);
    signal_.notify_all();
}

/* Whether any timer runs. */
bool timer_thread::look(uint64_t now) noexcept
{
    bool running = false;
    for (timer *t : timers_)
        running |= t->look(now);
    return running;
}

void timer_thread::run() noexcept
{
    std::unique_lock<std::mutex> guard(lock_);
    for (int idle = 0; !ends_;) {
        idle = look(now_ns()) ? 0 : idle + 1;
        if (idle < idle_periods) {
            const uint64_t before = now_ns();
            signal_.wait_for(guard, period);
            const uint64_t passed = now_ns() - before;
            if (passed > standstill_ns) /* the process has stood still */
                for (timer *t : timers_)
                    t->move(passed);
            continue;
        }
        asleep_.store(true);
        if (!look(now_ns()))
            signal_.wait(guard, [this] { return ends_ || !asleep_.load(); });
        asleep_.store(false);
        idle = 0;
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

bool timer::look(uint64_t now) noexcept
{
    uint64_t deadline_ns = deadline_ns_.load();
    if (deadline_ns >= expired_mark)
        return false;
    if (now >= deadline_ns && deadline_ns_.compare_exchange_strong(deadline_ns, expired_mark))
        expired_();
    return true;
}

} // namespace collrun_gloo

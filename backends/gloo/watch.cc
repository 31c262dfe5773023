/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch's thread. Falling asleep races with a waiter that has just made its wish visible; the
 * flag is raised before the last look, and the waiter reads it after writing, so one of them sees
 * the other.
 */
#include "watch.h"

#include "common.h"
#include "device.h"

#include <algorithm>
#include <pthread.h>

namespace collrun_gloo
{

static constexpr auto period = std::chrono::milliseconds(5);
static constexpr int idle_periods = 20;

watch::~watch()
{
    {
        std::lock_guard<std::mutex> guard(lock);
        leaving = true;
    }
    signal.notify_all();
    if (thread.joinable())
        thread.join();
}

void watch::add(watched *w)
{
    std::lock_guard<std::mutex> guard(lock);
    if (!thread.joinable()) {
        quiet_signals quiet;
        thread = std::thread(&watch::run, this);
        pthread_setname_np(thread.native_handle(), "collrun/gloo");
    }
    all.push_back(w);
}

void watch::remove(watched *w) noexcept
{
    std::lock_guard<std::mutex> guard(lock);
    all.erase(std::remove(all.begin(), all.end(), w), all.end());
}

void watch::wake() noexcept
{
    std::lock_guard<std::mutex> guard(lock);
    asleep.store(false);
    signal.notify_all();
}

bool watch::look(uint64_t now) noexcept
{
    bool busy = false;
    for (watched *w : all)
        busy |= w->tick(now);
    return busy;
}

void watch::run() noexcept
{
    std::unique_lock<std::mutex> guard(lock);
    int idle = 0;
    while (!leaving) {
        idle = look(now_ns()) ? 0 : idle + 1;
        if (idle < idle_periods) {
            signal.wait_for(guard, period);
            continue;
        }
        asleep.store(true);
        if (!look(now_ns()))
            signal.wait(guard, [this] { return leaving || !asleep.load(); });
        asleep.store(false);
        idle = 0;
    }
}

} // namespace collrun_gloo

/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, clock, hash, signals.
 */
#include "common.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <new>
#include <time.h>

namespace collrun_gloo
{

std::string format(const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    std::vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return text;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t now_ns()
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t deadline_after(uint64_t timeout_ns)
{
    const uint64_t now = now_ns();
    return timeout_ns < never - now ? now + timeout_ns : never;
}

failure caught()
{
    try {
        throw;
    } catch (const failure &f) {
        return f;
    } catch (const std::bad_alloc &) {
        return {COLLRUN_ERR_NO_MEMORY, "out of memory"};
    } catch (const std::exception &e) {
        return {COLLRUN_ERR_BACKEND, format("Gloo: %s", e.what())};
    } catch (...) {
        return {COLLRUN_ERR_BACKEND, "unknown exception"};
    }
}

int store(const collrun_services &services, const failure &f) noexcept
{
    return f.text.empty() ? f.status : services.fail(services.ctx, f.status, "%s", f.text.c_str());
}

void check_stored(int status)
{
    if (status < 0)
        throw failure{status, ""};
}

quiet_signals::quiet_signals()
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
}

quiet_signals::~quiet_signals()
{
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

static sigset_t only_sigpipe()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

/* How many calls of Gloo this thread is in. The handler reads it: it must be there without an
 * allocation. */
static thread_local volatile sig_atomic_t inside __attribute__((tls_model("initial-exec")));

static void on_sigpipe(int sig)
{
    if (inside > 0)
        return;
    std::signal(sig, SIG_DFL);
    std::raise(sig);
}

static bool has_action(void (*handler)(int))
{
    struct sigaction now;
    return sigaction(SIGPIPE, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == handler;
}

static void replace_action(void (*from)(int), void (*by)(int))
{
    struct sigaction action = {};
    action.sa_handler = by;
    action.sa_flags = SA_RESTART;
    if (has_action(from))
        sigaction(SIGPIPE, &action, nullptr);
}

static struct unloading {
    ~unloading()
    {
        replace_action(on_sigpipe, SIG_DFL);
    }
} on_unloading;

/* That SIGPIPE is harmless here is asked again after a millisecond: the program may change its
 * action, and a system call in each of Gloo's calls would cost more than all else here. */
static bool is_harmless()
{
    static std::atomic<uint64_t> asked_ns{0};
    static constexpr uint64_t period_ns = 1000000;
    const uint64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
    if (now < asked_ns.load(std::memory_order_relaxed) + period_ns)
        return true;
    replace_action(SIG_DFL, on_sigpipe);
    if (!has_action(on_sigpipe) && !has_action(SIG_IGN))
        return false;
    asked_ns.store(now, std::memory_order_relaxed);
    return true;
}

no_sigpipe::no_sigpipe() : blocks_(false)
{
    inside = inside + 1;
    if (is_harmless())
        return;
    const sigset_t set = only_sigpipe();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &set, &before);
    blocks_ = !sigismember(&before, SIGPIPE);
}

no_sigpipe::~no_sigpipe()
{
    inside = inside - 1;
    if (!blocks_)
        return;
    const sigset_t set = only_sigpipe();
    const struct timespec at_once = {0, 0};
    sigtimedwait(&set, nullptr, &at_once);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace collrun_gloo

/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, clock, hash, signals.
 */
#include "common.h"

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

uint64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
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

/* The finaliser of MurmurHash3. */
uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15ull ^ b;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
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

no_sigpipe::no_sigpipe() : active_(false)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler == SIG_IGN)
        return;
    const sigset_t set = only_sigpipe();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &set, &before);
    active_ = !sigismember(&before, SIGPIPE);
}

no_sigpipe::~no_sigpipe()
{
    if (!active_)
        return;
    const sigset_t set = only_sigpipe();
    const struct timespec at_once = {0, 0};
    sigtimedwait(&set, nullptr, &at_once);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace collrun_gloo

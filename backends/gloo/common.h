/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the Gloo backend share: the failure that they throw (plugin.cc makes a status
 * of it, so that no exception leaves the backend), the clock, and the hash behind Gloo's slots.
 */
#ifndef BACKENDS_GLOO_COMMON_H
#define BACKENDS_GLOO_COMMON_H

#include <collrun/backend.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace collrun_gloo
{

constexpr uint64_t never = UINT64_MAX;

struct failure {
    int status;
    std::string text;                   /* empty: it is stored already */
    std::vector<uint32_t> missing = {}; /* of a time-out: the ranks that were waited for */
};

std::string format(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ns();
uint64_t deadline_after(uint64_t timeout_ns);

/* What is being handled, as a failure. */
failure caught();
/* Stores the message, if it is not stored already; returns the status. */
int store(const collrun_services &services, const failure &f) noexcept;

/* Throws a failure without text unless `status` is OK: the rendezvous and the engine store theirs.
 */
void check_stored(int status);

/* Mixes b into the hash a. Every bit of both reaches every bit of the result: the finaliser of
 * MurmurHash3. */
inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15ull ^ b;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

/* Blocks all signals of this thread while it lives: a thread that is started meanwhile runs no
 * handler. */
class quiet_signals
{
  public:
    quiet_signals();
    ~quiet_signals();
    quiet_signals(const quiet_signals &) = delete;
    quiet_signals &operator=(const quiet_signals &) = delete;

  private:
    sigset_t before_;
};

/* Gloo writes to connections that may be closed, and that must not kill the process. Where SIGPIPE
 * has its default action, a handler takes its place, which does the same for threads that are not
 * inside of Gloo, and ends with this library. Where the program has a handler, this blocks the
 * signal for the thread and takes one that was raised meanwhile. */
class no_sigpipe
{
  public:
    no_sigpipe();
    ~no_sigpipe();
    no_sigpipe(const no_sigpipe &) = delete;
    no_sigpipe &operator=(const no_sigpipe &) = delete;

  private:
    bool blocks_;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting, waiting, aborting, tearing down. Meeting is meet.cc, connecting connect.cc.
 */
#include "mesh.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

static constexpr auto forever = std::chrono::hours(24 * 365);
static constexpr uint64_t cut_delay = 200 * millisecond;

std::vector<int> awaited::peers() const
{
    std::vector<int> list;
    if (peer != no_peer)
        list.push_back(peer);
    for (size_t i = 0; owed && i < owed->size(); i++)
        if ((*owed)[i] > 0)
            list.push_back(static_cast<int>(i));
    return list;
}

mesh::~mesh()
{
    close();
}

std::string mesh::name_of(int peer) const
{
    if (peer < 0 || peer >= size)
        return "a peer";
    return format("rank %d (world rank %u)", peer, world_rank_[static_cast<size_t>(peer)]);
}

/* ---- posting ---- */

std::unique_ptr<buffer> mesh::make_buffer(void *ptr, size_t len)
{
    return context_->createUnboundBuffer(ptr, len);
}

void mesh::send(buffer &b, int peer, uint64_t slot, size_t offset, size_t len)
{
    if (aborted())
        throw abort_failure();
    reach(peer);
    sent_to_[static_cast<size_t>(peer)] = true;
    try {
        b.send(peer, slot, offset, len);
    } catch (const std::exception &e) {
        rethrow({peer, nullptr}, e.what());
    }
}

void mesh::recv(buffer &b, int peer, uint64_t slot, size_t offset, size_t len)
{
    if (aborted())
        throw abort_failure();
    reach(peer);
    try {
        b.recv(peer, slot, offset, len);
    } catch (const std::exception &e) {
        rethrow({peer, nullptr}, e.what());
    }
}

void mesh::post(int peer, const parcel &m, bool granted)
{
    if (aborted())
        throw abort_failure();
    reach(peer);
    sent_to_[static_cast<size_t>(peer)] = true;
    try {
        collrun_gloo::post(*context_, peer, m, granted);
    } catch (const std::exception &e) {
        rethrow({peer, nullptr}, e.what());
    }
}

void mesh::expect(int peer, const parcel &m, bool grant)
{
    if (aborted())
        throw abort_failure();
    reach(peer);
    try {
        collrun_gloo::expect(*context_, peer, m, grant);
    } catch (const std::exception &e) {
        rethrow({peer, nullptr}, e.what());
    }
}

void mesh::recv_any(buffer &b, const std::vector<int> &peers, uint64_t slot, size_t offset,
                    size_t len)
{
    try {
        b.recv(peers, slot, offset, len);
    } catch (const std::exception &e) {
        std::vector<uint32_t> owed(static_cast<size_t>(size));
        for (int peer : peers)
            owed[static_cast<size_t>(peer)] = 1;
        rethrow({no_peer, &owed}, e.what());
    }
}

/* ---- errors ---- */

/* Without the place in Gloo's sources that its texts start with. */
static const char *words_of(const char *what)
{
    const char *end = what[0] == '[' ? std::strstr(what, "] ") : nullptr;
    return end ? end + 2 : what;
}

failure mesh::lost(int peer, const char *what) const
{
    static const char *const ended[] = {"closed by peer", "Connection reset", "Broken pipe",
                                        "Socket closed", "Connection refused"};
    const bool peer_ended = std::any_of(std::begin(ended), std::end(ended), [what](const char *s) {
        return std::strstr(what, s) != nullptr;
    });
    const std::string words = words_of(what);
    if (peer_ended && peer != no_peer)
        return {
            COLLRUN_ERR_PEER_FAILED, peer,
            format("%s closed its connection (Gloo: %s)", name_of(peer).c_str(), words.c_str())};
    return {COLLRUN_ERR_BACKEND, peer,
            format("connection to %s: Gloo: %s", name_of(peer).c_str(), words.c_str())};
}

failure mesh::abort_failure() const
{
    return {COLLRUN_ERR_ABORTED, no_peer, "the group was aborted"};
}

/* Any operation on a broken pair throws; this one no peer ever answers. */
bool mesh::is_broken(int peer)
{
    char nothing = 0;
    if (link_to(peer) != joined)
        return false;
    try {
        make_buffer(&nothing, 1)->send(peer, slot_test, 0, 0);
    } catch (const std::exception &) {
        return true;
    }
    return false;
}

void mesh::rethrow(const awaited &who, const char *what)
{
    if (aborted())
        throw abort_failure();
    if (who.peer != no_peer)
        throw lost(who.peer, what);
    const auto peers = who.peers();
    const auto broken =
        std::find_if(peers.begin(), peers.end(), [this](int peer) { return is_broken(peer); });
    throw lost(broken == peers.end() ? no_peer : *broken, what);
}

/* ---- waiting ---- */

void mesh::publish(buffer *b, uint64_t until)
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    if (aborted_.load())
        throw abort_failure();
    waiting_ = b;
    poke_at_.store(until);
}

void mesh::retract() noexcept
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    waiting_ = nullptr;
    poke_at_.store(0);
}

/* Gloo prefers the exception of a broken connection to a message that came just before it; asked
 * again, it gives the message. */
bool mesh::wait_in_gloo(buffer &b, direction d, int *from)
{
    for (bool again = false;; again = true) {
        try {
            return d == receiving ? b.waitRecv(from, forever) : b.waitSend(nullptr, forever);
        } catch (const std::exception &) {
            if (again)
                throw;
        }
    }
}

bool mesh::wait(buffer &b, direction d, const awaited &who, uint64_t until, int *from)
{
    struct retractor {
        mesh &m;
        ~retractor()
        {
            m.retract();
        }
    };
    for (;;) {
        publish(&b, std::max<uint64_t>(until, 1)); /* 0 means that nobody waits */
        watch_.wake_if_asleep();
        try {
            const retractor at_end{*this};
            if (wait_in_gloo(b, d, from))
                return true;
        } catch (const std::exception &e) {
            rethrow(who, e.what());
        }
        if (aborted())
            throw abort_failure();
        if (now_ns() >= until)
            return false;
    }
}

/* The flag that Gloo keeps for a poke outlives a wait that ended by itself; the next wait on that
 * buffer then returns early and goes on. */
void mesh::poke() noexcept
{
    if (!waiting_)
        return;
    waiting_->abortWaitRecv();
    waiting_->abortWaitSend();
}

void mesh::abort() noexcept
{
    std::lock_guard<std::mutex> guard(wait_lock_);
    aborted_.store(true);
    poke();
    ring();
}

bool mesh::tick(uint64_t now) noexcept
{
    const uint64_t cut_at = cut_at_.load();
    if (cut_at != 0 && now >= cut_at) {
        cut_at_.store(0);
        cut();
    }
    const uint64_t until = poke_at_.load();
    if (until != 0 && now >= until) {
        std::lock_guard<std::mutex> guard(wait_lock_);
        poke();
    }
    return until != 0 || cut_at != 0;
}

/* ---- the end ---- */

void mesh::doom() noexcept
{
    cut_at_.store(now_ns() + cut_delay);
    watch_.wake_if_asleep();
}

void mesh::cut() noexcept
{
    sever_all(true);
}

/* Once the connections are severed nothing new comes to the pairs, the door and its guests; after
 * one more turn of the loop it has nothing of theirs in hand, and they can be freed. */
void mesh::close() noexcept
{
    watch_.remove(this);
    if (!context_)
        return;
    sever_all(false);
    device_->run([] {});
    context_.reset();
    door_.reset();
}

} // namespace collrun_gloo

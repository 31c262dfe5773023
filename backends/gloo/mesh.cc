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

/* Gloo's exceptions become failures. */
template <typename F> auto mesh::guarded(int peer, F post)
{
    if (aborted())
        throw abort_failure();
    try {
        return post();
    } catch (const std::exception &e) {
        rethrow({peer, nullptr}, e.what());
    }
}

void mesh::post(int peer, const parcel &m, bool granted)
{
    guarded(peer, [&] {
        reach(peer);
        context_->pair(peer).post(m, granted);
    });
}

void mesh::expect(int peer, const parcel &m, bool grant)
{
    guarded(peer, [&] {
        reach(peer);
        context_->pair(peer).expect(m, grant);
    });
}

bool mesh::send_letter(int peer, uint64_t slot, inbox::letter &l)
{
    return guarded(peer, [&] {
        reach(peer);
        return context_->pair(peer).send_letter(slot, l);
    });
}

void mesh::offer(int peer, const parcel &m)
{
    guarded(peer, [&] {
        reach(peer);
        context_->pair(peer).offer(m);
    });
}

void mesh::await_letter(int peer, const parcel &m, connecting how)
{
    guarded(peer, [&] {
        if (how == connect_first)
            reach(peer);
        context_->await_letter(peer, m);
    });
}

inbox::answer mesh::look_for_letter(int peer, uint64_t slot, inbox::letter *out, buffer &bell)
{
    return guarded(peer, [&] { return context_->look_for_letter(peer, slot, out, bell); });
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

bool mesh::is_over(int peer)
{
    return link_to(peer) == joined && context_->pair(peer).is_over();
}

/* A buffer may also be on its way to others than those who are waited for. */
void mesh::rethrow(const awaited &who, const char *what)
{
    if (aborted())
        throw abort_failure();
    if (who.peer != no_peer)
        throw lost(who.peer, what);
    for (int peer : who.peers())
        if (is_over(peer))
            throw lost(peer, what);
    for (int peer = 0; peer < size; peer++)
        if (is_over(peer))
            throw lost(peer, what);
    throw lost(no_peer, what);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of messages: what is waited for, and what the end of a peer means.
 *
 * A lost connection ends the group if a message waits for that peer. If the peer has left the group
 * before (LEFT), only such messages fail; others go on, by looking every 0.2 ms: Gloo does not wait
 * for a buffer that has to do with a lost connection.
 */
#include "transport.h"

#include <algorithm>
#include <time.h>

namespace collrun_gloo
{

static constexpr uint64_t lost_pause_ns = 200000, lost_period_ns = 5000000;
/* The longest wait for data, since Gloo does not tell each buffer of a lost connection, and for one
 * of several data. */
static constexpr uint64_t data_wait_ns = 10000000, turn_ns = 1000000;
/* The longest wait for packets while the ACK of a send may have to be asked for, if one has been
 * needed before. */
static constexpr uint64_t unasked_wait_ns = 1000000;
/* In which data that has arrived is reported by the Gloo of its sender. */
static constexpr uint64_t report_ns = 100000000;
static constexpr uint64_t look_ns = 50000;
bool transport::progress(uint64_t wait_ns)
{
    polls_ = wait_ns == 0;
    for (unsigned turn = 0;; turn++) {
        throw_if_aborted();
        const bool arrived = take_arrivals();
        if (push() || arrived)
            return true;
        if (any_left_)
            check_left();
        if (polls_) {
            ask_for_acks();
            check_lost();
        }
        if (look_at_data())
            return true;
        if (polls_ || turn > 0)
            return false;
        if (wait(wait_ns))
            return true;
    }
}

/* Another one each time. */
static p2p_message *next_of(std::deque<p2p_message *> &queue)
{
    p2p_message *m = queue.front();
    queue.pop_front();
    queue.push_back(m);
    return m;
}

/* For data that looks like its mark, and for sends whose receivers do not answer. An earlier poke,
 * such as that of a wait for packets that has timed out, does not end this. */
bool transport::look_at_data()
{
    if (sends_.empty() && receives_.empty())
        return false;
    const uint64_t now = now_ns();
    if (now < next_look_ns_ && !looks_now_)
        return false;
    bool moved = false;
    const bool poked = bulk_.take_poke();
    looks_now_ = false;
    next_look_ns_ = now + look_period_ns;
    for (std::deque<p2p_message *> *queue : {&sends_, &receives_})
        for (size_t left = queue->size(); left > 0; left--) {
            if (wait_for_data(next_of(*queue), look_ns))
                moved = true;
            else if (now_ns() >= now + turn_ns)
                break;
        }
    if (poked)
        bulk_.poke();
    return moved;
}

/* Where Gloo does not wait. */
static void pause(uint64_t ns)
{
    const struct timespec time = {0, static_cast<long>(ns)};
    nanosleep(&time, nullptr);
}

/* Waits for data if nothing else that arrives ends an operation. True: it has moved. */
bool transport::wait(uint64_t wait_ns)
{
    std::deque<p2p_message *> &queue = receives_.empty() ? sends_ : receives_;
    if (unmatched_ > 0 || queue.empty() || has_queued_) {
        wait_for_packets(wait_ns);
        return false;
    }
    if (queue.size() > 1) /* the turn of a send may come late: its receiver says that it is over */
        ask_for_acks();
    const uint64_t longest_ns = queue.size() > 1 ? turn_ns : data_wait_ns;
    const bool moved = wait_for_data(next_of(queue), std::min(wait_ns, longest_ns));
    if (!moved)
        check_lost();
    return moved;
}

bool transport::wait_for_data(p2p_message *m, uint64_t wait_ns)
{
    bool moved = false, has_left = true;
    timer_.start(deadline_after(wait_ns));
    with_gloo(m->shared.peer, [&] { moved = bulk_.wait(m), has_left = false; });
    timer_.stop();
    if (has_left)
        pause(std::min(wait_ns, turn_ns));
    if (!moved)
        return false;
    if (!m->receives)
        peers_[m->shared.peer].wants_acks = false;
    end_long(m);
    return true;
}

/* Nothing ends this wait when data arrives or leaves: so it is not much longer than the data may
 * need. */
uint64_t transport::longest_packets_wait() const
{
    uint64_t longest = UINT64_MAX;
    for (const p2p_message *m : receives_)
        longest = std::min({longest, ask_age_ns + m->shared.len / 16, look_period_ns});
    for (const p2p_message *m : sends_)
        longest = std::min(longest,
                           m->ask_ns != 0 && has_needed_acks_ ? unasked_wait_ns : look_period_ns);
    return longest;
}

void transport::wait_for_packets(uint64_t wait_ns)
{
    ask_for_acks();
    wait_ns = std::min(wait_ns, longest_packets_wait());
    timer_.start(deadline_after(wait_ns));
    const bool waited = rings_.wait();
    timer_.stop();
    if (waited)
        return;
    pause(std::min(wait_ns, lost_pause_ns));
    check_lost();
}

/* All that a lost peer has sent has been taken before, unless a poke has hindered it, or a packet
 * of another peer that Gloo has not reported yet. */
void transport::check_lost()
{
    const uint64_t now = now_ns();
    if (now - last_check_ns_ < lost_period_ns)
        return;
    last_check_ns_ = now;
    for (uint32_t i = 0; i < mesh_.size; i++)
        if (mesh_.abortable->is_lost(i) && !take_arrivals() && !rings_.take_poke())
            check_gone(i, !peers_[i].left);
}

void transport::check_left()
{
    for (uint32_t i = 0; i < mesh_.size; i++)
        if (peers_[i].left)
            check_gone(i, false);
}

/* What a peer has received or sent before it went is not lost: Gloo reports it now, or soon. */
void transport::check_gone(uint32_t peer, bool any)
{
    const uint64_t until = deadline_after(report_ns);
    for (const std::deque<p2p_message *> &queue : {sends_, receives_}) /* copies */
        for (p2p_message *m : queue)
            while (m->shared.peer == peer && !wait_for_data(m, report_ns))
                if (now_ns() >= until)
                    throw_if_waiting_for(peer, any);
    throw_if_waiting_for(peer, any);
}

void transport::throw_if_waiting_for(uint32_t peer, bool any) const
{
    const auto &p = peers_[peer];
    if (p.receives > 0 || p.sends > 0 || !p.queue.empty() || (any && any_receives_ > 0))
        throw failure{COLLRUN_ERR_PEER_FAILED, end_of(peer)};
}

} // namespace collrun_gloo

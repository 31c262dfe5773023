/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point. A message is matched by its slot: tag, element type, count, and its number among
 * the messages of that pair and tag. So Gloo keeps the order, everything can be posted at once, and
 * a send and a receive only meet if they agree.
 *
 * A message of up to 32 KiB is a letter (pair.h): the sender goes on at once, unless so many wait
 * at the receiver that it must wait too. A longer one starts with a letter of 8 KiB, and the rest
 * follows by grants; so it waits for its receiver. Letters bear the signature of their message.
 *
 * A receive from anyone looks for the next message of every rank in what has come from there, and
 * then takes it as one that knows its sender; receives by name of that tag that were called later
 * wait for it, for a rank's first message may be its. ask.cc is for ranks that wait in vain: two
 * ends of the same message that differ in shape are a mismatch, on both sides.
 */
#ifndef BACKENDS_GLOO_P2P_H
#define BACKENDS_GLOO_P2P_H

#include "control.h"

#include <deque>
#include <map>
#include <unordered_map>

namespace collrun_gloo
{

class group;

/* Up to this many bytes a message is one part. */
constexpr size_t most_in_first = 32u << 10;

class p2p
{
  public:
    explicit p2p(group &g);
    p2p(const p2p &) = delete;
    p2p &operator=(const p2p &) = delete;

    /* Several calls progress together. */
    void run(const collrun_call *calls, uint32_t ncalls);
    /* What this rank sent to `from` is not what was received there. */
    [[noreturn]] void hear_verdict(int from, const word &theirs);
    /* Makes sure that everything sent has arrived. Bounded. */
    void farewell() noexcept;

  private:
    struct peer {
        std::unordered_map<uint32_t, uint64_t> next_out, next_in; /* message numbers by tag */
        bool may_complain = false; /* it has had letters of this rank */
    };
    /* A message to oneself. */
    struct note {
        signature what;
        std::vector<char> bytes;
    };
    /* One call in progress. */
    struct item {
        const collrun_call *call = nullptr;
        signature what = {}; /* recv_any: without number until the sender is known */
        size_t bytes = 0;
        int peer = no_peer; /* recv_any: until its sender is known */
        bool sending = false, done = false;
        bool waiting = false;          /* for its sender to be known, or behind one that is */
        uint32_t parts = 0;            /* first parts and pieces that have not completed */
        std::unique_ptr<char[]> space; /* the signature and the first part */
        std::unique_ptr<buffer> first, rest;
    };
    using batch = std::vector<std::unique_ptr<item>>;

    /* p2p.cc */
    void plan(batch &b, const collrun_call &call);
    void number(item &i);
    void post_send(item &i);
    void post_recv(item &i);
    void post_rest(item &i);
    bool advance(item &i, uint64_t until);
    void first_arrived(item &i, const char *part);
    bool find_sender(item &i);
    bool find_one(std::deque<item *> &queue);
    void find_senders();
    void post_all(batch &b);
    void progress(batch &b);
    bool local(const collrun_call &call);

    /* ask.cc */
    void ask(batch &b);
    void hear(batch &b, int from);
    void hear_everyone(batch &b);
    void look_at_letters(batch &b, int from);
    const signature *sent_to(const batch &b, int to, const signature &number) const;
    const signature *awaited_from(const batch &b, int from, const signature &number,
                                  signature *anyone);
    bool awaited_from_anyone(const batch &b, int from, const signature &theirs, signature *out);
    [[noreturn]] void mismatch(int with, bool sending, const signature &mine,
                               const signature &theirs);

    peer &of(int rank)
    {
        return peers_[static_cast<size_t>(rank)];
    }

    group &group_;
    char nothing_ = 0;
    std::unique_ptr<buffer> farewell_; /* where all of them go; nobody waits for it */
    std::unique_ptr<buffer> bell_;     /* completes when something may have come from anyone */
    std::vector<peer> peers_;
    int last_sender_ = 0; /* to anyone: others have their turn first */
    std::map<uint32_t, std::deque<item *>> from_anyone_; /* who is waiting, in order, by tag */
    std::deque<note> notes_;
};

} // namespace collrun_gloo
#endif

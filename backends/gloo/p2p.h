/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point. A message is matched by its slot: tag, element type, count, and its number among
 * the messages of that pair and tag. So Gloo keeps the order, everything can be posted at once, and
 * a send and a receive only meet if they agree.
 *
 * A message up to 32 KiB is one part, a word and the payload. A longer one starts with 8 KiB of it,
 * and the rest follows in pieces. Messages of more than 8 KiB wait for their receiver. Smaller ones
 * are sent from a copy: the sender waits a while for the receiver, since only then both sides can
 * tell a mismatch, and then goes on without it. A pair whose receiver keeps being late is waited
 * for less and less. What has not been taken when the group closes is left with the receiver's I/O
 * thread, as a will: a receive that finds the sender gone looks there.
 *
 * recv_any posts a receive for the next message of every rank (anyone.h). ask.cc is for ranks that
 * wait in vain: two ends of the same message that differ in shape are a mismatch, on both sides.
 */
#ifndef BACKENDS_GLOO_P2P_H
#define BACKENDS_GLOO_P2P_H

#include "anyone.h"
#include "mesh.h"

#include <deque>
#include <unordered_map>

namespace collrun_gloo
{

class group;

/* The first part: a word that is never 0, so that one can see it arrive, and the payload's start.
 */
constexpr uint64_t first_word = signature_magic;
constexpr size_t first_word_bytes = sizeof(uint64_t);
constexpr size_t first_payload = 8192, most_in_first = 32u << 10;

class p2p
{
  public:
    explicit p2p(group &g);
    ~p2p();
    p2p(const p2p &) = delete;
    p2p &operator=(const p2p &) = delete;

    /* Several calls progress together. */
    void run(const collrun_call *calls, uint32_t ncalls);
    /* Leaves what is not taken with the receivers, and makes sure that everything sent has arrived.
     * Bounded. */
    void farewell() noexcept;

  private:
    /* A small message, sent and perhaps not taken. */
    struct copy {
        signature what;
        size_t len;                    /* of the payload */
        std::unique_ptr<char[]> bytes; /* the first part */
        std::unique_ptr<buffer> out;
    };
    /* A message that a sender left behind. */
    struct legacy {
        signature what;
        const char *payload;
    };
    struct peer {
        std::unordered_map<uint32_t, uint64_t> next_out, next_in; /* message numbers by tag */
        std::deque<std::unique_ptr<copy>> copies;                 /* oldest first */
        size_t copied = 0;                                        /* their bytes */
        bool crowded = false;         /* this batch has found no room for one more */
        unsigned patience = 4;        /* pauses that a small send waits for its receiver */
        std::unique_ptr<buffer> will; /* receive for what the peer leaves */
        bool will_read = false;       /* it has left */
        std::deque<legacy> left;
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
        int peer = no_peer;
        bool sending = false, done = false;
        crowd *any = nullptr; /* the first part comes there: recv_any, or a receive after one */
        uint32_t parts = 0;   /* first parts and pieces that have not completed */
        std::unique_ptr<char[]> space; /* the first part */
        std::unique_ptr<buffer> first, rest;
        copy *out = nullptr; /* a small send, which need not be waited for */
    };
    using batch = std::vector<std::unique_ptr<item>>;

    /* p2p.cc */
    void plan(batch &b, const collrun_call &call);
    void post_send(item &i);
    void post_small_send(item &i);
    void post_recv(item &i);
    void post_or_inherit(item &i);
    void post_rest(item &i);
    bool advance(item &i, uint64_t until);
    bool advance_first_of_any(item &i, uint64_t until);
    void first_arrived(item &i, const char *part);
    bool advance_or_inherit(batch &b, item &i, uint64_t until);
    void progress(batch &b);
    void finish_small_send(batch &b, item &i);
    bool still_there(const item &i);
    void forget(peer &p, size_t k);
    bool make_room(int to, size_t bytes);
    bool local(const collrun_call &call);

    /* anyone.cc */
    crowd &crowd_of(const signature &shape, size_t first_bytes);
    void invite(crowd &c, const signature &shape);

    /* ask.cc */
    void ask(batch &b);
    void hear(batch &b, int from);
    void hear_everyone(batch &b);
    const signature *sent_to(const batch &b, int to, const signature &number) const;
    const signature *awaited_from(const batch &b, int from, const signature &number) const;
    bool awaited_from_anyone(const batch &b, int from, const signature &theirs, signature *out);
    [[noreturn]] void mismatch(int with, bool sending, const signature &mine,
                               const signature &theirs);

    /* will.cc */
    void expect_wills();
    std::vector<char> last_will(const peer &p) const;
    void read_will(int from);
    bool inherit(item &i);
    bool inherit_from(item &i, int from);

    peer &of(int rank)
    {
        return peers_[static_cast<size_t>(rank)];
    }

    group &group_;
    char *wills_ = nullptr; /* mapped: a piece of memory per peer, touched only when used */
    size_t wills_len_ = 0;
    char farewells_[16] = {}; /* nobody reads them */
    std::unique_ptr<buffer> farewell_;
    std::vector<peer> peers_;
    std::vector<std::unique_ptr<crowd>> crowds_;
    std::deque<note> notes_;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point. A message is matched by its slot: tag, element type and count, so that Gloo joins
 * a send and a receive only if they agree, in the order of each slot; and the order of a (pair,
 * tag) is kept by posting a message of another shape only after those before it are gone.
 *
 * Large messages wait for their receiver. Small ones (8 KiB) are sent from a copy: the sender waits
 * a while for the receiver, since only then both sides can tell a mismatch, and then goes on
 * without it. A pair whose messages keep finding the receiver late waits less and less. What has
 * not been taken when the group closes is left with the receiver's I/O thread, as its will: a
 * receive that finds the sender gone looks there. Copies carry a number, so that none is received
 * twice.
 *
 * A rank that waits in vain tells its peer what it waits for (control.h); a shape that differs from
 * the peer's oldest unmatched message of that tag is a mismatch, on both sides.
 */
#ifndef BACKENDS_GLOO_P2P_H
#define BACKENDS_GLOO_P2P_H

#include "mesh.h"

#include <bitset>
#include <deque>

namespace collrun_gloo
{

class group;

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
    /* A message sent from a copy. */
    struct copy {
        signature what;
        uint64_t number;
        size_t len;                    /* of the payload */
        std::unique_ptr<char[]> bytes; /* the number, then the payload */
        std::unique_ptr<buffer> out;
    };
    /* A message that a sender left behind. */
    struct legacy {
        signature what;
        uint64_t number;
        const char *payload;
    };
    struct peer {
        std::deque<std::unique_ptr<copy>> copies; /* sent, not known to be taken; oldest first */
        size_t copied = 0;                        /* their bytes */
        uint64_t next_number = 0;                 /* of a copy */
        uint64_t newest = 0;                      /* copies received: highest number + 1, and */
        std::bitset<64> received;                 /* which of the last 64 */
        uint64_t sent = 0, got = 0;               /* messages finished, for the control lines */
        unsigned patience = 4;                    /* pauses that a small send waits */
        std::unique_ptr<buffer> will;             /* receive for what the peer leaves */
        bool will_read = false;
        std::deque<legacy> left; /* by the peer */
    };
    /* A message to oneself. */
    struct note {
        signature what;
        std::vector<char> bytes;
    };
    /* One call in progress. */
    struct item {
        const collrun_call *call = nullptr;
        signature what = {};
        size_t bytes = 0;
        int peer = no_peer; /* recv_any: known when the first piece is here */
        bool sending = false, small = false, posted = false, done = false;
        uint32_t pieces = 0;           /* that have not completed */
        item *before = nullptr;        /* must be done first: same peer and tag, another shape */
        std::unique_ptr<char[]> space; /* small: the number and the payload */
        std::unique_ptr<buffer> b;
        copy *out = nullptr; /* a small send that need not be waited for */
    };
    using batch = std::vector<std::unique_ptr<item>>;

    /* p2p.cc */
    void plan(batch &b, const collrun_call &call);
    bool ready(item &i, uint64_t until);
    void post(item &i);
    void post_small_send(item &i);
    void post_large(item &i, size_t from, size_t to);
    bool advance(item &i, uint64_t until);
    bool advance_recv(item &i, uint64_t until);
    void arrived(item &i);
    void progress(batch &b);
    void finish_small_send(batch &b, item &i);
    bool reclaim(int to, size_t k, uint64_t until);
    bool make_room(int to, size_t bytes);
    bool local(const collrun_call &call);

    /* ask.cc */
    void ask(batch &b);
    void hear(batch &b, int from);
    void hear_receiver(batch &b, int from, const signature &theirs);
    void hear_sender(batch &b, int from, const signature &theirs);
    void settle_copies(int to);
    signature announcement(const item &i);
    [[noreturn]] void mismatch(int with, const signature &theirs, const signature &mine);

    /* will.cc */
    void expect_wills();
    std::vector<char> last_will(const peer &p) const;
    void read_will(int from);
    bool inherit(item &i);
    bool inherit_from(item &i, int from);
    bool is_new(peer &p, uint64_t number);

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
    std::deque<note> notes_;
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Small messages of collectives. Gloo delivers at once what meets a receive that is already posted,
 * and needs a round trip through both I/O threads otherwise; so every rank keeps a ring of small
 * receives posted per peer, on one slot, from the first time it listens to that peer. A message is
 * a signature and up to `capacity` bytes. It arrives in order, and the signature is compared before
 * a byte of it is used.
 *
 * Flow control is by grants (pair.h), one for half a ring: a message that finds none stays with
 * the sender, whose flush() (at the end of each operation) then waits for it.
 */
#ifndef BACKENDS_GLOO_MAILBOX_H
#define BACKENDS_GLOO_MAILBOX_H

#include "mesh.h"

namespace collrun_gloo
{

class group;

class mailbox
{
  public:
    explicit mailbox(group &g);

    /* The largest payload; every rank of a group computes the same. */
    const size_t capacity;

    /* Copies and sends. Waits for a free entry, and for a grant that the message before still waits
     * for: two ranks that both send twice before either listens would wait for ever. */
    void post(int peer, const signature &head, const void *payload);
    /* Where the payload of the next message may be written in place, to be sent by post_prepared.
     */
    char *prepare(int peer);
    void post_prepared(int peer, const signature &head);

    /* The payload of the next message from `peer`, which must be `expected`; valid until drop(). */
    const char *take(int peer, const signature &expected);
    void drop(int peer);

    /* Waits until everything posted has left for the network. */
    void flush();

  private:
    struct box {
        std::unique_ptr<char[]> in_memory, out_memory;
        std::unique_ptr<buffer> in, out; /* over the memory; destroyed first */
        uint32_t posted = 0, taken = 0;  /* receives */
        uint32_t sent = 0, left = 0;     /* sends; left: known to have left */
    };
    char *entry(const std::unique_ptr<char[]> &memory, uint32_t i) const;
    void listen(int peer);
    void await_departure(int peer, uint32_t until_left);

    group &group_;
    const size_t entry_len_;
    std::vector<box> boxes_;
    std::vector<int> busy_; /* peers with sends that have not left */
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Why does nobody answer? Calls that disagree never exchange a byte (common.h); they wait. A rank
 * that has waited for a while tells the peers it waits for what it is doing, and listens for what
 * they say, on a slot of its own. That costs nothing until it is needed. Messages here are best
 * effort: whoever waits has another wait that fails properly.
 */
#ifndef BACKENDS_GLOO_CONTROL_H
#define BACKENDS_GLOO_CONTROL_H

#include "mesh.h"

namespace collrun_gloo
{

/* What goes over a line: the call that the speaker is in, or a verdict: calls of two ranks that do
 * not agree. */
struct word {
    signature call = {};
    signature other = {}; /* no magic: not a verdict */
    int32_t caller = no_peer, other_caller = no_peer;

    bool is_verdict() const
    {
        return other.magic != 0;
    }
};

class control
{
  public:
    explicit control(mesh &net);

    /* Posts a receive for what the peer has to say, if there is none. */
    void listen(int peer) noexcept;
    /* Tells the peer, unless it has not taken the last message yet. */
    void tell(int peer, const word &w) noexcept;
    /* The next message of the peer, if one has come. */
    bool read(int peer, word *out) noexcept;
    /* Waits until what was told has been taken, or until `until`. */
    void settle(uint64_t until) noexcept;

  private:
    struct line {
        word in, out;
        std::unique_ptr<buffer> receiver, sender; /* over in and out; destroyed first */
        bool telling = false;
    };
    line &of(int peer);
    bool taken(int peer, line &l, uint64_t until);

    mesh &net_;
    std::vector<std::unique_ptr<line>> lines_;
};

} // namespace collrun_gloo
#endif

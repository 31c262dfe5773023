/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a group on one rank. Its peers may still be in their last operation, so before the
 * connections close, a farewell is offered to every peer that there is a connection to: it leaves
 * when the peer's I/O thread has answered, and by then that thread has read all that came before,
 * letters that nobody has asked for among it. It is expected from the group's beginning on, and who
 * has heard it knows that the connection does not end by a failure.
 */
#include "group.h"
#include "p2p.h"

namespace collrun_gloo
{

static constexpr uint64_t farewell_patience = 1000 * millisecond;

p2p::p2p(group &g) : group_(g), peers_(static_cast<size_t>(g.size()))
{
    if (g.size() == 1)
        return; /* there is no network */
    farewell_ = g.net().make_buffer(&nothing_, 1);
    bell_ = g.net().make_buffer(&nothing_, 1);
    for (int r = 0; r < g.size(); r++)
        if (r != g.rank())
            g.net().await_letter(r, {*farewell_, slot_farewell, 0, 1}, mesh::peer_connects);
}

void p2p::farewell() noexcept
{
    struct parting {
        int to;
        std::unique_ptr<buffer> out;
    };
    mesh &net = group_.net();
    const uint64_t until = now_ns() + farewell_patience;
    char bye = 1;
    try {
        std::vector<parting> all;
        for (int r = 0; r < group_.size(); r++) {
            if (r == group_.rank() || !net.is_connected(r))
                continue;
            all.push_back({r, net.make_buffer(&bye, 1)});
            try {
                net.offer(r, {*all.back().out, slot_farewell, 0, 1});
            } catch (const failure &) { /* it has left already */
                all.pop_back();
            }
        }
        for (const parting &p : all) {
            try {
                net.wait(*p.out, mesh::sending, {p.to, nullptr}, until);
            } catch (const failure &) { /* likewise */
            }
        }
    } catch (...) { /* no memory for it: peers find the connections closed */
    }
}

} // namespace collrun_gloo

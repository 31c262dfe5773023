/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives from anyone. A crowd is the messages of one shape that are expected from every rank: a
 * posted receive for each, one of which is asked for at a time. Those that come unasked stay here
 * until they are, and the receives of those that do not come stay posted (Gloo cannot take one
 * back), so the next receive of that message, from anyone or from that rank, finds it here.
 */
#ifndef BACKENDS_GLOO_ANYONE_H
#define BACKENDS_GLOO_ANYONE_H

#include "mesh.h"

namespace collrun_gloo
{

class crowd
{
  public:
    crowd(mesh &net, const signature &what, size_t first_bytes);

    const signature shape; /* number 0 */

    /* Posts a receive for the message of that slot, if the one posted last was for another. */
    void expect(int from, uint64_t slot);
    /* If the message of that slot is expected, it is now for the caller alone. */
    bool reserve(int from, uint64_t slot);
    /* The first part of a message that is here; valid until it is removed. */
    const char *part(int from) const;
    /* Waits until the reserved message of `from`, or for no_peer anyone's that is not reserved, is
     * here; its sender, or no_peer when `until` has passed. */
    int wait(int from, uint64_t until);
    void remove(int from);
    /* What this rank has not sent yet does not come any more, or has come by its will. */
    void strike(int from);

  private:
    struct guest {
        uint64_t slot = 0; /* 0: nothing posted */
        bool here = false, reserved = false, struck = false;
    };
    uint64_t *word(int from) const;
    void look();
    int find(int from);
    bool wait_once(uint64_t until);

    mesh &net_;
    const size_t len_;
    std::unique_ptr<char[]> memory_;
    std::unique_ptr<buffer> in_;
    char idle_memory_ = 0;
    std::unique_ptr<buffer> idle_; /* something to wait on that never comes */
    std::vector<guest> guests_;
    std::vector<uint32_t> owed_;
    uint32_t completed_ = 0; /* not yet attributed to a guest */
    int last_ = 0;
    bool broken_ = false;
};

} // namespace collrun_gloo
#endif

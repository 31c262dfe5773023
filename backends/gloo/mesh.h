/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections between the members of a group, each with every other one.
 *
 * - With the Gloo of 2022 the engine makes them (sockets.h). With later ones Gloo does: the members
 *   meet through the engine's rendezvous, which is a store of Gloo's here.
 * - A group that is closed leaves its mesh to the next group of the same members, if all of them
 *   offer it. A name that is used a thousand times costs the connections of one group. The members
 *   agree on the number of the group (`use`), so what a mesh still carries for an earlier group is
 *   told from what is new.
 * - A mesh on which something has failed is closed.
 */
#ifndef BACKENDS_GLOO_MESH_H
#define BACKENDS_GLOO_MESH_H

#include "abortable.h"
#include "device.h"
#include "timer.h"

#include <map>

namespace collrun_gloo
{

class transport;
struct offer;

class mesh
{
  public:
    mesh(const collrun_group_desc &desc, std::shared_ptr<device> used_device, uint64_t id,
         timer_thread &timers);
    ~mesh();
    /* Collective over the members. Once one of them is lost, it throws, soon. */
    void connect(const collrun_group_desc &desc, timer_thread &timers);
    /* Something has failed: no other group uses it, and its connections are closed a second later.
     * From any thread; does not block. */
    void fail() noexcept
    {
        if (!failed.exchange(true))
            leaving_.start(now_ns() + own_farewell_ns);
    }
    /* After fail(), as soon as Gloo's buffers of a call are gone: what Gloo still has to send for
     * them holds up a farewell that comes later. */
    void say_farewell() noexcept;
    /* Closes the connections when all that has been sent has arrived, or at the deadline. */
    void finish(uint64_t deadline_ns) noexcept;
    void close() noexcept;

    /* "rank 2 (world rank 6)" */
    std::string name_of(uint32_t rank) const;
    bool joins(const collrun_group_desc &desc) const;

    const uint32_t rank, size;
    const uint64_t id; /* the same on all members, of no other mesh of theirs */
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::shared_ptr<abortable_context> abortable; /* the transport of `context` */
    /* One for each handle of a group: a message moves while the engine builds a collective from
     * others. Made for the first group that has messages. */
    std::unique_ptr<transport> messages[2];
    uint64_t use = 0;     /* groups so far */
    unsigned handles = 0; /* of the group that uses it */
    std::atomic<bool> failed{false}, reusable{true};

  private:
    /* Within this time the thread whose call has failed says farewell, if there is one. */
    static constexpr uint64_t own_farewell_ns = 5000000;
    void leave() noexcept;

    const std::shared_ptr<device> device_;
    std::vector<uint32_t> world_rank_;
    std::atomic<bool> has_said_farewell_{false}, is_closed_{false};
    bool is_leaving_ = false; /* the timer's */
    timer leaving_;           /* last: it uses the others */
};

/* All meshes of a process that no group uses, and its Gloo devices. */
class mesh_pool
{
  public:
    explicit mesh_pool(timer_thread &timers) : timers_(timers)
    {
    }
    ~mesh_pool();
    /* Collective over the group's members. */
    std::shared_ptr<mesh> take(const collrun_group_desc &desc);
    /* The second handle of a group uses the mesh of the first one. */
    std::shared_ptr<mesh> share(const std::shared_ptr<mesh> &used);
    void give(std::shared_ptr<mesh> &&used) noexcept;

  private:
    std::shared_ptr<device> device_of(const collrun_group_desc &desc);
    std::vector<std::shared_ptr<mesh>> offered(const collrun_group_desc &desc, offer &mine);
    std::shared_ptr<mesh> make(const collrun_group_desc &desc, std::shared_ptr<device> used_device,
                               uint64_t id);

    timer_thread &timers_;
    std::mutex lock_;
    std::map<std::string, std::shared_ptr<device>> devices_;
    std::vector<std::shared_ptr<mesh>> spare_; /* the one that was given last is last */
    /* Without all members, or not to be used again: Gloo's device may still call their pairs. */
    std::vector<std::shared_ptr<mesh>> broken_;
};

} // namespace collrun_gloo
#endif

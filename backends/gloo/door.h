/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the other members of a group find a rank: one listening socket, answered by Gloo's I/O
 * thread, so also while the rank is busy elsewhere. Who wants a connection knocks: it connects,
 * says who it is, and is told `yes` (this socket is the connection from now on), `wait` (one is
 * there, or on its way) or `no`. Who does not know the password gets no answer.
 */
#ifndef BACKENDS_GLOO_DOOR_H
#define BACKENDS_GLOO_DOOR_H

#include "device.h"

#include <list>

namespace collrun_gloo
{

struct knock {
    uint64_t password;
    uint64_t rank;
};

struct answer {
    enum : uint32_t { yes = 1, wait = 2, no = 3 };
    uint32_t word;
    int32_t error; /* of a `no` */
};

class door : private gloo::transport::tcp::Handler
{
  public:
    /* Who lives there, called in the I/O thread. */
    class resident
    {
      public:
        virtual ~resident() = default;
        /* True when it has said `yes` and taken the socket; else this is the answer. */
        virtual bool admit(int fd, uint64_t rank, answer *reply) noexcept = 0;
    };

    /* From any thread. Throws. */
    door(const std::shared_ptr<device> &where, uint64_t password, size_t nranks, resident &inside);
    door(const door &) = delete;
    door &operator=(const door &) = delete;
    sockaddr_storage address() const;

    /* In the I/O thread, at least one turn of it before the end. Nobody comes in any more. */
    void shut() noexcept;

  private:
    /* Somebody who has not yet said all. */
    struct guest : gloo::transport::tcp::Handler {
        door &at;
        descriptor socket;
        char heard[sizeof(knock)] = {};
        size_t len = 0;

        explicit guest(door &d) : at(d)
        {
        }
        void handleEvents(int) override
        {
            at.hear(*this);
        }
    };
    void handleEvents(int) override;
    void welcome(int fd);
    void turn_away();
    void hear(guest &g);
    void decide(guest &g);

    const std::shared_ptr<device> device_;
    const uint64_t password_;
    resident &inside_;
    const size_t most_guests_;
    descriptor listener_, spare_;
    std::list<guest> guests_;
};

} // namespace collrun_gloo
#endif

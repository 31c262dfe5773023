/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport for Gloo's algorithms: Gloo's abstract context and buffer, over the sends and
 * receives of one collective of backends/net (op.h). It lives as long as that collective.
 *
 * - Gloo matches sends and receives of one slot in their order. A slot of op.h is used once, so
 *   operation_context numbers them.
 * - Gloo's algorithms never ask which of the messages of a buffer has arrived. So each wait is for
 *   the oldest one: it returns when the messages that it counts are here.
 * - An algorithm ignores the result of a wait. So a wait that fails throws `failed`, and
 *   net_op_wait has taken all memory back by then.
 *
 * Failure modes: those of op.h, thrown as `failed`; std::bad_alloc.
 */
#ifndef BACKENDS_GLOO_TRANSPORT_H
#define BACKENDS_GLOO_TRANSPORT_H

#include "collective.h"

#include <collrun/backend.h>

/* In C, a function may be called as a struct is. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "op.h"
}
#pragma GCC diagnostic pop

#include <deque>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <vector>

namespace collrun_gloo
{

/* The operation has failed with this status. Its message is stored. */
struct failed {
    int status;
};

inline void check(int status)
{
    if (status != COLLRUN_OK)
        throw failed{status};
}

class operation_context final : public gloo::transport::Context
{
  public:
    explicit operation_context(net_op *op);
    net_op *operation() const
    {
        return op_;
    }
    /* A request for op.h, valid as long as this context. */
    net_request *request()
    {
        return &requests_.emplace_back();
    }
    /* The slot of op.h for the next message in this direction with this peer and slot of Gloo's. */
    uint32_t next_slot(bool receives, int peer, uint64_t slot);

    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr,
                                                                        size_t len) override;
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<gloo::transport::Pair> &getPair(int peer) override;

  private:
    struct slot_use {
        uint64_t slot;
        int peer;
        bool receives;
        uint32_t used;
    };

    net_op *const op_;
    std::unique_ptr<gloo::transport::Pair> pair_; /* to each peer */
    std::deque<net_request> requests_;            /* a request does not move */
    std::vector<slot_use> uses_;
};

/* What the algorithms get. */
class algorithm_context final : public gloo::Context
{
  public:
    explicit algorithm_context(net_op *op)
        : Context(static_cast<int>(net_op_rank(op)), static_cast<int>(net_op_size(op)))
    {
        transportContext_ = std::make_shared<operation_context>(op);
    }
};

} // namespace collrun_gloo
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's TCP pairs with a shorter way for messages. Gloo tells the peer of every send before it and
 * of every receive: three writes and up to three wake-ups for one message. Only receives from
 * anyone need the former; and the latter, a grant, can stand for several receives. So:
 *
 *   receiver: expect(..., grant = false) ... expect(..., grant = true)
 *   sender:   post(..., granted = false), which waits for the grant; and once that message has
 * left, post(..., granted = true) for the others that were granted with it.
 *
 * All messages of a slot go this way or none. Completion, failure and abort are as for Gloo's own.
 */
#ifndef BACKENDS_GLOO_PAIRS_H
#define BACKENDS_GLOO_PAIRS_H

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>

namespace collrun_gloo
{

/* A stretch of a buffer that travels as one message. */
struct parcel {
    gloo::transport::UnboundBuffer &buffer;
    uint64_t slot;
    size_t offset, len;
};

/* As Device::createContext, for post() and expect(). */
std::shared_ptr<gloo::transport::Context>
make_context(const std::shared_ptr<gloo::transport::Device> &device, int rank, int size);

/* Both throw what Gloo throws when the connection has failed. */
void post(gloo::transport::Context &context, int peer, const parcel &m, bool granted);
void expect(gloo::transport::Context &context, int peer, const parcel &m, bool grant);

} // namespace collrun_gloo
#endif

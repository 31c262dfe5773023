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
 *
 * And pairs for connections that are there already. Gloo makes all pairs of a context at once, each
 * with a listening socket of its own, and waits for its I/O thread at every socket that it closes;
 * a group of 64 is 2016 pairs, of which a job uses few. So the backend connects when a connection
 * is first needed (connect.cc), and hands Gloo the socket.
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

/* As Device::createContext, for all that follows. Context::createPair makes a pair that waits to be
 * joined. */
std::shared_ptr<gloo::transport::Context>
make_context(const std::shared_ptr<gloo::transport::Device> &device, int rank, int size);

/* Both throw what Gloo throws when the connection has failed. */
void post(gloo::transport::Context &context, int peer, const parcel &m, bool granted);
void expect(gloo::transport::Context &context, int peer, const parcel &m, bool grant);

/* The rest is for the I/O thread, which need not wait for itself. */

/* Joins the pair by a connected socket. When that throws, the socket remains the caller's. */
void adopt(gloo::transport::Context &context, int peer, int fd);
/* Closes the connection, if there is one; `reset`: what was not yet sent is not sent. Nothing
 * reaches the pair any more, and after one more turn of the loop it can be freed. False: a thread
 * has the pair in hand, and may be waiting for this one. */
bool sever(gloo::transport::Context &context, int peer, bool reset);

} // namespace collrun_gloo
#endif

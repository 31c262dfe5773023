/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the public interfaces of Gloo differ: Debian 12 has the snapshot of 2022-05, Debian 13 that
 * of 2023-12, sid that of 2025-09. All three call themselves 0.5.0 and libgloo.so.0, so the headers
 * are told apart by the files that came with each.
 */
#ifndef BACKENDS_GLOO_API_H
#define BACKENDS_GLOO_API_H

#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#if __has_include(<gloo/transport/remote_key.h>)
#define GLOO_API 2025
#elif __has_include(<gloo/common/store.h>)
#define GLOO_API 2023
#else
#define GLOO_API 2022
#endif

namespace collrun_gloo
{

inline void connect_full_mesh(gloo::rendezvous::Context &context,
                              const std::shared_ptr<gloo::rendezvous::Store> &store,
                              std::shared_ptr<gloo::transport::Device> device)
{
#if GLOO_API >= 2025
    context.connectFullMesh(store, device);
#else
    context.connectFullMesh(*store, device);
#endif
}

} // namespace collrun_gloo
#endif

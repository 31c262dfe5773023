/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo on connections that the engine has made (collrun_rendezvous.connect_all), which a secret
 * protects.
 *
 * The Gloo of 2022 opens a port for each peer, and takes the first connection to it for that of the
 * peer, also if another process was faster. So each pair is connected to this process itself, and
 * then gets the connection to its peer under the same descriptor. If another process has come
 * first, its connection is found and closed, and the pairs are made anew.
 *
 * Later releases accept connections in one place and ask them for a number. They connect
 * themselves.
 */
#ifndef BACKENDS_GLOO_SOCKETS_H
#define BACKENDS_GLOO_SOCKETS_H

#include "abortable.h"
#include "device.h"

#include <exception>

#if GLOO_API == 2022
namespace collrun_gloo
{

/* Descriptors, closed at the end; -1: none. */
class sockets
{
  public:
    explicit sockets(size_t n) : fds_(n, -1)
    {
    }
    ~sockets();
    sockets(const sockets &) = delete;
    sockets &operator=(const sockets &) = delete;

    int *data()
    {
        return fds_.data();
    }
    void add(int fd)
    {
        fds_.push_back(fd);
    }
    const std::vector<int> &all() const
    {
        return fds_;
    }

  private:
    std::vector<int> fds_;
};

/* Connects all pairs of `context`: the one of member i gets connected.data()[i]. NULL: another
 * process has come first, or Gloo has failed; `why` is what to throw if that happens each time.
 * Throws a failure. */
std::shared_ptr<abortable_context> connect_on(gloo::rendezvous::Context &context,
                                              const device &used_device, const sockets &connected,
                                              std::exception_ptr &why);

} // namespace collrun_gloo
#endif
#endif

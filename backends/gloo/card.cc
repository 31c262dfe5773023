/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of both families in one form.
 */
#include "card.h"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>

namespace collrun_gloo
{

void card::set_address(const sockaddr_storage &s)
{
    family = s.ss_family;
    if (family == AF_INET) {
        sockaddr_in in;
        std::memcpy(&in, &s, sizeof(in));
        std::memcpy(ip, &in.sin_addr, sizeof(in.sin_addr));
        port = in.sin_port;
        return;
    }
    sockaddr_in6 in6;
    std::memcpy(&in6, &s, sizeof(in6));
    std::memcpy(ip, &in6.sin6_addr, sizeof(in6.sin6_addr));
    scope = in6.sin6_scope_id;
    port = in6.sin6_port;
}

socklen_t card::get_address(sockaddr_storage *out) const
{
    std::memset(out, 0, sizeof(*out));
    if (family == AF_INET) {
        sockaddr_in in = {};
        in.sin_family = AF_INET;
        in.sin_port = port;
        std::memcpy(&in.sin_addr, ip, sizeof(in.sin_addr));
        std::memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    sockaddr_in6 in6 = {};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = port;
    in6.sin6_scope_id = scope;
    std::memcpy(&in6.sin6_addr, ip, sizeof(in6.sin6_addr));
    std::memcpy(out, &in6, sizeof(in6));
    return sizeof(in6);
}

std::string card::address_text() const
{
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(family, ip, text, sizeof(text));
    return text;
}

std::string card::pack() const
{
    std::string blob;
    const auto put = [&blob](const auto &field) {
        blob.append(reinterpret_cast<const char *>(&field), sizeof(field));
    };
    put(family);
    put(port);
    put(busy);
    put(scope);
    put(ip);
    put(password);
    return blob;
}

card card::unpack(const std::string &blob)
{
    card c = {};
    if (blob.size() != c.pack().size())
        throw failure{COLLRUN_ERR_BACKEND, no_peer, "a member published a malformed address"};
    const char *at = blob.data();
    const auto take = [&at](auto &field) {
        std::memcpy(&field, at, sizeof(field));
        at += sizeof(field);
    };
    take(c.family);
    take(c.port);
    take(c.busy);
    take(c.scope);
    take(c.ip);
    take(c.password);
    return c;
}

} // namespace collrun_gloo

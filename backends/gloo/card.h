/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank publishes when a group forms: where its door is, the password to it, and whether its
 * host is crowded. It travels by the rendezvous, whose way is private, so who knows the password is
 * a member.
 */
#ifndef BACKENDS_GLOO_CARD_H
#define BACKENDS_GLOO_CARD_H

#include "common.h"

#include <sys/socket.h>

namespace collrun_gloo
{

struct card {
    uint16_t family;
    uint16_t port; /* network order */
    uint32_t busy; /* members on its host outnumber their cores */
    uint32_t scope;
    char ip[16];
    uint64_t password;

    void set_address(const sockaddr_storage &s);
    /* As this host reaches it. */
    socklen_t get_address(sockaddr_storage *out) const;
    std::string address_text() const;

    std::string pack() const;
    static card unpack(const std::string &blob);
};

} // namespace collrun_gloo
#endif

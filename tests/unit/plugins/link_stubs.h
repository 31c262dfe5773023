/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a link (net/link.h) that a stand-in without a network need not do. A stand-in
 * defines struct link, with `peers` by rank in the job and `rouse_fd`, and then includes this.
 */
#ifndef TESTS_UNIT_PLUGINS_LINK_STUBS_H
#define TESTS_UNIT_PLUGINS_LINK_STUBS_H

#include <string.h>
#include <unistd.h>

void link_add_group(struct link *link, const struct collrun_services *options)
{
    (void)link, (void)options;
}

void link_close(struct link *link)
{
    close(link->rouse_fd);
}

size_t link_address(const struct link *link, void *address)
{
    (void)link;
    memset(address, 0, 8);
    return 8;
}

int link_peer_open(struct link *link, const struct link_peer_config *config,
                   struct link_peer **peer)
{
    *peer = &link->peers[config->world_rank];
    (*peer)->cookie = config->cookie;
    return COLLRUN_OK;
}

void link_connect(struct link_peer *peer)
{
    (void)peer;
}

bool link_is_connected(const struct link_peer *peer)
{
    (void)peer;
    return true;
}

bool link_pending(const struct link *link)
{
    (void)link;
    return false;
}

void link_prepare_wait(struct link *link)
{
    (void)link;
}

void link_wake(struct link *link)
{
    (void)link;
}

#endif

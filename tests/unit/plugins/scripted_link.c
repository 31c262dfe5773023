/* SPDX-License-Identifier: Apache-2.0
 *
 * See scripted_link.h.
 */
#include "scripted_link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct scripted scripted;
static struct link others;

static bool is_scripted(const struct link_peer *peer)
{
    return peer >= scripted.link.peers && peer < scripted.link.peers + SCRIPTED_RANKS;
}

int link_open(const struct link_config *config, struct link **link)
{
    *link = config->world_rank == 0 ? &scripted.link : &others;
    if (config->world_rank == 0)
        memset(&scripted, 0, sizeof scripted);
    (*link)->upcalls = config->upcalls;
    (*link)->rouse_fd = eventfd(0, EFD_CLOEXEC);
    return COLLRUN_OK;
}

#include "link_stubs.h"

void link_send(struct link_peer *peer, const void *header, const void *data, size_t len)
{
    (void)data, (void)len;
    if (!is_scripted(peer))
        return;
    if (scripted.nsent == SCRIPTED_SENT)
        abort();
    memcpy(&scripted.sent[scripted.nsent], header, sizeof *scripted.sent);
    scripted.to[scripted.nsent++] = (uint32_t)(peer - scripted.link.peers);
}

enum link_sending link_send_long(struct link_peer *peer, const void *header, struct link_put *put)
{
    (void)peer, (void)header, (void)put;
    return LINK_BUSY;
}

void link_take(struct link_peer *peer, struct link_landing *landing)
{
    (void)peer, (void)landing;
    scripted.ntaken++;
}

int link_land(struct link *link, struct link_landing *landing)
{
    (void)link;
    landing->token = 1;
    scripted.landing = landing;
    return COLLRUN_OK;
}

void link_unland(struct link *link, struct link_landing *landing)
{
    (void)link, (void)landing;
}

void link_put(struct link *link, struct link_put *put)
{
    (void)link;
    scripted.put = put;
}

void link_unput(struct link *link, struct link_put *put)
{
    (void)link, (void)put;
}

bool link_progress(struct link *link)
{
    if (link != &scripted.link || !scripted.next || !*scripted.next)
        return false;
    (*scripted.next++)();
    return true;
}

void link_wait(struct link *link, uint64_t timeout_ns)
{
    (void)link, (void)timeout_ns;
    scripted.nwaits++;
}

bool link_accept(struct link *link)
{
    (void)link;
    return false;
}

void link_serve(struct link *link, bool output)
{
    eventfd_t ignored;
    (void)output;
    eventfd_read(link->rouse_fd, &ignored);
}

void link_rouse(struct link *link)
{
    eventfd_write(link->rouse_fd, 1);
}

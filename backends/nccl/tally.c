/* SPDX-License-Identifier: Apache-2.0
 *
 * The tally of a group: each rank tells the desk how many of the group's collectives it has
 * promised to launch (traffic.c), and hears how many all of them have. It says so only when it
 * cannot launch one at once: who has no backlog sets the pace, and the others have nothing to gain.
 * Without the desk there are no promises, and everything still works, if more slowly.
 */
#include "group.h"

#include <errno.h>
#include <unistd.h>

int tally_dial(struct nccl_group *g, uint64_t deadline_ns)
{
    return invite_connect(g, DESK_TALLY, deadline_ns, &g->tally.fd);
}

void tally_close(struct nccl_group *g)
{
    if (g->tally.fd >= 0)
        close(g->tally.fd);
    g->tally.fd = -1;
}

/* Of a transfer: what has to be tried again is 0. Anything else that fails is the end. */
static size_t progress(struct nccl_group *g, ssize_t n)
{
    if (n > 0)
        return (size_t)n;
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        tally_close(g);
    return 0;
}

static void tell(struct nccl_group *g)
{
    struct tally *t = &g->tally;
    if (!t->out_len && t->told == g->promised_calls)
        return;
    if (!t->out_len) {
        t->out = t->told = g->promised_calls;
        t->out_len = sizeof(t->out);
    }
    const char *rest = (const char *)(&t->out + 1) - t->out_len;
    t->out_len -= progress(g, send(t->fd, rest, t->out_len, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void hear(struct nccl_group *g)
{
    struct tally *t = &g->tally;
    size_t n;
    do {
        n = progress(
            g, recv(t->fd, (char *)&t->in + t->in_len, sizeof(t->in) - t->in_len, MSG_DONTWAIT));
        t->in_len += n;
        if (t->in_len == sizeof(t->in)) {
            t->ready = t->in;
            t->in_len = 0;
        }
    } while (n && t->fd >= 0);
}

void tally_exchange(struct nccl_group *g)
{
    if (g->tally.fd >= 0)
        tell(g);
    if (g->tally.fd >= 0 && g->tally.ready < g->tally.told)
        hear(g);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/stall_episodes.h"

#include "xalloc.h"

#include <stdlib.h>
#include <string.h>

/* Takes that which has not waited for the longest time out of the list; NULL: all wait. */
static struct stall_episode *stall_episodes_evict(struct stall_episodes *e)
{
    struct stall_episode **oldest = NULL;
    for (struct stall_episode **p = &e->first; *p; p = &(*p)->next) {
        bool over = !(*p)->present && !(*p)->number && !(*p)->report;
        if (over && (!oldest || (*p)->since_ns < (*oldest)->since_ns))
            oldest = p;
    }
    if (!oldest)
        return NULL;
    struct stall_episode *out = *oldest;
    *oldest = out->next;
    e->n--;
    e->left_out++;
    return out;
}

struct stall_episode *stall_episodes_get(struct stall_episodes *e, const char *scope, bool messages)
{
    struct stall_episode *found = e->first;
    while (found && (found->messages != messages || strcmp(found->scope, scope) != 0))
        found = found->next;
    if (found)
        return found;
    if (e->n >= STALL_EPISODES_MAX)
        found = stall_episodes_evict(e);
    if (!found)
        found = xmalloc(sizeof *found);
    *found = (struct stall_episode){.next = e->first, .messages = messages};
    memcpy(found->scope, scope, sizeof found->scope);
    e->first = found;
    e->n++;
    return found;
}

void stall_episodes_fini(struct stall_episodes *e)
{
    while (e->first) {
        struct stall_episode *next = e->first->next;
        free(e->first);
        e->first = next;
    }
    *e = (struct stall_episodes){0};
}

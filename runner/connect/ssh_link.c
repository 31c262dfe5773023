/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/ssh_link.h"

void ssh_link_set_state(struct ssh_link *l, const char *state)
{
    pthread_mutex_lock(&l->pool->lock);
    l->state = state;
    pthread_mutex_unlock(&l->pool->lock);
}

bool ssh_link_set_socket(struct ssh_link *l, int fd)
{
    pthread_mutex_lock(&l->pool->lock);
    bool good = !l->pool->ending;
    l->socket = fd;
    pthread_mutex_unlock(&l->pool->lock);
    return good;
}

bool ssh_link_is_ending(struct ssh_link *l)
{
    pthread_mutex_lock(&l->pool->lock);
    bool ending = l->pool->ending;
    pthread_mutex_unlock(&l->pool->lock);
    return ending;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts past 2^31, where an int somewhere would show: a broadcast, an allreduce and a message of
 * 2^31 + 17 bytes, checked byte by byte. Takes 2 GiB in each rank, so it runs only when asked for.
 */
#include "conform.h"

#include <stdio.h>
#include <sys/mman.h>

#define COUNT (((size_t)1 << 31) + 17)

/* Differs on both sides of every power of two. */
static unsigned char byte_at(size_t i, unsigned salt)
{
    return (unsigned char)((i * 7 + (i >> 16) + (i >> 31) * 5 + salt) % 251);
}

static void fill(unsigned char *at, unsigned salt)
{
    for (size_t i = 0; i < COUNT; i++)
        at[i] = byte_at(i, salt);
}

static void verify(struct team *team, const unsigned char *at, unsigned salt, int times, int status,
                   const char *what)
{
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, what))
        return;
    for (size_t i = 0; i < COUNT; i++)
        if (at[i] != (unsigned char)(byte_at(i, salt) * times)) {
            team_fail(team, "%s of 2^31 + 17 elements: element %zu is %d, expected %d", what, i,
                      at[i], (unsigned char)(byte_at(i, salt) * times));
            return;
        }
}

void suite_huge(struct team *team)
{
    int last = team->size - 1;
    unsigned char *at =
        mmap(NULL, COUNT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        team_fail(team, "no memory for 2 GiB");
        return;
    }
    fill(at, team->rank == 0 ? 1 : 2);
    verify(team, at, 1, 1, collrun_broadcast(team->group, at, COUNT, COLLRUN_UINT8, 0),
           "broadcast");
    if (!team->dead)
        verify(team, at, 1, team->size,
               collrun_allreduce(team->group, at, at, COUNT, COLLRUN_UINT8, COLLRUN_SUM),
               "allreduce");
    fill(at, team->rank == last ? 3 : 4);
    if (!team->dead && last > 0 && team->rank == last)
        team_want(team, collrun_send(team->group, at, COUNT, COLLRUN_UINT8, 0), COLLRUN_OK, "send");
    else if (!team->dead && last > 0 && team->rank == 0)
        verify(team, at, 3, 1, collrun_recv(team->group, at, COUNT, COLLRUN_UINT8, last), "recv");
    munmap(at, COUNT);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts past 2^31 and past 2^32, where 32 bits somewhere would show: a broadcast, an allreduce and
 * a message of twice (for two ranks) 2^31 + 17 bytes, an allgather and a reduce_scatter with blocks
 * of that size, whose offsets are past 2^32 with three ranks; all checked byte by byte. Every rank
 * takes as many times 2 GiB as there are ranks, so it runs only when asked for.
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

static void fill(unsigned char *at, size_t count, unsigned salt)
{
    for (size_t i = 0; i < count; i++)
        at[i] = byte_at(i, salt);
}

static void verify(struct team *team, const unsigned char *at, size_t count, unsigned salt,
                   int times, int status, const char *what)
{
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, what))
        return;
    for (size_t i = 0; i < count; i++)
        if (at[i] != (unsigned char)(byte_at(i, salt) * times)) {
            team_fail(team, "%s of %zu elements: element %zu is %d, expected %d", what, count, i,
                      at[i], (unsigned char)(byte_at(i, salt) * times));
            return;
        }
}

static void one_vector(struct team *team, unsigned char *at, size_t count)
{
    int last = team->size - 1;
    fill(at, count, team->rank == 0 ? 1 : 2);
    verify(team, at, count, 1, 1, collrun_broadcast(team->group, at, count, COLLRUN_UINT8, 0),
           "broadcast");
    if (!team->dead)
        verify(team, at, count, 1, team->size,
               collrun_allreduce(team->group, at, at, count, COLLRUN_UINT8, COLLRUN_SUM),
               "allreduce");
    fill(at, count, team->rank == last ? 3 : 4);
    if (!team->dead && last > 0 && team->rank == last)
        team_want(team, collrun_send(team->group, at, count, COLLRUN_UINT8, 0), COLLRUN_OK, "send");
    else if (!team->dead && last > 0 && team->rank == 0)
        verify(team, at, count, 3, 1, collrun_recv(team->group, at, count, COLLRUN_UINT8, last),
               "recv");
}

/* In place: rank r's block holds byte_at(i, r + 5). */
static void a_block_per_rank(struct team *team, unsigned char *at)
{
    unsigned char *mine = at + COUNT * (size_t)team->rank;
    fill(mine, COUNT, (unsigned)team->rank + 5);
    int status = collrun_allgather(team->group, mine, at, COUNT, COLLRUN_UINT8);
    for (int r = 0; !team->dead && r < team->size; r++)
        verify(team, at + COUNT * (size_t)r, COUNT, (unsigned)r + 5, 1, status, "allgather");
    if (team->dead)
        return;
    status = collrun_reduce_scatter(team->group, at, mine, COUNT, COLLRUN_UINT8, COLLRUN_SUM);
    verify(team, mine, COUNT, (unsigned)team->rank + 5, team->size, status, "reduce_scatter");
}

void suite_huge(struct team *team)
{
    size_t len = COUNT * (size_t)team->size;
    unsigned char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        team_fail(team, "no memory for %zu GiB", len >> 30);
        return;
    }
    one_vector(team, at, len);
    if (!team->dead)
        a_block_per_rank(team, at);
    munmap(at, len);
}

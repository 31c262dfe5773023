/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts past 2^31 and past 2^32, where 32 bits somewhere would show: a broadcast, an allreduce and
 * a message of twice (for two ranks) 2^31 + 17 bytes, an allgather and a reduce_scatter with blocks
 * of that size, whose offsets are past 2^32 with three ranks; all checked byte by byte. Every rank
 * takes as many times 2 GiB as there are ranks, so it runs only when asked for.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define COUNT (((size_t)1 << 31) + 17)

enum { BLOCK = 1 << 16 };

/* Up to a block from `first` on, a multiple of 256. Element i differs from element i + 2^k for
 * every k; `times` is how many ranks have brought it. */
static void render(unsigned char *at, size_t first, size_t len, unsigned salt, int times)
{
    for (size_t i = 0; i < len; i += 256) {
        size_t k = (first + i) >> 8;
        unsigned char row[256];
        unsigned base = (unsigned)(k + (k >> 8) + (k >> 16) + (k >> 24) * 5) + salt;
        for (unsigned j = 0; j < 256; j++)
            row[j] = (unsigned char)((j * 7 + base) * (unsigned)times);
        memcpy(at + i, row, len - i < 256 ? len - i : 256);
    }
}

static size_t block_len(size_t count, size_t at)
{
    return count - at < BLOCK ? count - at : BLOCK;
}

static void fill(unsigned char *at, size_t count, unsigned salt)
{
    for (size_t i = 0; i < count; i += BLOCK)
        render(at + i, i, block_len(count, i), salt, 1);
}

static void verify(struct team *team, const unsigned char *at, size_t count, unsigned salt,
                   int times, int status, const char *what)
{
    unsigned char want[BLOCK];
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, what))
        return;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t len = block_len(count, i), k = 0;
        render(want, i, len, salt, times);
        if (memcmp(at + i, want, len) == 0)
            continue;
        while (at[i + k] == want[k])
            k++;
        team_fail(team, "%s of %zu elements: element %zu is %d, expected %d", what, count, i + k,
                  at[i + k], want[k]);
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

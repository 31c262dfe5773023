/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks: every ordered pair, every type and small count (types in turn for
 * groups of more than four), one large one, bursts that must keep their order, and interleaved
 * streams to several peers. Blocking sends are matched by construction: all members walk the same
 * list, and each takes part in what concerns it.
 */
#include "conform.h"

#include <stdlib.h>

enum { BURST = 64 };

static void transfer(struct team *team, struct trial *t, struct shape s)
{
    if (team->rank == s.from)
        s.kind = COLLRUN_SEND;
    else if (team->rank == s.to)
        s.kind = COLLRUN_RECV;
    else {
        team->serial++; /* as the two others do */
        return;
    }
    trial_run(t, team, &s);
}

static void pair_sweep(struct team *team, struct trial *t, int from, int to)
{
    static const size_t counts[] = {0, 1, 2, 3, 17, 1000};
    bool all = team->run->wide || team->size <= 4;
    for (int dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++) {
        struct shape s = {.dtype = (enum collrun_dtype)dtype, .from = from, .to = to};
        bool turn = all || (from * 5 + to + dtype) % 4 == 0;
        if (!dtype_in_scope(team->run, s.dtype) || !turn)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
            s.count = counts[i];
            s.misalign = (unsigned)(i & 1);
            transfer(team, t, s);
        }
    }
}

/* Messages of one pair arrive in the order in which they were sent, whatever their sizes. */
static void burst(struct team *team, struct trial *t, int from, int to)
{
    for (int i = 0; i < BURST; i++) {
        struct shape s = {.dtype = COLLRUN_INT32, .from = from, .to = to};
        s.count = i % 3 == 0 ? 5 : (size_t)(i * i);
        transfer(team, t, s);
    }
    for (int i = 0; i < BURST; i++) {
        struct shape s = {.dtype = COLLRUN_INT64, .from = from, .to = to, .count = 4};
        transfer(team, t, s);
    }
}

/* From one to all others in turn, and back in the other order. */
static void fan(struct team *team, struct trial *t, int hub)
{
    for (int round = 0; round < 4; round++) {
        for (int peer = 0; peer < team->size; peer++) {
            struct shape s = {.dtype = COLLRUN_FLOAT32, .from = hub, .to = peer};
            s.count = (size_t)(round * 100 + peer + 1);
            if (peer != hub)
                transfer(team, t, s);
        }
        for (int peer = team->size - 1; peer >= 0; peer--) {
            struct shape s = {.dtype = COLLRUN_FLOAT64, .from = peer, .to = hub};
            s.count = (size_t)(round * 10 + peer);
            if (peer != hub)
                transfer(team, t, s);
        }
    }
}

void suite_p2p(struct team *team)
{
    struct trial t = {0};
    for (int from = 0; from < team->size; from++)
        for (int to = 0; to < team->size; to++)
            if (from != to)
                pair_sweep(team, &t, from, to);
    for (int from = 0; from < team->size; from++) {
        struct shape big = {.dtype = COLLRUN_INT32, .from = from, .to = (from + 1) % team->size};
        big.count = team->run->max_bytes / 4;
        if (team->size == 1)
            break;
        transfer(team, &t, big);
        burst(team, &t, from, (from + 1) % team->size);
    }
    fan(team, &t, 0);
    fan(team, &t, team->size - 1);
    trial_free(&t);
}

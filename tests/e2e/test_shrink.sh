#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun_group_shrink: a job goes on with the ranks that are left, also if more are lost meanwhile.
. "$(dirname "$0")/lib.sh"

# pid_of RANK: of the rank of a running job whose ranks print it.
pid_of() { sed -n "s/.*rank $1: info: [a-z]*: process \([0-9]*\)/\1/p" err; }
lost() { [ "$(grep -c 'ranks are left' err)" -ge "$1" ]; }

for backend in ${BACKENDS:-shm tcp gloo}; do
    job survivors <<END
version: 1
processes: {count: 4}
groups: {world: {ranks: all, backend: $backend}}
on_failure: {action: continue}
timeouts: {rendezvous: 20s}
workloads: [{plugin: survivors, params: {steps: 100, pause: 10ms}}]
END
    start run -v survivors.yaml
    check_within "$backend: four ranks start" 60 sh -c '[ $(grep -c "info: survivors: process" err) = 4 ]'
    kill -9 "$(pid_of 2)"
    check_within "$backend: one is killed: the others shrink the group" 60 lost 3
    is "$backend: to three ranks" "$(grep -c '3 of 4 ranks are left' err)" 3
    # The next two at once: one is frozen, so that the shrink waits for it, and dies inside.
    frozen=$(pid_of 1)
    kill -STOP "$frozen"
    kill -9 "$(pid_of 0)"
    kill -9 "$frozen"
    finish 60
    ends "$backend: the exit code is that of the first one" 137
    is "$backend: one rank makes all steps" "$(out)" "[3] 100 steps, 1 ranks at the end"
done

# Without on_failure: continue the job ends, and nothing hangs.
sed -i 's/^on_failure.*//' survivors.yaml
start run -v survivors.yaml
check_within "without continue: four ranks start" 60 sh -c '[ $(grep -c "info: survivors: process" err) = 4 ]'
kill -9 "$(pid_of 2)"
finish 60
ends "without continue: the job ends" 137
like "and the verdict is the lost rank" "$(err)" 'error: rank 2 .*was killed by signal 9'

cat >dying.c <<'END'
#include <collrun/workload.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void *die(void *delay_us)
{
    long us = *(const long *)delay_us;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* In each round the last rank dies, a little later each time, while all of them shrink the group. */
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct collrun_group *g;
    long delay = 0;
    int rc = collrun_group_get(ctx, "", &g), n = collrun_size(g);
    for (int round = 0; rc == COLLRUN_OK && collrun_size(g) > 2; round++) {
        struct collrun_group *left;
        pthread_t thread;
        delay = 120L * round;
        rc = collrun_barrier(g);
        if (rc == COLLRUN_OK && collrun_rank(g) == collrun_size(g) - 1)
            pthread_create(&thread, NULL, die, &delay);
        if ((rc = collrun_group_shrink(g, NULL, &left)) != COLLRUN_OK)
            break;
        for (int i = 0; i < collrun_size(left); i++)
            if (collrun_world_rank_of(left, i) != i)
                return collrun_fail(ctx, "rank %d of the new group is world rank %d", i, collrun_world_rank_of(left, i));
        while ((rc = collrun_barrier(left)) == COLLRUN_OK && collrun_size(left) == collrun_size(g))
            ; /* it dies after the shrink */
        if (rc == COLLRUN_ERR_PEER_FAILED) {
            struct collrun_group *again;
            if ((rc = collrun_group_shrink(left, "again", &again)) == COLLRUN_OK) {
                collrun_group_destroy(left);
                left = again;
                struct collrun_group *unnamed;
                if ((rc = collrun_group_shrink(left, NULL, &unnamed)) == COLLRUN_OK) { /* no rank is lost */
                    collrun_group_destroy(left);
                    left = unnamed;
                }
            }
        }
        collrun_group_destroy(g);
        g = left;
    }
    printf("status %d, %d of %d\n", rc, collrun_size(g), n);
    return rc < 0 ? collrun_fail(ctx, "%s", collrun_error()) : rc;
}
COLLRUN_WORKLOAD(.name = "dying", .run = run);
END
plugin dying.c dying.so
for backend in ${BACKENDS:-shm tcp gloo}; do
    job dying <<END
version: 1
processes: {count: 10}
groups: {world: {ranks: all, backend: $backend}}
on_failure: {action: continue}
timeouts: {rendezvous: 20s}
workloads: [{plugin: ./dying.so}]
END
    run run dying.yaml
    is "$backend: ranks die at any moment of a shrink" "$(sort out | tr '\n' ';')" "[0] status 0, 2 of 10;[1] status 0, 2 of 10;"
done

cat >absent.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct collrun_group *g, *left;
    char again[64];
    int rc = collrun_group_get(ctx, "", &g);
    if (rc != COLLRUN_OK || collrun_rank(g) == 1)
        return rc;
    rc = collrun_group_shrink(g, "left", &left);
    snprintf(again, sizeof again, "%d", collrun_group_shrink(g, "world", &left));
    printf("%d %s %s\n", rc, again, collrun_error());
    return 0;
}
COLLRUN_WORKLOAD(.name = "absent", .run = run);
END
plugin absent.c absent.so
job absent <<END
version: 1
processes: {count: 2}
timeouts: {rendezvous: 3s}
workloads: [{plugin: ./absent.so}]
END
run run absent.yaml
like "a rank that does not call is named after timeouts.rendezvous; a taken name is refused" "$(out)" '^\[0\] -8 -4 .*group "world"'
done_testing

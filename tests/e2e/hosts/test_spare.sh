#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A restart after a lost host: a spare host takes its place; without one another host takes its ranks; without room it is tried again.
hosts=4
. "$(dirname "$0")/testbed.sh"
testbed_up
cat >"$tmp/place.c" <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <unistd.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *w;
    float x = 1;
    int rc = collrun_group_get(ctx, "world", &w);
    (void)state;
    if (!rc)
        rc = collrun_allreduce(w, &x, &x, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    printf("attempt %d on %s, %d ranks\n", collrun_attempt(ctx), collrun_host(ctx), (int)x);
    fflush(stdout);
    if (!rc && collrun_attempt(ctx) == 0)
        pause();
    return rc;
}
COLLRUN_WORKLOAD(.name = "place", .run = run);
END
plugin "$tmp/place.c" "$tmp/place.so" || { echo "Bail out! the workload does not compile"; exit 1; }

# spare_job NAME HOSTS KEYS COUNT: HOSTS and KEYS of `hosts`
spare_job() {
    {
        ssh_head "$2" | sed "s/\\]}\$/]$3}/"
        printf 'processes: {count: %d}\ntimeouts: {grace: 1s}\non_failure: {action: restart, backoff: 2s, min_uptime: 1ms}\n' "$4"
        printf 'workloads: [{plugin: %s/place.so}]\n' "$tmp"
    } | job "$1"
}
up() { [ "$(grep -c 'attempt 0 on' out)" = "$1" ]; }
places() { sed -nE "s/^\[([0-9])\] attempt $1 on (h[0-9]), .*/\1:\2/p" out | sort | tr '\n' ' '; }

spare_job spare '"h[1-4]"' ', spare: 1' 6
start spare.yaml --run-dir "$tmp/run"
check_within "the ranks run on three hosts" 30 up 6
is "and none on the spare" "$(places 0)" "0:h1 1:h1 2:h2 3:h2 4:h3 5:h3 "
link 3 down
finish 60
ends "a host is lost: the restart succeeds" 0
is "on the spare host" "$(places 1)" "0:h1 1:h1 2:h2 3:h2 4:h4 5:h4 "
like "as the message says" "$(err)" '^collrun: host h4 takes the place of h3, with ranks 4-5$'
like "and stands in the plan" "$(cat "$tmp/run/plan.json")" '"h4"'
link 3 up
check_within "nothing is left" 20 nothing_left

spare_job others '"h[1-3]"' '' 6
start others.yaml
check_within "without a spare" 30 up 6
link 2 down
finish 60
ends "the restart succeeds, too" 0
is "on the other hosts, with the same numbers" "$(places 1)" "0:h1 1:h1 2:h1 3:h1 4:h3 5:h3 "
like "as it says" "$(err)" '^collrun: host h2 is left out; the other hosts run ranks 2-3$'
link 2 up
check_within "nothing is left of it" 20 nothing_left

spare_job full '{name: "h[1-2]", slots: 2}' '' 4
start full.yaml
check_within "without a spare and without slots" 30 up 4
kill -KILL "$(processes 2 collrun-agent)"
finish 60
ends "the same host is tried again" 0
is "and runs its ranks" "$(places 1)" "0:h1 1:h1 2:h2 3:h2 "
check_within "nothing is left at last" 20 nothing_left
done_testing

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

# spare_job NAME HOSTS KEYS COUNT [RESTARTS]: HOSTS and KEYS of `hosts`
spare_job() {
    {
        ssh_head "$2" ', connect_timeout: 15s, retries: 0' | sed "s/\\]}\$/]$3}/"
        printf 'processes: {count: %d}\ntimeouts: {grace: 1s, silence: 8s}\non_failure: {action: restart, backoff: 2s, min_uptime: 1ms, max_restarts: %d}\n' "$4" "${5:-2}"
        printf 'workloads: [{plugin: %s/place.so}]\n' "$tmp"
    } | job "$1"
}
up() { [ "$(grep -c 'attempt 0 on' out)" = "$1" ]; }
places() { sed -nE "s/^\[([0-9])\] attempt $1 on (h[0-9]), .*/\1:\2/p" out | sort | tr '\n' ' '; }

spare_job spare '"h[1-4]"' ', spare: 1' 6
start spare.yaml --run-dir "$tmp/run"
check_within "the ranks run on three hosts" 60 up 6
is "and none on the spare" "$(places 0)" "0:h1 1:h1 2:h2 3:h2 4:h3 5:h3 "
link 3 down
finish 150
ends "a host is lost: the restart succeeds" 0
is "on the spare host" "$(places 1)" "0:h1 1:h1 2:h2 3:h2 4:h4 5:h4 "
like "as the message says" "$(err)" '^collrun: host h4 takes the place of h3, with ranks 4-5$'
like "and stands in the plan" "$(cat "$tmp/run/plan.json")" '"h4"'
link 3 up
check_within "nothing is left" 60 nothing_left

# Two hosts at once, and one spare: the first lost host is no spare for the second one.
start spare.yaml
check_within "with one spare" 60 up 6
kill -STOP "$pid" # until both are lost
kill -KILL "$(processes 2 collrun-agent)" "$(processes 3 collrun-agent)"
kill -CONT "$pid"
finish 150
ends "two hosts are lost at once: the restart succeeds" 0
is "one on the spare host, the ranks of the other on those that are left" "$(places 1)" "0:h1 1:h1 2:h1 3:h1 4:h4 5:h4 "
is "as it says" "$(grep -E 'takes the place|left out' err | tr '\n' ';')" \
    "collrun: host h4 takes the place of h3, with ranks 4-5;collrun: host h2 is left out; the other hosts run ranks 2-3;"
check_within "nothing is left of that" 60 nothing_left

# A host is lost, the spare does not answer, and the host is back by then: it is the next spare.
spare_job back '"h[1-4]"' ', spare: 1' 6 9
start back.yaml
check_within "and a spare that has gone, too" 60 up 6
link 4 down
link 3 down
check_within "the spare is tried" 60 grep -q 'host h4 takes the place of h3' err
link 3 up
finish 150
ends "the lost host has come back: a restart succeeds" 0
like "on it" "$(err)" '^collrun: host h3 takes the place of h4, with ranks 4-5$'
is "with the same numbers" "$(places 2)" "0:h1 1:h1 2:h2 3:h2 4:h3 5:h3 "
check_within "nothing is left on the hosts" 60 nothing_left
start back.yaml
check_within "once more" 60 up 6
link 3 down
finish 150
ends "neither is back: a restart succeeds without both" 0
is "on the others" "$(places "$(grep -oE 'attempt [0-9]+ on' out | tail -n 1 | grep -oE '[0-9]+')" | sed 's/h[12]/other/g')" \
    "0:other 1:other 2:other 3:other 4:other 5:other "
link 3 up
link 4 up
check_within "nothing is left on any of them" 60 nothing_left

# A computation with checkpoints in the run directory, which the hosts share.
{
    ssh_head '"h[1-4]"' | sed 's/\]}$/], spare: 1}/'
    printf 'processes: {count: 6}\ntimeouts: {grace: 1s, silence: 8s}\non_failure: {action: restart, backoff: 100ms}\n'
    printf 'workloads: [{plugin: checkpoint, params: {steps: 4000, every: 100}}]\n'
} | job saved
mkdir "$tmp/saved"
mkfifo "$tmp/saved/checkpoint-400-rank-4.new" # rank 4 waits in its next checkpoint until the host is lost
start saved.yaml --run-dir "$tmp/saved"
saved() { [ "$(find "$tmp/saved" -name "checkpoint-$1-rank-[0-5]" | wc -l)" = 6 ]; }
check_within "a job with checkpoints" 60 saved 300
link 3 down
rm "$tmp/saved/checkpoint-400-rank-4.new"
finish 180
ends "goes on after the loss of a host" 0
like "on the spare" "$(err)" '^collrun: host h4 takes the place of h3, with ranks 4-5$'
step=$(sed -nE 's/.*attempt 1 starts at step ([0-9]+).*/\1/p' out)
check "from the checkpoints, also those that the lost host had written" test "${step:-0}" -ge 300
like "to the right result" "$(out)" '4000 steps, sum .*: right'
link 3 up
check_within "nothing is left of the computation" 60 nothing_left

spare_job others '"h[1-3]"' '' 6
start others.yaml
check_within "without a spare" 60 up 6
link 2 down
finish 150
ends "the restart succeeds, too" 0
is "on the other hosts, with the same numbers" "$(places 1)" "0:h1 1:h1 2:h1 3:h1 4:h3 5:h3 "
like "as it says" "$(err)" '^collrun: host h2 is left out; the other hosts run ranks 2-3$'
link 2 up
check_within "nothing is left of it" 60 nothing_left

spare_job full '{name: "h[1-2]", slots: 2}' '' 4
start full.yaml
check_within "without a spare and without slots" 60 up 4
kill -KILL "$(processes 2 collrun-agent)"
finish 150
ends "the same host is tried again" 0
is "and runs its ranks" "$(places 1)" "0:h1 1:h1 2:h2 3:h2 "
check_within "nothing is left at last" 60 nothing_left
done_testing

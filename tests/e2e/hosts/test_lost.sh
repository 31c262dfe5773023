#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts that die in the middle of a job: the runner reports it and stops all other ranks; the host that was cut off
# cleans up without being asked.
hosts=4
. "$(dirname "$0")/testbed.sh"
. "$testbed_dir/table.sh"
testbed_up
need_scripted

# doing COMMANDS: writes a job of 2 ranks on each of 4 hosts; ranks 4 and 5 run on h3
doing() {
    { ssh_head; printf 'processes: {count: 8}\ntimeouts: {grace: 1s, silence: 3750ms}\ngroups: {world: {backend: gloo, timeout: 5m}}\nworkloads:\n'
      printf '  - {plugin: %s/scripted.so, params: {dir: %s, do: "%s"}}\n' "$tmp" "$tmp" "$1"; } | job lost
}
# Waits for the end of collrun; sets $lost to the ms that took.
to_the_end() {
    local begin
    begin=$(date +%s%N)
    finish 60
    lost=$((($(date +%s%N) - begin) / 1000000))
}
others_empty() { empty 1 && empty 2 && empty 4; }
running() { noted_all 8 up; }

for what in hang endless; do
    case $what in hang) steps="note up;hang" ;; endless) steps="note up;endless world" ;; esac

    doing "$steps"
    start lost.yaml
    within 60 running
    kill -KILL "$(processes 3 collrun-agent)"
    to_the_end
    matches_table "the agent of a host is killed" 127
    check "$what, agent killed: the job ends soon ($lost ms)" [ "$lost" -lt $((30000 * slow)) ]
    check_within "$what, agent killed: nothing is left anywhere" 60 nothing_left

    start lost.yaml
    within 60 running
    kill -KILL $(processes 3 sshd | grep -vx "$(cat "$tmp/h3/pid")")
    to_the_end
    matches_table "the sshd of a host is killed" 127
    check "$what, sshd killed: the job ends soon ($lost ms)" [ "$lost" -lt $((30000 * slow)) ]
    check_within "$what, sshd killed: nothing is left anywhere" 60 nothing_left

    start lost.yaml
    within 60 running
    link 3 down
    to_the_end
    matches_table "the link to a host is cut" 127
    check "$what, link cut: reported, and the job ends ($lost ms)" [ "$lost" -lt $((30000 * slow)) ]
    check_within "$what, link cut: the others are empty" 60 others_empty
    check_within "$what, link cut: h3 cleans up while the link is down" 60 empty 3
    link 3 up

    start lost.yaml
    within 60 running
    frozen=$(processes 3)
    kill -STOP $frozen
    to_the_end
    matches_table "a host freezes" 127
    check "$what, host frozen: reported, and the job ends ($lost ms)" [ "$lost" -lt $((30000 * slow)) ]
    check_within "$what, host frozen: the others are empty" 60 others_empty
    kill -CONT $frozen
    check_within "$what, host thawed: it cleans up" 60 empty 3
done

# What ranks have started, in sessions of their own, is gone when collrun has ended.
{ ssh_head; printf 'processes: {count: 8}\ntimeouts: {grace: 1s}\n'
  printf 'workloads: [{command: [sh, -c, "setsid sleep 4321 & setsid sh -c \\"sleep 4321 & sleep 4321\\" & sleep 4321"]}]\n'; } | job children
for what in collrun-agent collrun-guard; do
    start children.yaml
    within 60 eval '[ "$(processes 3 sleep | wc -l)" = 8 ]'
    kill -KILL "$(processes 3 $what)"
    finish 60
    is "$what is killed: no child of a rank outlives collrun" "$(processes 3 sleep)" ""
    ends "$what is killed: the host is lost" 127
    check_within "$what is killed: nothing is left anywhere" 60 nothing_left
done

# The runner dies.
doing "note up;hang"
start lost.yaml
within 60 running
kill -KILL -- "-$pid"
wait "$pid" 2>/dev/null
check_within "the runner is killed: nothing is left anywhere" 60 nothing_left
done_testing

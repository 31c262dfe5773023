#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts that die in the middle of a job: the runner says so within 5 s, stops everybody else, and the host that was cut off
# has cleaned up after itself, also when nobody could tell it to.
hosts=4
. "$(dirname "$0")/bed.sh"
. "$bed_dir/table.sh"
bed_up
need_actor

# doing STEPS: 2 ranks on each of 4 hosts; rank 4 and 5 are h3's
doing() {
    { ssh_head; printf 'processes: {count: 8}\ntimeouts: {grace: 1s}\ngroups: {world: {backend: gloo, timeout: 5m}}\nworkloads:\n'
      printf '  - {plugin: %s/actor.so, params: {dir: %s, do: "%s"}}\n' "$tmp" "$tmp" "$1"; } | job lost
}
# Sets $lost to the ms between now and the end of collrun.
to_the_end() {
    local begin
    begin=$(date +%s%N)
    finish 30
    lost=$((($(date +%s%N) - begin) / 1000000))
}
others_empty() { empty 1 && empty 2 && empty 4; }
running() { noted 0 up && noted 4 up && noted 7 up; }

for what in hang endless; do
    case $what in hang) steps="note up;hang" ;; endless) steps="note up;endless world" ;; esac

    doing "$steps"
    start lost.yaml
    within 20 running || not_ok "$what: the job runs" "$(err)"
    kill -KILL "$(processes 3 collrun-agent)"
    to_the_end
    told "the agent of a host is killed" 127
    check "$what, agent killed: soon over ($lost ms)" [ "$lost" -lt $((4000 * slow)) ]
    check "$what, agent killed: nothing is left anywhere" within 3 nothing_left

    start lost.yaml
    within 20 running || not_ok "$what: the job runs" "$(err)"
    kill -KILL $(processes 3 sshd | grep -vx "$(cat "$tmp/h3/pid")")
    to_the_end
    told "the sshd of a host is killed" 127
    check "$what, sshd killed: soon over ($lost ms)" [ "$lost" -lt $((4000 * slow)) ]
    check "$what, sshd killed: nothing is left anywhere" within 3 nothing_left

    start lost.yaml
    within 20 running || not_ok "$what: the job runs" "$(err)"
    link 3 down
    to_the_end
    told "the link to a host is cut" 127
    check "$what, link cut: said and over within 5 s and the grace ($lost ms)" [ "$lost" -lt $((7500 * slow)) ]
    check "$what, link cut: the others are empty" within 3 others_empty
    check "$what, link cut: h3 cleans up by itself, with the link still down" within 20 empty 3
    link 3 up

    start lost.yaml
    within 20 running || not_ok "$what: the job runs" "$(err)"
    frozen=$(processes 3)
    kill -STOP $frozen
    to_the_end
    told "a host freezes" 127
    check "$what, host frozen: said and over ($lost ms)" [ "$lost" -lt $((7500 * slow)) ]
    check "$what, host frozen: the others are empty" within 3 others_empty
    kill -CONT $frozen
    check "$what, host thawed: it cleans up" within 15 empty 3
done

# The runner dies, or is stopped for a while.
doing "note up;hang"
start lost.yaml
within 20 running
kill -KILL -- "-$pid"
wait "$pid" 2>/dev/null
check "the runner is killed: nothing is left anywhere" within 10 nothing_left
done_testing

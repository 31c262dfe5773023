# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What holds whatever carries the streams. The caller defines `head_of COUNT`, which prints the head of a job (version,
# hosts) with COUNT hosts, and has called need_actor.

# The lines of hello say which group is on which backend.
suite_groups() {
    { head_of 8; cat <<'JOB'; } | job groups
processes: {count: 16}
groups:
  world: {ranks: all, backend: auto}
  node: {ranks: all, split: host, backend: shm}
  pairs: {ranks: [0, 15, 4], backend: gloo}
workloads: [{plugin: hello}]
JOB
    run groups.yaml
    ends "$1: groups across and inside hosts" 0
    is "$1: every rank spoke" "$(grep -c 'hello from rank' "$tmp/out")" 16
    is "$1: world is on gloo" "$(grep -c 'world: [0-9]* of 16 (gloo)' "$tmp/out")" 16
    is "$1: inside a host it is shm" "$(grep -c 'node/[a-z0-9]*: [01] of 2 (shm)' "$tmp/out")" 16
    is "$1: and both at once, in the order of ranks" "$(unlabelled 15 | grep -o 'pairs: .*')" "pairs: 1 of 3 (gloo)"
    quiet "$1: a good job says nothing of its own"
}

suite_collectives() {
    { head_of 4; cat <<'JOB'; } | job collectives
processes: {count: 8}
groups:
  world: {ranks: all}
  node: {ranks: all, split: host}
workloads:
  - {name: across, plugin: allreduce, groups: [world]}
  - {name: inside, plugin: allreduce, groups: [node], params: {group: "node/{host}"}}
JOB
    run collectives.yaml
    ends "$1: collectives across and inside at the same time" 0
    like "$1: verified on gloo" "$(out)" "8 ranks on gloo.*verified"
    like "$1: verified on shm" "$(out)" "2 ranks on shm.*verified"
}

suite_failure() {
    { head_of 4; printf 'processes: {count: 8}\nworkloads:\n  - {plugin: %s/actor.so, params: {dir: %s, do: "%s"}}\n' \
        "$tmp" "$tmp" "@5 exit 7;sleep 60000"; } | job failure
    run failure.yaml
    ends "$1: the exit code is the rank's" 7
    like "$1: the rank and its host are named" "$(err)" "rank 5"
    check "$1: nothing is left on any host" within 10 nothing_left
}

suite_env() {
    { head_of 2; cat <<'JOB'; } | job env
processes: {count: 2}
env: {set: {PLACE: "{host}/{rank}"}, pass: [PASSED], secrets: [TOKEN]}
workloads: [{plugin: hello, params: {show: PLACE PASSED TOKEN}}]
JOB
    PASSED='a b"c'"'"'d$HOME' TOKEN=s3cr3t-t0k3n run env.yaml
    ends "$1: environment" 0
    like "$1: set, passed and secret arrive as they are" "$(out)" \
        'PLACE=[a-z0-9]*/1; PASSED=a b"c'"'"'d\$HOME; TOKEN=s3cr3t-t0k3n'
}

# A rank that prints more than anybody reads blocks; nothing is lost, and the runner does not grow.
suite_output() {
    { head_of 2; printf 'processes: {count: 2}\nlogging: {console: {label: ""}}\nworkloads:\n'
      printf '  - {plugin: %s/actor.so, params: {dir: %s, do: "@1 spew 700000 100"}}\n' "$tmp" "$tmp"; } | job flood
    "$COLLRUN" flood.yaml 2>"$tmp/err" | { sleep 3; cat >"$tmp/out"; } &
    local pipe=$!
    sleep 2
    local rss=0 pid
    for pid in $(pgrep -f "^$real_collrun flood.yaml"); do
        rss=$(awk '/VmRSS/ {print $2}' "/proc/$pid/status")
    done
    wait $pipe
    check "$1: the runner stays small while nobody reads ($rss KiB)" [ "$rss" -gt 0 -a "$rss" -lt 65536 ]
    is "$1: nothing is lost or reordered" "$(awk '$2 != NR - 1 {print "line " NR ": " $2; exit}' "$tmp/out")" ""
    check "$1: and all of it is there" [ "$(wc -c <"$tmp/out")" -ge $((64 << 20)) ]
}

suite() {
    suite_groups "$1"
    suite_collectives "$1"
    suite_failure "$1"
    suite_env "$1"
    suite_output "$1"
}

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# COLLRUN_DEBUG: what the runner, agents, ranks and backends decide is logged, on this machine and on hosts that files are sent to;
# debug.log and the stderr of ranks in a run directory; the last lines of a rank that was killed, in `collrun diag`; no secrets.
. "$(dirname "$0")/lib.sh"
need_scripted
export XDG_CACHE_HOME=$tmp/cache # so that files are sent

# debugged AREAS ARGUMENTS...: a run with these areas.
debugged() { COLLRUN_DEBUG=$1 run "${@:2}"; }
# logs WHAT REGEX: a line of the log, of any process of the last run, matches, behind "debug: TIME ".
logs() {
    if cat "$tmp/err" "$tmp/out" | grep -qE "^(\[[0-9]+\] )?debug: [0-9]+\.[0-9]{6} $2"; then
        ok "$1"
    else
        not_ok "$1" "no line matches: $2"
    fi
}
lines() { cat "$tmp/err" "$tmp/out" | grep -cE "^(\[[0-9]+\] )?debug: $1"; }

# ---- the variable ----
simple one 1 "note done"
run one.yaml
ends "without the variable" 0
is "nothing is logged" "$(lines '')" 0
debugged "" one.yaml
is "nothing either if it is empty" "$code $(lines '')" "0 0"
debugged rvd,link one.yaml
ends "an unknown area is refused" 2
is "it and the one that was meant are named" "$(err)" 'collrun: error: COLLRUN_DEBUG: there is no area "rvd"
hint: did you mean "rdv"? COLLRUN_DEBUG=help lists all'
debugged help one.yaml
ends "help" 0
is "lists the areas" "$(out | cut -d' ' -f1 | sort | tr '\n' ' ')" "all coord group link liveness place policy proof rank rdv stage stop wire "
for area in $(out | cut -d' ' -f1 | grep -v all); do
    check "collrun-debug(7) has the area $area" grep -q "^\.B $area\$" "$top/runner/man/collrun-debug.7"
done

# ---- one machine ----
cat >tcp.yaml <<END
version: 1
processes: {count: 3}
groups: {g: {backend: tcp, options: {local: tcp}}}
workloads: [{plugin: ./scripted.so, groups: [g], params: {dir: "$tmp", do: "allreduce 3 g"}}]
END
debugged all tcp.yaml
ends "a job over tcp, all areas" 0
logs "placement" 'collrun: place: rank 2: host .*, local rank 2,'
logs "the backend of a group" 'collrun: place: group g: 3 ranks, backend tcp,'
logs "the handshake with an agent" 'collrun: stage: host .*: HELLO, build [0-9a-f]+, protocol 1,'
logs "a frame, by its fields" 'collrun: wire: to .*: KEEPALIVE limit_ms=0 now_ns=[0-9]+$'
logs "a frame of a rank" 'rank 1: wire: to agent: READY'
logs "an agent" 'agent .*: rank: rank 2 runs as pid [0-9]+'
logs "a phase" 'collrun: rank: all 3 ranks have reached phase'
logs "a backend" 'rank 0: group: backend "tcp" is open'
logs "a listener" 'rank 2: link: tcp: listens on 127\.0\.0\.1 port [0-9]+'
logs "a connection that is opened" 'rank [0-2]: link: tcp: dial 127\.0\.0\.1 port [0-9]+ for connection 0 to rank [0-2]'
logs "one that is accepted" 'rank [0-2]: link: tcp: HELLO of rank [0-2] for connection 0, answer: yes'
logs "a group" 'rank 1: group: group "g" is formed: g#0:[0-9a-f]+, backend tcp'
logs "the verdict" 'collrun: proof: verdict: class ok'
debugged link tcp.yaml
is "one area logs nothing of others" "$(($(lines '[0-9.]+ rank [0-9]: link: ') - $(lines '')))" 0

# ---- hosts that files are sent to ----
cat >hosts.yaml <<END
version: 1
hosts: {defaults: {slots: 1, transport: {command: [env]}}, nodes: [a, b]}
processes: {count: 2}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "allreduce 3 world"}}]
END
debugged stage,rdv,wire hosts.yaml
ends "a job on two hosts" 0
logs "what a host lacks is sent" 'collrun: stage: host [ab] needs .*collrun-agent, [0-9]+ bytes, SHA-256 '
logs "an agent is named by its host" 'agent a: stage: collrun-agent runs as pid'
logs "the store of the runner: a member joins" 'collrun: rdv: world#0:[0-9a-f]+: rank 1 joins, one of 2'
logs "and puts a key, of which the length is logged" 'collrun: rdv: world#0:[0-9a-f]+: rank 0 has put ".*", [0-9]+ bytes'
logs "a fence" 'collrun: rdv: world#0:[0-9a-f]+: fence 0 is complete'
logs "the agent leaves the members of several hosts to it" 'agent b: rdv: world#0:[0-9a-f]+: rank 1 joins; the store of the runner serves it'
debugged stage hosts.yaml --set 'hosts.defaults.transport.command=[sh, -c, "echo no such host >&2; exit 3"]'
ends "a host that cannot be reached" 127
logs "and why" 'collrun: stage: host a cannot be used, status -?[0-9]+: host a: sh exited with code 3: no such host'

# ---- the run directory ----
debugged rank,wire tcp.yaml --run-dir dir
ends "a run directory" 0
like "debug.log has the runner" "$(cat dir/debug.log)" '^debug: [0-9.]+ collrun: wire: to '
like "and the agent" "$(cat dir/debug.log)" '^debug: [0-9.]+ agent .*: rank: rank 1 runs as pid'
like "the stderr of a rank has its lines" "$(cat dir/attempt-0/rank-1.stderr)" '^debug: [0-9.]+ rank 1: wire: to agent: READY'
run tcp.yaml --run-dir quiet
check "no debug.log without the variable" test ! -e quiet/debug.log

# ---- a crash ----
simple killed 2 "allreduce 2 world; @1 signal 9; allreduce 1 world"
debugged wire,group killed.yaml --run-dir killed
ends "a rank is killed" 137
run diag killed
ends "collrun diag" 0
like "shows the last lines of the rank" "$(out)" '^collrun: the last lines of the log of rank 1:$'
like "which end before the kill" "$(out)" '^  \| debug: [0-9.]+ rank 1: wire: from agent: GO'
run killed.yaml --run-dir plain
run diag plain
unlike "without the variable there are none" "$(out)" 'the last lines'

# ---- secrets ----
cat >secret.yaml <<'END'
version: 1
env: {secrets: [TOKEN]}
processes: {count: 2}
workloads: [{command: [sh, -c, 'test -n "$TOKEN" && test "$0" = "$TOKEN"', "${env:TOKEN}"]}]
END
export TOKEN=hunter2-hunter2
debugged all secret.yaml --run-dir secret
ends "a job with a secret" 0
is "all areas do not show it" "$(cat err out secret/debug.log secret/attempt-0/* | grep -c hunter2)" 0
done_testing

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that has no connection to collrun, and of which a library writes the calls into the record of its rank, gets the same
# verdicts as one that calls collrun: deadlocks, mismatches, ranks that are missing, stalls, and none where something may yet happen.
. "$(dirname "$0")/lib.sh"
engine=$here/../../engine
cc -std=c11 -D_GNU_SOURCE -O1 -pthread -I"$engine" -I"$include" "$here/recorded.c" "$engine"/base/record{,_queue,_writer}.c -o "$tmp/recorded" || {
    echo "Bail out! the program does not compile"
    exit 1
}

# job_of NAME: NAME.yaml, a job whose ranks do that; `below`: the same as `ring`, below a shell, `hosts`: on two hosts.
job_of() {
    local command="[./recorded, box.$1, $1]" hosts=
    [ "$1" != below ] || command="[bash, -c, './recorded box.$1 ring; true']"
    [ "$1" != hosts ] || command="[./recorded, box.$1, ring]" hosts="hosts: {nodes: [{name: a, transport: local}, {name: b, transport: local}]}"
    printf '%s\n' "version: 1" "processes: {count: 3}" "$hosts" "workloads: [{command: $command}]" \
        "timeouts: {run: $((30 * slow))s, stall: 1s}" "logging: {dir: $1}" >"$tmp/$1.yaml"
}

# starts WAY: runs it; its stderr is WAY.err, its exit code WAY.code, its result WAY/result.json.
starts() {
    job_of "$1"
    {
        timeout -k 5 $((60 * slow)) "$COLLRUN" "$tmp/$1.yaml" >"$tmp/$1.out" 2>"$tmp/$1.err" </dev/null
        echo $? >"$tmp/$1.code"
    } &
    jobs_of_test+=($!)
}
wait_for_all() {
    wait "${jobs_of_test[@]}"
    jobs_of_test=()
}
jobs_of_test=()

# result WAY EXPRESSION: what Python makes of it; v is the verdict, r the whole result.
result() {
    python3 -S -c 'import json, sys
r = json.load(open(sys.argv[1]))
v = r["verdict"]
print(eval(sys.argv[2]))' "$tmp/$1/result.json" "$2"
}

# explained WAY CODE CLASS CULPRITS SUSPECTS REGEX
explained() {
    is "$1: exit code" "$(cat "$tmp/$1.code")" "$2"
    is "$1: verdict" "$(result "$1" 'v["class"], v["culprits"], v["suspects"]')" "('$3', $4, $5)"
    like "$1: message" "$(cat "$tmp/$1.err")" "^collrun: error: $6"
}

# unremarkable WAY: the job ends well and says nothing.
unremarkable() {
    is "$1: exit code" "$(cat "$tmp/$1.code")" 0
    unlike "$1: no error" "$(cat "$tmp/$1.err")" "error|deadlock"
    is "$1: no proof was withdrawn" "$(result "$1" 'r.get("internal")')" None
}

for way in ring below hosts crossed sleeper order leaves; do starts $way; done
wait_for_all
for way in ring below hosts; do
    explained $way 124 deadlock '[]' '[0, 1, 2]' 'deadlock: rank 0 waits in recv\(4 x int32, from 1\) in MPI_COMM_WORLD for rank 1; rank 1 waits in .* for rank 2; rank 2 waits in .* for rank 0$'
done
explained crossed 124 deadlock '[]' '[0, 1]' 'deadlock: rank 0 waits in recv\(4 x int32, from 1\) in MPI_COMM_WORLD for rank 1; rank 1 waits in barrier MPI_COMM_WORLD#1 for rank 0; 1 more rank waits behind them$'
explained sleeper 124 deadlock '[]' '[0, 1, 2]' 'deadlock: rank 0 waits in recv'
explained leaves 1 exit '[2]' '[]' 'ranks 0-1 wait in recv\(4 x int32, from 2\) in MPI_COMM_WORLD for rank 2; rank 2 calls nothing more: it has ended$'
explained order 124 deadlock '[0]' '[]' 'deadlock: rank 0 waits in barrier other#1 for rank 1; rank 1 waits in barrier MPI_COMM_WORLD#1 for rank 0; 1 more rank waits behind them; only rank 0 calls other#1 before MPI_COMM_WORLD#1$'
is "waits are in the verdict" "$(result crossed '[(w["ranks"], w["group"], w["number"], w["for"]) for w in v["waits"]]')" \
    "[('0', 'MPI_COMM_WORLD', None, '1'), ('1-2', 'MPI_COMM_WORLD', 1, '0')]"
for way in ring hosts crossed sleeper; do
    is "$way: no proof was withdrawn" "$(result $way 'r.get("internal")')" None
done

for way in ring order; do
    "$COLLRUN" diag --json "$tmp/$way" >"$tmp/diag.json"
    is "$way: diag finds the same verdict" "$(python3 -S -c 'import json, sys
print(json.load(open(sys.argv[1]))["verdict"] == json.load(open(sys.argv[2])))' "$tmp/$way/result.json" "$tmp/diag.json")" True
done

for way in outside alarmed helped woken signaled stopped in_flight mismatch; do starts $way; done
wait_for_all
for way in outside alarmed helped woken signaled stopped in_flight; do unremarkable $way; done

explained mismatch 1 mismatch '[1]' '[]' 'rank 1 .*broadcast MPI_COMM_WORLD#2: ranks 0 and 2 call broadcast\(4 x int32, root 0\), rank 1 calls reduce\(4 x int32, sum, root 0\)'

# Rank 1 computes for 5 s.
job_of stall
start "$tmp/stall.yaml"
check_within "a stall report names the rank" 20 grep -qE 'CAUSE  rank 1 .* has not called barrier MPI_COMM_WORLD#2; it is asleep in nanosleep' "$tmp/err"
top_shows() {
    "$COLLRUN" top --json "$tmp/stall" >"$tmp/top.json"
    [ "$(python3 -S -c 'import json, sys
t = json.load(open(sys.argv[1]))
print(t["waits"], [r["doing"] for r in t["ranks"]])' "$tmp/top.json")" = \
        "2/3 wait in MPI_COMM_WORLD#2 for rank 1 ['in barrier MPI_COMM_WORLD#2', 'outside any collective', 'in barrier MPI_COMM_WORLD#2']" ]
}
check_within "top shows the calls" 20 top_shows
check_within "SIGUSR1 shows the calls" 5 status_shows 'ranks 0 and 2: in barrier MPI_COMM_WORLD#2, for [0-9.]+ s; '
finish 20
ends "the job ends well" 0
done_testing

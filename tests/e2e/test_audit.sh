#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that disagree about a collective, on backends that do not notice: the audit ends the job, and names the operation and the rank.
# Programs that agree are not reported. A rank that is always last is.
. "$(dirname "$0")/lib.sh"
plugin "$here/audit_programs.c" "$tmp/audit_programs.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
cp "$top/examples/backend-template/stream.c" .
cc -std=c11 -O2 -fvisibility=hidden -fPIC -shared -I"$include" -o libcollrun_stream.so stream.c || {
    echo "Bail out! the backend template does not compile"
    exit 1
}

# audited NAME BACKEND PARAMETERS [FURTHER KEYS OF THE GROUP] [FURTHER LINES]: runs a job of 4 ranks
audited() {
    {
        echo "version: 1"
        echo "processes: {count: 4}"
        echo "backends: {stream: {path: ./libcollrun_stream.so}}"
        echo "groups: {world: {ranks: all, backend: $2${4:+, $4}}}"
        echo "timeouts: {grace: 1s}"
        echo "workloads:"
        echo "  - {plugin: ./audit_programs.so, params: {$3}}"
        [ $# -lt 5 ] || printf '%s\n' "$5"
    } >"$tmp/$1.yaml"
    run "$1.yaml" --run-dir "$tmp/run.$1" ${rendezvous:+--set "timeouts.rendezvous=$rendezvous"}
}
# went_on: for how many ms the rank with the mistake went on
went_on() { sed -n 's/.*went on for \([0-9]*\) ms/\1/p' "$tmp/out"; }
# verdict NAME: class, culprits, suspects, group, number, field of result.json
verdict() {
    python3 -S -c 'import json, sys
v = json.load(open(sys.argv[1]))["verdict"]
print(v["class"], v["culprits"], v["suspects"], v["group"], v["number"], v["field"])' "run.$1/result.json" 2>&1
}

# calls NAME: what the verdict says that the ranks called
calls() {
    python3 -S -c 'import json, sys
print("; ".join(c["call"] for c in json.load(open(sys.argv[1]))["verdict"]["calls"]))' "run.$1/result.json" 2>&1
}

for mistake in op dtype; do
    audited $mistake stream "mistake: $mistake, rank: 2, at: 25, steps: 2000, pause_us: 2000"
    ends "stream: $mistake: 1" 1
    is "stream: $mistake: verdict" "$(verdict $mistake)" "mismatch [2] [] world 25 $mistake"
    like "stream: $mistake: since when" "$(err)" 'wrong since operation 25'
    ms=$(went_on)
    echo "# found after $ms ms"
    check "stream: $mistake: soon" [ "${ms:-9999}" -lt $((2000 * slow)) ]
done
# Messages of the template that do not fit are errors, so these may end before the audit looks.
for mistake in root kind count counts; do
    audited $mistake stream "mistake: $mistake, rank: 2, at: 25, steps: 2000, pause_us: 2000"
    ends "stream: $mistake: 1" 1
done

# All ranks return 0 within milliseconds.
audited short stream "mistake: op, rank: 2, at: 7, steps: 8"
ends "ranks that return 0 at once: 1" 1
is "ranks that return 0 at once: verdict" "$(verdict short)" "mismatch [2] [] world 7 op"
audited short_part stream "mistake: op, rank: 1, at: 3, steps: 8, split: true"
ends "parts of a group: 1" 1
like "parts of a group: verdict (both parts have the mistake)" "$(verdict short_part)" "^mismatch \\[\\] \\[(1, 3|0, 2)\\] half 3 op\$"
audited extra stream "mistake: extra, rank: 2, steps: 8"
ends "one operation more: 1" 1
like "one operation more" "$(err)" 'rank 2 called 9 operations in group world, ranks 0-1 and 3 called 8'
is "one operation more: verdict" "$(verdict extra)" "mismatch [2] [] world 9 kind"
audited two stream "mistake: two, rank: 2, steps: 8"
is "two operations more: verdict" "$(verdict two) $(calls two)" "mismatch [2] [] world 9 kind broadcast(1 x float32, root 2)"
for backend in ${BACKENDS:-shm tcp gloo stream}; do
    audited started_$backend $backend "mistake: started, rank: 2, steps: 8"
    ends "$backend: an operation more that is started: 1" 1
    is "$backend: an operation more that is started: verdict" "$(verdict started_$backend) $(calls started_$backend)" \
        "mismatch [2] [] world 9 kind allreduce(8 x float32, sum)"
done

# Members may destroy a group while others are inside its last operation, but not before that.
for backend in ${BACKENDS:-shm tcp gloo stream}; do
    audited destroyed_$backend $backend "mistake: destroy, split: true, rank: 1, at: 3, steps: 3"
    ends "$backend: a group that is destroyed too early: 1" 1
    is "$backend: a group that is destroyed too early: verdict" "$(verdict destroyed_$backend) $(calls destroyed_$backend)" \
        "mismatch [1] [] half 3 kind allreduce(8 x float32, sum)"
    like "$backend: a group that is destroyed too early: message" "$(err)" \
        'rank 1 .*: allreduce half#3: rank 1 has destroyed half after half#2, ranks 0 and 2-3 call allreduce\('
    audited kept_$backend $backend "mistake: destroy, split: true, rank: 1, at: 4, steps: 3, late: 2, late_us: 120000"
    ends "$backend: a group that is destroyed at its end: 0" 0
done

# Ranks that wait for each other to create different groups: they are found at once, or the verdict explains a time-out of less than 3 s.
for mistake in name order name_1s order_1s; do
    rendezvous=$(sed -n 's/.*_//p' <<<$mistake) begin=$SECONDS
    audited new_$mistake shm "mistake: ${mistake%_*}, rank: 2"
    ends "a group with another $mistake: 1" 1
    like "a group with another $mistake: verdict" "$(verdict new_$mistake) $(calls new_$mistake)" \
        '^mismatch \[2\] \[\] new None (name|ranks) collrun_group_create\("new", ranks 0-2\); collrun_group_create\("news?", ranks (0-2|2, 1 and 0)\)$'
    run diag "$tmp/run.new_$mistake"
    like "a group with another $mistake: collrun diag" "$(cat out)" 'members disagree about a new group: ranks 0-1 call collrun_group_create'
    check "a group with another $mistake: before the time-out of 2 minutes" [ $((SECONDS - begin)) -lt 60 ]
done
rendezvous=
audited split shm "mistake: barrier, rank: 2"
ends "a barrier instead of a split: 1" 1
is "a barrier instead of a split: verdict" "$(verdict split) $(calls split)" "mismatch [2] [] world None kind collrun_group_split(world); barrier()"
sed -e 's/backend: shm/backend: tcp/' -e '2i hosts: {nodes: [{name: a, slots: 2, transport: local}, {name: b, slots: 2, transport: {command: [env]}}]}' \
    -e '2i network: {interface: lo}' new_name.yaml >new_hosts.yaml
run new_hosts.yaml --run-dir "$tmp/run.new_hosts"
like "a group with another name on two hosts: verdict" "$(verdict new_hosts)" '^mismatch \[2\] \[\] new None name$'
audited left shm "mistake: run, rank: 2, steps: 0"
ends "a rank that does not create the group: 1" 1
like "a rank that does not create the group: verdict" "$(verdict left)" '^exit \[2\] \[\] new None'
like "a rank that does not create the group" "$(err)" 'rank 0 waits in the creation of group new for rank 2, whose workloads have ended'
audited alarm shm "mistake: alarm, rank: 2, steps: 1"
ends "a rank that a signal handler lets create the group: 0" 0
audited threads shm "mistake: threads, steps: 1"
ends "threads that create two groups in another order on each rank: 0" 0

# Many operations a second: the report may be about a few operations.
audited fast stream "mistake: op, rank: 2, at: 5000, steps: 2000000"
ends "many operations: 1" 1
ms=$(went_on)
echo "# found after $ms ms"
check "many operations: soon" [ "${ms:-9999}" -lt $((2000 * slow)) ]
since=$(sed -n 's/.*wrong since operation \([0-9]*\).*/\1/p' "$tmp/err")
check "many operations: since operation $since" [ "${since:-9999}" -le 5000 ]

# gloo, which compares nothing itself
audited gloo gloo "mistake: root, rank: 2, at: 25, steps: 2000, pause_us: 2000"
ends "gloo: root: 1" 1
is "gloo: root: verdict" "$(verdict gloo)" "mismatch [2] [] world 25 root"

# nccl on the stand-in libraries: a sum and a maximum of as many numbers meet, and both ranks get numbers
fake=${BUILD:-$top/build/release}/tests/fake
for mistake in op dtype; do
    if [ ! -e "$fake/libnccl.so.2" ]; then
        skip "nccl: $mistake" "the stand-in libraries are not built (make fake)"
        continue
    fi
    LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} audited nccl_$mistake nccl "mistake: $mistake, rank: 2, at: 25, steps: 2000, pause_us: 2000" \
        "gpus_per_process: 1" "hosts: {nodes: [{name: here, transport: local, gpus: [0, 1, 2, 3]}]}"
    ends "nccl: $mistake: 1" 1
    is "nccl: $mistake: verdict" "$(verdict nccl_$mistake)" "mismatch [2] [] world 25 $mistake"
done

# Without operations in the records, the marks remain. The first ranks that have differed end the job; a rank that has not come that far
# is not compared, and of two ranks neither is the majority.
audited marks stream "mistake: op, rank: 2, at: 25, steps: 2000, pause_us: 2000" "" "record: {entries: 0}"
ends "no operations are recorded: 1" 1
like "no operations are recorded" "$(err)" '(rank 2 and ranks (0-1 and 3|0-1|0 and 3|1 and 3)|ranks? [013] and rank 2|rank 2 and rank [013]) differ in (operation 25|one of the operations [0-9]+ to [0-9]+) of group world; results of the group may be wrong since operation [0-9]+'
since=$(sed -n 's/.*wrong since operation \([0-9]*\).*/\1/p' "$tmp/err")
check "no operations are recorded: since operation $since" [ "${since:-9999}" -le 25 ]
like "no operations are recorded: verdict" "$(verdict marks)" '^mismatch (\[2\] \[\]|\[\] \[(2, 3|[01], 2)\]) world [0-9]+ None$'

# check: of the group
audited off stream "mistake: op, rank: 2, at: 5, steps: 100, pause_us: 2000" "check: off"
ends "check: off: 0" 0
audited strict stream "mistake: op, rank: 2, at: 5, steps: 100" "check: strict"
ends "check: strict: 1" 1
like "check: strict: before data moves" "$(err)" 'rank [02] .*allreduce\(8 x float32, (max|sum)\)'
unlike "check: strict: no result is wrong" "$(err)" 'wrong since'

# Programs that agree
for backend in ${BACKENDS:-shm tcp gloo stream}; do
    steps=3000
    [ $backend != gloo ] || steps=300 # Gloo needs milliseconds for each where ranks share cores
    audited good_$backend $backend "steps: $steps"
    ends "$backend: equal calls: 0" 0
    audited parts_$backend $backend "steps: 500, split: true"
    ends "$backend: equal calls in parts: 0" 0
done

# Stragglers
audited late shm "steps: 150, pause_us: 200, late: 3, late_us: 3000"
ends "a slow rank: 0" 0
like "a slow rank" "$(err)" '^collrun: rank 3 was last in [0-9]+ % of the operations of group world, [0-9.]+ ms late on average; that cost [0-9]+ % of the time$'
is "in result.json" "$(python3 -S -c 'import json, sys
g = json.load(open(sys.argv[1]))["stragglers"][0]
first = g["ranks"][0]
print(g["group"], first["rank"], first["last"] > g["compared"] * 0.8, first["late_ms"] > 2, first["cost"] > 0.2)' run.late/result.json 2>&1)" "world 3 True True True"
# Last in most operations, and twice as often as any other rank, is enough.
audited late_often shm "steps: 150, late: 2, late_us: 3000, jitter_us: 5000"
ends "a slow rank among others with jitter: 0" 0
like "a slow rank among others with jitter" "$(err)" '^collrun: rank 2 was last in'
audited late_quiet shm "steps: 150, late: -1"
ends "equally fast ranks: 0" 0
audited late_jitter shm "steps: 150, jitter_us: 5000"
ends "ranks with jitter: 0" 0
quiet_or_late "ranks with jitter: stderr"
done_testing

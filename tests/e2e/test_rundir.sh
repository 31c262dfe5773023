#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The run directory: what is in it after a good run, after a failure, after a restart, on a full disk.
. "$(dirname "$0")/lib.sh"
need_scripted

# value FILE KEY: of the first such key of a file of indented JSON; the top level's come first.
value() { sed -n "s/^ *\"$2\": \(.*[^,]\),\{0,1\}$/\1/p" "$1" | head -n 1; }
values() { sed -n "s/^ *\"$2\": \(.*[^,]\),\{0,1\}$/\1/p" "$1" | paste -sd' '; }

# verdict FILE KEY: of the last attempt's verdict.
verdict() { python3 -S -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"][sys.argv[2]])' "$1" "$2"; }

# ---- a good run ----
job good <<END
version: 1
name: "a good: run"
processes: {count: 3}
groups: {pair: {ranks: [2, 0], backend: gloo}}
workloads:
  - {name: work, plugin: ./scripted.so, params: {dir: "$tmp", do: "allreduce 7 world pair; @1 progress half; @1 err careful; print \"quoted\" \${env:TAG}"}}
logging: {dir: "runs/{run_id}"}
env: {set: {PRICE: "\$\$5"}}
END
TAG='12 # not a comment' run run good.yaml
ends "a good run with logging.dir: 0" 0
dir=$(echo runs/*)
result=$dir/result.json
is "all files are there" "$(cd "$dir" && find . -type f | sort | paste -sd' ')" \
    "./attempt-0/rank-0.stderr ./attempt-0/rank-0.stdout ./attempt-0/rank-1.stderr ./attempt-0/rank-1.stdout ./attempt-0/rank-2.stderr ./attempt-0/rank-2.stdout ./events.jsonl ./plan.json ./resolved.yaml ./result.json"
is "result.json: exit_code and verdict" "$(value "$result" exit_code) $(verdict "$result" class) $(verdict "$result" culprits) $(verdict "$result" text)" "0 ok [] None"
like "the job's name and run" "$(value "$result" job) $(value "$result" run_id)" '^"a good: run" "[0-9]{8}-[0-9]{6}-[0-9a-f]+"$'
is "the ranks of the groups" "$(values "$result" size)" "3 2"
is "their operations, as the ranks did them" "$(values "$result" operations)" "7 7"
is "their bytes: 3 x int64 each time" "$(values "$result" bytes)" "$((7 * 24 * 3)) $((7 * 24 * 2))"
is "every rank's exit code" "$(sed -n '/"ranks"/,$p' "$result" | grep -c '"exit_code": 0')" 3
is "every rank's host" "$(grep -c '"host": "' "$result")" 3
is "every rank's pid is in the events too" "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$dir/events.jsonl" | sort)" \
    "$(sed -n 's/^ *"pid": \([0-9]*\),/\1/p' "$result" | sort)"
check "peak memory is plausible" test "$(values "$result" max_rss_bytes | tr ' ' '\n' | awk '$1 < 1e6 || $1 > 1e9' | wc -l)" = 0
check "no rank ends before it starts" test "$(paste <(sed -n 's/^ *"started_s": \(.*\),/\1/p' "$result") <(sed -n 's/^ *"ended_s": \(.*\),/\1/p' "$result") | awk '$2 <= $1' | wc -l)" = 0
check "CPU times are there" test "$(grep -cE '"(user|system)_s": [0-9]' "$result")" = 6
is "a metric" "$(value "$result" work.speed)" 1.5
is "stdout as the rank wrote it" "$(cat "$dir/attempt-0/rank-2.stdout")" '"quoted" 12 # not a comment'
is "stderr in a separate file" "$(cat "$dir/attempt-0/rank-1.stderr")" "careful"
check "every event is one line of JSON with a time" test "$(grep -cvE '^\{"t":[0-9.e-]+,"event":"[a-z_]+".*\}$' "$dir/events.jsonl")" = 0

# ---- resolved.yaml: the same job again, whatever became of the environment, and from elsewhere ----
unset TAG
run check "$dir/resolved.yaml"
ends "resolved.yaml is a good job file" 0
TAG='12 # not a comment' run plan good.yaml
out >plan.1
run plan "$dir/resolved.yaml"
is "with the same plan" "$(out)" "$(cat plan.1)"
run run "$dir/resolved.yaml"
is "and the same run" "$(unlabelled 2)" '"quoted" 12 # not a comment'
like "defaults are spelt out" "$(cat "$dir/resolved.yaml")" '^timeouts: \{start: 2m, rendezvous: 2m, stall: 10s, silence: 30s, grace: 5s\}'
job beside <<'END'
version: 1
processes: {count: 3}
workloads: [{plugin: hello}, {command: [sleep, "5"], ranks: 1}]
END
for file in "$top"/configs/*.yaml beside.yaml; do
    name=$(basename "$file" .yaml)
    run plan "$file"
    [ "$code" = 0 ] && ! grep -q '^matrix:' "$file" || continue # test_matrix.sh has the run directories of a matrix
    out >plan.1
    start run --run-dir "$tmp/of-$name" "$file"
    within 60 test -s "of-$name/resolved.yaml"
    kill -TERM "$pid" 2>/dev/null
    finish 60
    run plan "of-$name/resolved.yaml"
    is "$name.yaml: the plan of its resolved.yaml is the same" "$(out)" "$(cat plan.1)"
done
TAG=x run run --set processes.count=2 --set 'groups.pair.ranks=[1, 0]' --run-dir set good.yaml --set 'workloads[0].params.do=print hi'
like "--set is in it" "$(cat set/resolved.yaml)" '^processes: \{count: 2,'
like "--run-dir is in it" "$(cat set/resolved.yaml)" "^logging: \{.*dir: \"?$PWD/set\"?[,}]"
like "a price stays what it is" "$(cat set/resolved.yaml)" 'PRICE: "\$\$5"'

# ---- a failure ----
simple crash 3 "allreduce 5 world; @1 err last words; @1 signal 9; endless world" 'logging: {dir: crash}'
run run crash.yaml
result=crash/result.json
is "a crash: exit_code and verdict" "$(value $result exit_code) $(verdict $result class) $(verdict $result culprits)" "137 signal [1]"
like "the error" "$(value $result error)" 'rank 1 .*SIGKILL'
is "its signal" "$(values $result signal)" 9
like "which is in the events too" "$(cat crash/events.jsonl)" '"event":"exited","attempt":0,"rank":1,"signal":9'
is "what befell each" "$(sed -n '/"ranks": \[$/,$p' $result | sed -n 's/^ *"class": \(.*\),/\1/p' | paste -sd' ')" '"peer" "signal" "peer"'
like "how far it had come" "$(values $result operations)" '^[5-9]|^[0-9]{2,}'
simple mute 2 "hang" 'timeouts: {run: 300ms, grace: 100ms}
logging: {dir: mute}'
run run mute.yaml
is "a time-out" "$(value mute/result.json exit_code) $(verdict mute/result.json class) $(verdict mute/result.json culprits)" "124 timeout []"

# ---- a restart ----
simple again 2 "print hello; @1 exit 7" 'on_failure: {action: restart, max_restarts: 1, backoff: 10ms}
logging: {dir: again}'
run run again.yaml
is "two attempts" "$(values again/result.json attempt)" "0 1"
is "each with its end" "$(sed -n '/"attempts"/,/^  \]/p' again/result.json | sed -n 's/^ *"exit_code": \(.*\),/\1/p' | paste -sd' ')" "7 7"
check "each with its output" test -s again/attempt-0/rank-0.stdout -a -s again/attempt-1/rank-0.stdout
is "the last word of each attempt" "$(grep -oE '"event":"end","attempt":[0-9],"exit_code":[0-9]+' again/events.jsonl | tr '\n' ' ')" \
    '"event":"end","attempt":0,"exit_code":7 "event":"end","attempt":1,"exit_code":7 '
check "the restart is an event" grep -q '"event":"restart","attempt":1' again/events.jsonl

# ---- what cannot be written ----
mkdir -p taken && echo '{}' >taken/result.json
simple plain 2 "print hello" 'logging: {dir: taken}'
run run plain.yaml
like "a folder that holds a run is refused" "$(err)" 'plain.yaml:5:[0-9]+: error: logging.dir: .*exists'
ends "as an error in the job file: 2" 2
run run --run-dir taken plain.yaml
like "also on the command line" "$(err)" 'error: --run-dir: .*exists'
simple named 2 "print hello" ""
run run --run-dir 'named-{rank}' --set processes.count=0 named.yaml
like "--run-dir is a template as logging.dir is" "$(err)" '^collrun: error: --run-dir: "\{rank\}" has no meaning here'
like "and its error comes with the others" "$(err)" 'error: processes.count: 0 is out of range'
ends "the command line is wrong: 2" 2
mkdir 'in{braces}' && cp named.yaml scripted.so 'in{braces}'
cd 'in{braces}' || exit 1
run run --run-dir 'out-{run_id}' named.yaml
ends "a working directory with braces in its name" 0
is "holds the run directory" "$(find . -name result.json | sed 's/-20[0-9]*-[0-9]*-[0-9a-f]*/-ID/')" ./out-ID/result.json
cd .. || exit 1
if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=64k tmpfs full 2>/dev/null; then
    simple enospc 2 "spew 5000 100; allreduce 100 world; note done" 'logging: {dir: full/run}'
    run run enospc.yaml
    ends "a full disk does not stop the job" 0
    check "it runs to its end" noted_all 2 done
    is "the error is printed once, and once more for result.json" "$(err | grep 'No space left' | grep -c -v 'full/run/result.json:') $(err | grep -c 'full/run/result.json: No space left')" "1 1"
    is "and no output is lost on the way to the console" "$(grep -c '^\[[01]\] [01] ' out)" 10000
    umount full
    mount -t tmpfs -o ro tmpfs full
    run run --run-dir full enospc.yaml
    ends "a folder that cannot be written is refused" 2
    like "with the reason" "$(err)" 'error: --run-dir: .*full: Read-only file system'
    umount full
else
    for what in "a folder that cannot be written is refused" "with the reason" "a full disk does not stop the job" "it runs to its end" "the error is printed once" "no output is lost"; do
        skip "$what" "needs root and mount"
    done
fi
# ---- a disk that stalls ----
# Opening a FIFO blocks until it has a reader.
mkdir -p stalled/attempt-0 && mkfifo stalled/attempt-0/rank-0.stdout
job stalled <<EOF
version: 1
processes: {count: 2}
hosts: {defaults: {slots: 1}, nodes: [{name: near, transport: local}, {name: far, transport: {command: [env]}}]}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "@0 spew 20000 1000; allreduce 3 world; @1 print world; note up; await 1 go"}}]
timeouts: {silence: 2s}
EOF
start run --run-dir stalled stalled.yaml
within 60 grep -q '^\[0\] 0 ' out
check_within "a disk that stalls: the ranks wait in the end, and the runner goes on" 60 status_shows "rank 0: "
check "its memory is small" test "$(awk '/VmHWM/ {print $2}' "/proc/$pid/status")" -lt $((49152 * slow))
exec 7<>stalled/attempt-0/rank-0.stdout # both ends: the reader sees no end between two writers
cat stalled/attempt-0/rank-0.stdout 7>&- >kept &
reader=$!
within 60 noted_all 2 up
note_test go
finish 60
ends "it answers again: 0" 0
exec 7>&-
wait "$reader"
is "nothing is lost in the file" "$(cut -d' ' -f1 kept | sort -nc && wc -l <kept)" 20000
is "nor on the console" "$(unlabelled 0 | wc -l)" 20000
like "result.json is there" "$(cat stalled/result.json)" '"exit_code": 0'
# The file of stdout, on a disk that is frozen.
what="the disk of stdout stalls"
thaw() { fsfreeze -u disk && umount disk; } 2>/dev/null
mkdir disk
if command -v fsfreeze >/dev/null && truncate -s 64M image && mkfs.ext4 -q image 2>/dev/null && mount -o loop,noatime image disk 2>/dev/null; then
    trap 'thaw; cleanup' EXIT
    rm out && ln -s disk/out out
    start run stalled.yaml --set "workloads[0].params.do=note ready; await 1 freeze; @0 spew 500 1000; allreduce 3 world; note up; await 1 go; print last"
    within 60 noted_all 2 ready
    check "$what" fsfreeze -f disk
    note_test freeze
    check_within "$what: ranks, also of another host, go on" 60 noted_all 2 up
    check_within "$what: and so does the runner" 60 status_shows "ranks 0-1: "
    fsfreeze -u disk
    note_test go
    finish 60
    ends "$what, and answers again: 0" 0
    is "$what: nothing is lost" "$(unlabelled 0 | wc -l) $(unlabelled 1)" "501 last"
    simple full 1 "spew 60000 1000; print last"
    run run full.yaml
    ends "the disk of stdout is full: 125" 125
    like "with the reason" "$(err)" 'error: cannot write to stdout.*No space left on device'
    umount disk
    rm out
    trap cleanup EXIT
else
    skip "$what" "needs root, mkfs.ext4 and a loop device"
fi
mkdir -p dead && mkfifo dead/events.jsonl
simple plain 1 "print hello"
start run --run-dir dead plain.yaml
check_within "a disk that never answers: the runner waits for it at the end" 60 grep -q 'waiting for the disk: .*/dead; Ctrl-C' err
kill -INT "$pid"
finish 60
ends "until Ctrl-C" 130
like "with a warning" "$(err)" 'warning: .*/dead: the disk does not answer'

job limited <<EOF
version: 1
processes: {count: 1}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "spew 1000 100; err short"}}]
logging: {dir: "limited", max_file: 10KiB}
EOF
run run limited.yaml
ends "output past max_file does not stop the job" 0
check "the file keeps no more" test "$(stat -c %s limited/attempt-0/rank-0.stdout)" -lt 11000
like "and says so" "$(tail -n 1 limited/attempt-0/rank-0.stdout)" 'max_file'
is "each file has its own limit" "$(cat limited/attempt-0/rank-0.stderr)" short
is "the console shows all" "$(grep -c . out)" 1000
done_testing

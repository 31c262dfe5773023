#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that is late for a collective: the report on stderr and in result.json, the live line, SIGUSR1. The job continues.
. "$(dirname "$0")/lib.sh"
plugin "$here/stall_programs.c" "$tmp/stall_programs.so" -g || {
    echo "Bail out! the workload does not compile"
    exit 1
}
need_scripted
cc -std=c11 -O1 "$here/pty.c" -o pty -lutil || {
    echo "Bail out! the terminal does not compile"
    exit 1
}

# program NAME BACKEND PROGRAM [STALL [MS]]: starts a job of 3 ranks; its stderr is NAME.err, its run directory NAME.dir.
program() {
    cat >"$tmp/$1.yaml" <<EOF
version: 1
processes: {count: 3}
groups: {world: {ranks: all, backend: $2}, beat: {ranks: all, backend: $2}}
workloads:
  - {plugin: ./stall_programs.so, groups: [world], params: {program: $3, ms: $((${5:-5500} * slow))}}
  - {plugin: ./stall_programs.so, name: back, groups: [beat], params: {program: beat}, background: true}
timeouts: {stall: ${4:-${slow}s}}
EOF
    {
        timeout -k 5 "$limit" "$COLLRUN" --run-dir "$1.dir" "$tmp/$1.yaml" >"$tmp/$1.out" 2>"$tmp/$1.err" </dev/null
        echo $? >"$tmp/$1.code"
    } &
    running_jobs+=($!)
}
running_jobs=()
stderr_of() { cat "$tmp/$1.err"; }

program sleeps shm sleep
program spins shm spin
program reads gloo read
program epolls shm epoll
program polls shm poll
program ticks gloo tick
program messages shm recv
program create shm create
program split gloo split
program off shm sleep off 1500
program patient shm sleep 100s 1500
wait "${running_jobs[@]}"

late='CAUSE  rank 1 \([^ ]+, pid [0-9]+\) has not called allreduce world#5 \(1 x int32, sum\); it is '
for name in sleeps spins reads epolls polls ticks; do
    is "$name: the job continues and succeeds" "$(cat "$name.code")" 0
    like "$name: when" "$(stderr_of $name)" '^collrun: STALLED after [0-9]+\.[0-9] s \(timeouts\.stall\); the job continues$'
    like "$name: which rank, which operation" "$(stderr_of $name)" "^$late"
    like "$name: who waits for it" "$(stderr_of $name)" '^WAIT   ranks 0 and 2 -> allreduce world#5 -> rank 1, for [0-9]+\.[0-9] s(;.*)?$'
done
like "sleeps: in which system call" "$(stderr_of sleeps)" "${late}.*asleep in nanosleep\(\)"
if [ -x "$home/libexec/collrun/collrun-stack" ]; then
    line() { grep -n "$1" "$here/stall_programs.c" | cut -d: -f1; }
    for name in sleeps polls messages; do
        like "$name: where it is called" "$(stderr_of $name)" '^WAIT .* s; rank [0-2] calls it in [a-z_]+ \(stall_programs\.c:[0-9]+\)$'
    done
    pauses="pause_ms \(stall_programs\.c:$(line 'nanosleep(&')\)"
    like "sleeps: in which function, file and line" "$(stderr_of sleeps)" "${late}in $pauses, asleep"
    like "sleeps: the stack of the thread" "$(stderr_of sleeps)" "^         load_batch \(stall_programs\.c:$(line '^    pause_ms(ms)')\)$"
    like "sleeps: up to the workload" "$(stderr_of sleeps)" "^         run \(stall_programs\.c:$(line 'status = load_batch')\)$"
    like "spins: where" "$(stderr_of spins)" "${late}in .*\(stall_programs\.c:[0-9]+\), running"
    like "reads: where" "$(stderr_of reads)" "${late}in read_slowly \(stall_programs\.c:$(line 'the line of read')\), asleep in read"
    like "epolls: where" "$(stderr_of epolls)" "${late}in epoll_slowly \(stall_programs\.c:$(line 'the line of epoll_wait')\), asleep in epoll_wait"
    like "epolls: a read with a timeout, in another thread" "$(stderr_of epolls)" "^         receive_slowly \(stall_programs\.c:$(line 'return recv')\)$"
    unlike "functions of collrun and of libc have no place" "$(stderr_of sleeps)" ' \((task|nanosleep|clock_nanosleep)\.c:'
else
    skip "stacks" "built without libdw"
fi
unlike "epolls: no system call returns EINTR" "$(stderr_of epolls)" 'interrupted'
like "sleeps: CPU use" "$(stderr_of sleeps)" '^       thread [0-9]+ \(.*\): asleep in nanosleep\(\), [0-9] % CPU$'
like "spins: it runs" "$(stderr_of spins)" "${late}.*running \([0-9]+ % CPU\)"
like "messages: the rank that has not sent" "$(stderr_of messages)" \
    '^CAUSE  rank 1 \([^ ]+, pid [0-9]+\) has not sent the message of rank 0 in recv world#5 \(1 x int32, from 1, tag 7\); it is '
is "messages: the job continues and succeeds" "$(cat messages.code)" 0
like "reads: of what" "$(stderr_of reads)" 'asleep in read\([0-9]+\) of a pipe'
for name in create split; do
    what="the creation of group pair" who="rank 2"
    [ $name = create ] || what="the split of group world" who="ranks 0 and 2"
    is "$name: the job continues and succeeds" "$(cat $name.code)" 0
    like "$name: which rank has not called it" "$(stderr_of $name)" "^CAUSE  rank 1 \([^ ]+, pid [0-9]+\) has not called $what; it is .*asleep in nanosleep"
    like "$name: who waits for it" "$(stderr_of $name)" "^WAIT   $who -> $what -> rank 1, for [0-9.]+ s\$"
done
# The line about a slow rank is no report of a stall.
is "off: no report" "$(cat off.code) $(stderr_of off | grep -v "was last in")" "0 "
is "sooner than timeouts.stall: no report" "$(cat patient.code) $(stderr_of patient | grep -v "was last in")" "0 "

# ---- the run directory ----
# A busy machine may have other stalls as well: those of another operation do not count.
cat >stalls.py <<'EOF'
import json, sys
def late(o): return (o.get("group"), o.get("number")) == ("world", 5)
passed = [s for s in json.load(open(sys.argv[1] + "/result.json"))["stalls"] if late(s)]
events = [e["event"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"].startswith("stall") and late(e)]
print(len(passed), *[e for i, e in enumerate(events) if e != events[i - 1] or i == 0], json.dumps(passed), sep="\n")
EOF
stalls=$(python3 -S stalls.py sleeps.dir)
is "result.json has the stall that has passed, once" "$(head -n 1 <<<"$stalls")" 1
like "with the call" "$stalls" '"calls": \[\{"ranks": "0,2", "call": "allreduce\(1 x int32, sum\)"\}\]'
like "the culprit" "$stalls" '"attempt": 0, "seconds": [0-9.]+, "class": "missing", "culprits": \[1\], "suspects": \[\]'
like "the operation" "$stalls" '"group": "world", "kind": "allreduce", "number": 5, "field": null'
like "and who waits" "$stalls" '"waits": \[\{"ranks": "0,2", "group": "world", "number": 5, "for": "1"\}\]'
like "no stall, no entry" "$(tr -d ' \n' <patient.dir/result.json)" '"stalls":\[\]'
is "events.jsonl has each report, and the end" "$(sed '1d;$d' <<<"$stalls" | paste -sd' ')" "stall stall_passed"

# ---- before the workloads run ----
job starts <<EOF
version: 1
processes: {count: 3}
workloads:
  - {plugin: ./scripted.so, params: {dir: "$tmp", init: "@1 sleep $((6000 * slow))", do: "print hello"}}
timeouts: {stall: ${slow}s}
EOF
run starts.yaml
ends "a rank that is late to start: the job succeeds" 0
like "is named" "$(err)" "^CAUSE  rank 1 \([^ ]+, pid [0-9]+\) is forming its groups or in a workload's init; it is .*asleep in nanosleep"
like "and who waits for it" "$(err)" '^WAIT   ranks 0 and 2 -> start of the workloads -> rank 1, for [0-9.]+ s$'

# ---- repetition ----
# The k-th block shows a wait that is at least 2^(k-1) times as old as timeouts.stall, however late it is.
simple again 3 "@1 hang; endless world" "timeouts: {grace: 300ms, stall: ${slow}s}"
start run again.yaml
reports() { [ "$(grep -c STALLED err)" -ge "$1" ]; }
check_within "again after twice the time, and after four times" 60 reports 3
kill -INT "$pid"
finish 60
ages=$(sed -n 's/^collrun: STALLED after \([0-9.]*\) s .*/\1/p' err)
check "not sooner ($(tr '\n' ' ' <<<"$ages"))" \
    awk -v least="$slow" '$1 < least { exit 1 } { least *= 2 }' <(echo "$ages")

# ---- a rank that a signal has stopped ----
simple held 3 "pid; endless world" 'timeouts: {grace: 300ms, stall: 1s}'
start run held.yaml
within 60 grep -q '^pid' notes.1
kill -STOP "$(sed -n 's/^pid //p' notes.1)"
check_within "a stopped rank is the cause" 60 grep -qE '^CAUSE  rank 1 .*stopped by a signal' err
kill -CONT "$(sed -n 's/^pid //p' notes.1)"

# ---- SIGUSR1 ----
kill -INT "$pid"
finish 60
simple asked 3 "note up; @1 hang; endless world" 'timeouts: {grace: 300ms, stall: 10m}'
start run asked.yaml
within 60 noted_all 3 up
usr1_shows() { kill -USR1 "$pid" && maybe_within 2 grep -qE -- "$1" "$tmp/err"; }
check_within "SIGUSR1: which rank, at once" 60 usr1_shows '^CAUSE  rank 1 \([^ ]+, pid [0-9]+\) has not called allreduce world#1 .*asleep in nanosleep'
like "since when, on which host, which process" "$(err)" '^collrun: ranks 0 and 2: in allreduce world#1 \(.*\), for [0-9.]+ s; [^ ]+: pids [0-9]+, [0-9]+$'
unlike "not as a stall" "$(err)" STALLED
kill -INT "$pid"
finish 60
ends "then Ctrl-C: 130" 130

# ---- the live line ----
mkfifo keys
TERM=xterm timeout -k 5 60 ./pty 100 screen keys "$COLLRUN" run --set timeouts.stall=off --set 'workloads[0].params.ms=4500' sleeps.yaml </dev/null &
pid=$!
children+=("$pid")
finish 60
ends "on a terminal" 0
like "the live line shows who waits for whom" "$(tr '\r' '\n' <screen.raw)" '^[0-9]+s \| 3/3 ranks up \| 2/3 wait in world#5 for rank 1 \|'
done_testing

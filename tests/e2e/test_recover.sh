#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# on_failure (continue, restart, rules), SIGUSR1, job control.
. "$(dirname "$0")/lib.sh"
need_scripted

# ---- restart ----
restart='on_failure: {action: restart, max_restarts: 2, backoff: 10ms}'
simple always 3 "@1 exit 7" "$restart"
run run always.yaml
ends "a job that always fails ends with its exit code" 7
is "it was started three times" "$(err | grep -c 'returned 7')" 3
like "the restarts are counted aloud" "$(err)" 'restart 2 of 2'
like "and why there is no fourth attempt" "$(err)" 'max_restarts \(2\) is reached'

simple ruled 2 "@1 exit 75" "on_failure: {backoff: 10ms, max_restarts: 1, rules: [{when: {exit_code: [75]}, action: restart}]}"
run run ruled.yaml
is "a rule by exit code restarts" "$(err | grep -c 'returned 75')" 2
simple unruled 2 "@1 exit 74" "on_failure: {backoff: 10ms, max_restarts: 1, rules: [{when: {exit_code: [75]}, action: restart}]}"
run run unruled.yaml
is "another exit code does not" "$(err | grep -c 'returned 74')" 1
simple signalled 2 "@1 crash" "on_failure: {action: restart, backoff: 10ms, rules: [{when: {cause: signal}, action: stop}]}"
run run signalled.yaml
is "a rule by cause stops" "$(err | grep -c 'error: rank 1')" 1
ends "with the signal's exit code" 139

simple attempts 2 "job; @0 exit 3" "$restart"
run run attempts.yaml
like "the first attempt is number 0" "$(out)" 'attempt 0'
like "the third is number 2" "$(out)" 'attempt 2'

simple same 2 "allreduce 16 world; @1 barrier world; allreduce 1 world" "on_failure: {action: restart, max_restarts: 9, backoff: 10ms}"
run run same.yaml
is "what fails twice in the same operation is not retried" "$(err | grep -c 'error:')" 2
like "with the reason" "$(err)" 'not restarted: two attempts failed in the same way \(exit code 1, in world#17\)'
simple crash 2 "allreduce 16 world; @1 crash; endless world" "on_failure: {action: restart, max_restarts: 9, backoff: 10ms}"
run run crash.yaml
is "nor is a crash after the same operation" "$(err | grep -c 'error:')" 2
like "with the reason, too" "$(err)" 'not restarted: .*exit code 139, after world#16\)'
simple long 2 "@1 sleep 400; @1 exit 7; hang" "on_failure: {action: restart, max_restarts: 1, backoff: 10ms, min_uptime: 200ms}
timeouts: {grace: 100ms}"
start run long.yaml
check_within "attempts that last for min_uptime are not counted against max_restarts" 60 sh -c "[ \"\$(grep -c 'restart 1 of 1' err)\" -ge 4 ]"
kill -INT "$pid"
finish 60
ends "Ctrl-C ends them" 130
# The time before the workloads run, and the time to stop, is no run time.
job never <<EOF
version: 1
processes: {count: 2}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", init: "@1 hang"}}]
on_failure: {action: restart, max_restarts: 1, backoff: 10ms, min_uptime: 200ms}
timeouts: {start: 1s, grace: 100ms}
EOF
start run never.yaml
finish 60
ends "attempts that do not come to run, although they last long" 124
like "are counted against max_restarts" "$(err)" 'max_restarts \(1\) is reached'
simple stubborn 2 "@1 exit 7; hang" "on_failure: {action: restart, max_restarts: 1, backoff: 10ms, min_uptime: 1s}
timeouts: {grace: 1s}"
start run stubborn.yaml
finish 60
ends "so are attempts that fail at once and take long to stop" 7
is "with one restart" "$(err | grep -c 'restart 1 of 1')" 1
job down <<EOF
version: 1
hosts: {nodes: [{name: far, transport: {command: [sh, -c, "sleep 1; exit 3"]}}]}
processes: {count: 1}
workloads: [{plugin: hello}]
on_failure: {action: restart, max_restarts: 1, backoff: 10ms, min_uptime: 200ms}
EOF
start run down.yaml
finish 60
ends "so are those in which a host cannot be reached" 127
is "with one restart, too" "$(err | grep -c 'restart 1 of 1')" 1
# The pause before a restart: what ends it ends the run, and result.json says so, too.
pause() { simple pause 2 "$1" "on_failure: {action: restart, backoff: 1m}
logging: {dir: \"pause\"}
timeouts: {${2:-grace: 100ms}}"; }
class_of_result() { python3 -S -c 'import json; print(json.load(open("pause/result.json"))["verdict"]["class"])'; }
result_of() { sed -n "s/^  \"$1\": \(.*\),/\1/p" pause/result.json; }
for s in TERM:143 INT:130 HUP:129; do
    pause "@1 exit 7"
    rm -rf pause
    start run pause.yaml
    within 60 grep -q restarting err
    kill -"${s%:*}" "$pid"
    finish 60
    ends "SIG${s%:*} in the pause before a restart" "${s#*:}"
    is "result.json agrees" "$(result_of exit_code) $(class_of_result)" "${s#*:} interrupted"
done
like "and keeps what the attempt died of" "$(tr -d ' \n' <pause/result.json)" '"attempts":\[.*"exit_code":7,"verdict":\{"class":"exit"'
is "the last event has the same exit code" "$(tail -n 1 pause/events.jsonl | grep -o '"event":.*')" '"event":"end","attempt":0,"exit_code":129}'
# While an attempt that has failed stops: no other one is started.
for s in TERM:143 INT:130; do
    pause "@1 exit 7; hang" "grace: 40s"
    sed -i 's/backoff: 1m/backoff: 10ms/' pause.yaml
    rm -rf pause
    start run pause.yaml
    within 60 grep -q '"event":"exited"' pause/events.jsonl
    kill -"${s%:*}" "$pid"
    finish 60
    ends "SIG${s%:*} while ranks have their grace time before a restart" "${s#*:}"
    is "result.json agrees with it" "$(result_of exit_code) $(class_of_result)" "${s#*:} interrupted"
    like "and stderr says so" "$(err)" '^collrun: attempt 1 not started: interrupted'
done
pause "hang" "grace: 100ms, run: 200ms"
rm -rf pause
start run pause.yaml
check_within "after timeouts.run there is a pause as well" 60 grep -q restarting err
kill -USR1 "$pid"
check_within "SIGUSR1 in the pause prints when the next attempt starts" 60 grep -q 'no rank is running: attempt 1 starts in' err
kill -TSTP "$pid"
check_within "Ctrl-Z stops it" 60 stopped "$pid"
kill -CONT "$pid"
kill -INT "$pid"
finish 60
ends "fg, Ctrl-C: 130" 130
is "which result.json says, not 124" "$(result_of exit_code)" 130
# 600 h are more milliseconds than an int has.
simple month 1 "exit 7" "on_failure: {action: restart, backoff: 600h}"
start run month.yaml
check_within "a pause of 25 days" 60 grep -q 'restarting in 2160000.0 s' err
if [ "$(uname -m)" = x86_64 ] && cat "/proc/$pid/syscall" >/dev/null 2>&1; then
    # poll(fds, n, timeout); a negative one has no end
    polls() { read -r number _ _ timeout _ <"/proc/$pid/syscall" && [ "$number" = 7 ]; }
    check_within "it waits" 60 polls
    check "for a time that ends ($timeout)" [ "$((timeout & 0x80000000))" = 0 ]
else
    skip "a pause of 25 days ends" "the system call of a process is not shown, or not known to the test"
fi
kill -INT "$pid"
finish 60
ends "and Ctrl-C ends it" 130

# ---- checkpoint: a job that resumes ----
job resume <<EOF
version: 1
processes: {count: 3}
workloads:
  - {plugin: checkpoint, params: {steps: 60, every: 10, fail_at: 37}}
on_failure: {action: restart, backoff: 10ms}
logging: {dir: "run"}
EOF
run run resume.yaml
ends "a job that crashes once and resumes: 0" 0
like "it began anew from the last common checkpoint" "$(out)" 'attempt 1 starts at step 30'
like "and its result is right" "$(out)" '60 steps, sum .*: right'

run --run-dir "$tmp/config" "$top/configs/checkpoint.yaml"
ends "configs/checkpoint.yaml runs" 0
like "and resumes" "$(out)" 'attempt 1 starts at step 30'

# ---- the run directory survives ----
is "events in order" "$(grep -oE '"event":"(spawned|running|restart)"' run/events.jsonl | uniq | tr '\n' ' ')" \
    '"event":"spawned" "event":"running" "event":"restart" "event":"spawned" "event":"running" '
run run resume.yaml
ends "a second run in the same directory is refused: 2" 2
like "with a way out" "$(err)" 'run_id'
simple plain 2 "print hello"
run run --run-dir 'here/{run_id}' plain.yaml
ends "--run-dir works without logging.dir" 0
check "relative to where one stands" test -s here/*/result.json

# ---- continue ----
job continue <<EOF
version: 1
processes: {count: 4}
groups: {low: {ranks: 0-1}, high: {ranks: 2-3}}
workloads:
  - {plugin: ./scripted.so, ranks: 0-1, groups: [low], params: {dir: "$tmp", do: "allreduce 2000 low; note survived"}}
  - {plugin: ./scripted.so, ranks: 2-3, groups: [high], params: {dir: "$tmp", do: "@3 crash; @2 try high; failed"}}
on_failure: {action: continue}
EOF
run run continue.yaml
ends "continue: the exit code is still the culprit's" 139
check "ranks that share no group with it finish" noted_all 2 survived
like "and find the rank that failed" "$(out)" 'failed ranks: 3'
like "ranks that do share one get the error" "$(notes 2)" 'status -9: .*rank 3 .*SIGSEGV'
simple returns 2 "@1 exit 75; sleep 500; allreduce 9 own; note survived" "groups: {own: {ranks: [0]}}
on_failure: {rules: [{when: {exit_code: [75]}, action: continue}]}"
run run returns.yaml
ends "a rule to continue after an exit code, which a workload returns" 75
is "the other rank goes on" "$(notes 0)" survived

# A second failure, of a rank that has nothing to do with the first: its own rule, and its own message.
second() {
    job second <<EOF
version: 1
processes: {count: 4}
groups: {low: {ranks: 0-1}, high: {ranks: 2-3}}
workloads:
  - {plugin: ./scripted.so, ranks: 0-1, groups: [low], params: {dir: "$tmp", do: "@1 await 1 again; @1 exit 9; try low"}}
  - {plugin: ./scripted.so, ranks: 2-3, groups: [high], params: {dir: "$tmp", do: "@3 crash; try high; $1"}}
on_failure: {$2, max_restarts: 1, backoff: 10ms}
timeouts: {grace: 300ms}
EOF
    start run second.yaml
    finish 60
}
second "exit 0" "action: continue"
like "a second failure, continue: the peers of that rank learn of it" "$(notes 0)" '^status -9: .*rank 1 .*returned 9 from run'
ends "the first one is the cause" 139
second hang "rules: [{when: {cause: signal}, action: continue}]"
ends "a rule to continue after one failure does not hold for another one" 9
like "which is the cause then" "$(err)" 'error: rank 1 .*returned 9'
like "with the other one beside it" "$(err)" '^collrun: .*rank 3 also failed'
second hang "rules: [{when: {cause: signal}, action: continue}, {when: {cause: exit}, action: restart}]"
is "its own rule may restart the job" "$(err | grep -c 'restart 1 of 1')" 1

# ---- SIGUSR1, Ctrl-Z ----
simple busy 3 "@1 note up; @1 hang; note up; endless world" "timeouts: {grace: 1s}"
start run busy.yaml
within 60 noted_all 3 up
check_within "ranks wait for each other" 60 status_shows 'in allreduce world#1'
like "SIGUSR1 names who is elsewhere" "$(err)" 'rank 1: outside any collective'
like "and folds those who wait" "$(err)" 'ranks 0 and 2: in allreduce world#1 \('
before=$(grep -c 'rank 1: outside' err)
status_printed() { kill -USR1 "$pid" && [ "$(grep -c 'rank 1: outside' err)" -gt "$before" ]; }
check_within "repeated many times a second, SIGUSR1 is still answered" 60 status_printed
kill -TSTP "$pid"
check_within "Ctrl-Z stops collrun" 60 stopped "$pid"
kill -CONT "$pid"
goes_on() { ! stopped "$pid"; }
check_within "and it goes on" 60 goes_on
kill -INT "$pid"
finish 60
ends "then it ends as always: 130" 130
# Rank 1 comes 6.5 s late to operations that may wait 3 s, in workloads that may take 5 s, and the job stands still for 5 s of them.
backends="shm tcp gloo" gpus=0
fake=${BUILD:-$top/build/release}/tests/fake # nccl's stand-in libraries
if [ -e "$fake/libnccl.so.2" ]; then
    backends="$backends nccl" gpus=1
    export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    skip "nccl: time-outs do not pass while the job stands still" "the stand-in libraries are not built (make fake)"
fi
{
    echo "version: 1"
    echo "timeouts: {stall: 4s}"
    echo "processes: {count: 3, gpus_per_process: $gpus}"
    echo "hosts: {nodes: [{name: here, transport: local, gpus: [0, 1, 2]}]}"
    echo "groups:"
    for backend in $backends; do echo "  $backend: {ranks: all, backend: $backend, timeout: 3s}"; done
    echo "workloads:"
    for backend in $backends; do
        echo "  - {name: $backend, plugin: ./scripted.so, timeout: 5s, groups: [$backend], params: {dir: \"$tmp\", do: \"note up; @1 sleep 6500; barrier $backend; print $backend goes on\"}}"
    done
} >stands.yaml
start run stands.yaml
within 60 noted_all 3 up
within 60 status_shows '^collrun: ranks? (0|0 and 2): in barrier '
kill -TSTP "$pid"
check_within "Ctrl-Z in the middle of operations" 60 stopped "$pid"
sleep 5
kill -CONT "$pid"
finish 60
ends "time-outs do not pass while the job stands still" 0
is "on every backend" "$(out | grep -c 'goes on')" $((9 + 3 * gpus))
is "nor does timeouts.stall" "$(err | grep STALLED)" ""
# The same for the limits of the job and of a program: 9 s, of which it stands still for 6 s.
limited() { # NAME KEYS LINES: of the program, and of the job
    job limited <<EOF
version: 1
processes: {count: 2}
groups: {world: {ranks: 0}}
workloads:
  - {plugin: ./scripted.so, ranks: 0, params: {dir: "$tmp", do: "note up; sleep 9000"}}
  - {command: [sleep, "9"], ranks: 1$2}
$3
EOF
    start run limited.yaml
    within 60 noted 0 up
    kill -TSTP "$pid"
    check_within "Ctrl-Z in a $1 with a limit" 60 stopped "$pid"
    sleep 6
    kill -CONT "$pid"
    finish 60
    ends "the limit of the $1 does not pass while it stands still" 0
}
limited job "" "timeouts: {run: 5s}"
limited program ", timeout: 5s" ""
# A workload in the background has 4 s to end, takes 6.5 s, and the job stands still for 5 s of them.
rm -f notes.*
simple ending 2 "note up; await 2 slow" "timeouts: {grace: 4s}"
sed -i "/^workloads:/ a \  - {name: slow, plugin: ./scripted.so, background: true, params: {dir: \"$tmp\", do: \"note slow; sleep 6500\"}}" ending.yaml
start run -v ending.yaml
within 60 grep -q 'all foreground workloads are done' err
kill -TSTP "$pid"
check_within "Ctrl-Z while a workload in the background ends" 60 stopped "$pid"
sleep 5
kill -CONT "$pid"
finish 60
ends "the time for its end does not pass meanwhile" 0
done_testing

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The exit code, by one rule: 0; else that of the root-cause rank (128 + N for signal N); collrun's own 124 time-out, 125 internal,
# 126 cannot be loaded, 127 host lost, 128 + N when collrun itself was ended by signal N. A table of every way to die, each with a text that
# the error must contain.
. "$(dirname "$0")/lib.sh"
need_scripted

# dies CODE REGEX STEPS [FURTHER LINES]: one job of 3 ranks. The regex is of the one line that names the cause.
dies() {
    simple case 3 "$3" "${4:-timeouts: {grace: 100ms\}}"
    run run case.yaml
    local cause
    cause=$(grep -m 1 -E 'error: ' err)
    if [ "$code" = "$1" ] && grep -qE -- "$2" <<<"$cause" && [ "$(grep -c 'error: ' err)" = 1 ]; then
        ok "$3: $1"
    else
        not_ok "$3: $1" "cause: $cause" "expected: $2"
    fi
}

# ---- a rank's own code ----
for n in 1 2 42 75 119; do dies $n "rank 1 \(.*workload \"scripted\" returned $n from run" "@1 exit $n; hang"; done
dies 1 'rank 1 .*returned 120 from run, which is neither' "@1 exit 120; hang"
dies 1 'rank 1 .*returned -500 from run, which is neither' "@1 exit -500; hang"
dies 1 'rank 1 .*the disk is full' "@1 fail the disk is full; hang"
dies 1 'rank 1 .*returned -1' "@1 exit -1; hang"
dies 9 'rank 1 .*exited with code 9 while it was running' "@1 leave 9; hang"
dies 10 'rank 1 .*exited with code 10 ' "@1 libc-exit 10; hang"
dies 4 'rank 1 .*exited with code 4 ' "@1 thread-exit 4; hang"
dies 1 'rank 1 .*left the job early: it exited with code 0' "@1 leave 0; hang"
dies 1 'rank 1 .*left the job early: it exited with code 0' "@1 libc-exit 0; hang"
dies 1 'rank 1 .*terminated its thread' "@1 pthread-exit; hang"
dies 3 'rank 1 .*exited with code 3 ' "@1 exec exit 3; hang"
dies 1 'rank 1 .*: it has replaced itself by another program \(exec of /' "@1 exec exec sleep 60; hang"
dies 1 'rank 1 .*: it has closed its connection to collrun \(descriptor 3\)' "@1 close-from 3; allreduce 1 world"
like "the closed descriptor is named" "$(err)" 'its connection to collrun, descriptor [0-9]+, was closed by a workload'
dies 1 'rank 1 .*: it has closed its connection to collrun \(descriptor 3\)' "@1 close 3; hang"
like "it is named, too" "$(err)" 'its connection to collrun, descriptor 3, was closed by a workload'
dies 125 'host .*: rank 1 \(pid [0-9]+\): the control stream carries bytes that are not a collrun frame' "@1 scribble 3; hang"
like "the descriptor is named" "$(err)" 'hint: a workload wrote to descriptor 3, which it has not opened'
dies 125 'host .*: rank 1 \(pid [0-9]+\): the control stream carries part of a collrun frame, and nothing more for 10 s' "@1 half-frame 3; hang"
like "the descriptor is named there, too" "$(err)" 'hint: a workload wrote to descriptor 3, which it has not opened'
dies 143 'rank 1 .*killed by signal 15 \(SIGTERM\)' "@1 exec kill -15 \$\$\$\$; hang"

# An error that was dealt with does not explain what came later.
job dealt <<END
version: 1
processes: {count: 2}
groups: {g: {ranks: all, timeout: 200ms}, own: {ranks: 0}}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "@1 hang; try g; barrier own; exit 33"}}]
timeouts: {grace: 300ms}
END
run run dealt.yaml
ends "a code after a time-out that was handled: the code" 33
like "and the error is about the code" "$(grep error: err)" 'rank 0 .*workload "scripted" returned 33 from run$'
unlike "the old error is not in it" "$(err)" '^hint:'
sed -i 's/barrier own; //' dealt.yaml
run run dealt.yaml
ends "a code right after a time-out: the time-out" 124
like "who is late, and the code" "$(err)" '^hint: after that, rank 0 ended: workload "scripted" returned 33 from run$'

# Who failed because of it, and who did not.
job after <<END
version: 1
processes: {count: 3}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "@0 note done; @0 exit 0; @1 await 1 done; @1 await 1 trying; @1 exit 6; try world; exit 1"}}]
timeouts: {grace: 2s}
END
run run after.yaml
ends "one had returned 0, one fails, one follows" 6
like "those who follow failed because of it" "$(err)" 'rank 2 failed because of it'
like "who had returned 0 did not" "$(err)" 'rank 0 stopped on request'

# ---- signals ----
for s in HUP:1 INT:2 QUIT:3 ILL:4 TRAP:5 ABRT:6 BUS:7 FPE:8 KILL:9 USR1:10 SEGV:11 USR2:12 PIPE:13 ALRM:14 TERM:15 STKFLT:16 \
    XCPU:24 XFSZ:25 VTALRM:26 PROF:27 POLL:29 PWR:30 SYS:31; do
    dies $((128 + ${s#*:})) "rank 2 .*killed by signal ${s#*:} \(SIG${s%:*}\)" "@2 signal ${s#*:}; hang"
done
dies 139 'rank 1 .*SIGSEGV' "@1 crash; hang"
dies 139 'rank 1 .*SIGSEGV' "@1 overflow; hang"
dies 134 'rank 1 .*SIGABRT' "@1 abort; hang"
dies 137 'SIGKILL\), sender unknown, while it was running' "@1 signal 9; hang"
dies 139 'in allreduce world#[0-9]+ \(3 x int64, sum\)' "@1 later 200 11; endless world" "timeouts: {grace: 1s}"
sed 's/do: "[^"]*"/init: "@1 signal 11", do: "print ran"/' case.yaml >init.yaml
run run init.yaml
ends "a crash in init" 139
is "then no rank runs" "$(grep -c ran out)" 0
sed 's/do: "[^"]*"/fini: "@1 signal 8"/' case.yaml >fini.yaml
run run fini.yaml
ends "a crash in fini" 136
sed 's/do: "[^"]*"/init: "@1 leave 5"/' case.yaml >leave.yaml
run run leave.yaml
ends "_exit in init" 5

# ---- loading: 126 ----
cat >exits.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void leave_here(void)
{
    if (getenv("E2E_RANK") != NULL && getenv("E2E_RANK")[0] == '1')
        raise_it();
}
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }
COLLRUN_WORKLOAD(.name = "exits", .run = run);
END
sed 's/raise_it()/_exit(23)/' exits.c >exits23.c && plugin exits23.c exits23.so
sed 's/raise_it()/abort()/' exits.c >aborts.c && plugin aborts.c aborts.so
for what in exits23:23 aborts:134; do
    printf 'version: 1\nprocesses: {count: 3}\nenv: {set: {E2E_RANK: "{rank}"}}\nworkloads: [{plugin: ./%s.so}]\n' "${what%:*}" >load.yaml
    run run load.yaml
    ends "a plugin whose constructor ends the process (${what%:*})" "${what#*:}"
    like "the rank, and that it was loading" "$(err)" 'rank 1 .*while it was loading its plugins'
done

# A constructor that never returns: named after 10 s, in which it sleeps or has a CPU.
sed 's/if (getenv.*/for (;;)/; s/raise_it()/pause()/' exits.c >sleeps.c && plugin sleeps.c sleeps.so
sed 's/if (getenv.*/for (;;)/; s/raise_it();/continue;/' exits.c >loops.c && plugin loops.c loops.so
checks=()
for what in sleeps loops; do
    printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: ./%s.so}]\n' "$what" >"$what.yaml"
    timeout 115 "$COLLRUN" check "$what.yaml" >"$what.text" 2>&1 &
    checks+=($!)
done
wait "${checks[@]}"
for what in sleeps loops; do
    like "a plugin whose constructor $what is named" "$(cat "$what.text")" 'error: workloads\[0\].plugin: loading the plugin takes longer than 10 seconds$'
done

printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: ./exits.c}]\n' >load.yaml
run run load.yaml
ends "source code in the place of a plugin" 126
like "what to do" "$(err)" 'hint: this is source code: build it with cc -shared -fPIC'

# ---- time-outs: 124, and who is late ----
late() { # WHAT REGEX
    ends "$1: 124" 124
    like "$1: who is late" "$(grep -m 1 error: err)" "$2"
}
for backend in shm tcp gloo; do
    job operation <<END
version: 1
processes: {count: 3}
groups: {g: {ranks: [2, 0, 1], backend: $backend, timeout: 400ms}}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "@1 hang; allreduce 3 g"}}]
timeouts: {grace: 300ms}
END
    run run operation.yaml
    # The rank that reports it is a victim, so its own code, 1, does not count.
    late "an operation's time-out on $backend" 'allreduce g#1: .*rank 1([^0-9]|$)'
done
simple running 3 "@2 hang" "timeouts: {run: 500ms, grace: 300ms}"
run run running.yaml
late "timeouts.run" 'timeouts.run expired after 0.5 s; not finished: rank 2 \(running\); rank 2 is (in .*, )?asleep in nanosleep\(\)$'
simple running 3 "hang" "timeouts: {run: 500ms, grace: 300ms}"
run run running.yaml
late "timeouts.run of ranks that do the same" 'not finished: ranks 0-2 \(running\); ranks 0-2 are (in .*, )?asleep in nanosleep\(\)$'
simple running 3 "allreduce 9 world; @2 hang; allreduce 1 world; hang" "timeouts: {run: 500ms, grace: 300ms}"
run run running.yaml
late "timeouts.run, with others in a collective" 'timeouts.run expired .*; rank 2 has not called world#10; it is (in .*, )?asleep in nanosleep'
simple running 3 "@2 hang" "timeouts: {grace: 300ms}"
run run --set timeouts.run=400ms running.yaml
late "timeouts.run by --set" 'timeouts.run expired after 0.4 s; not finished: rank 2 '
like "its place is the command line" "$(err)" '^--set #1:1:[0-9]+: error'
sed 's/do: "[^"]*"/init: "@1 hang"/; s/timeouts.*/timeouts: {start: 600ms, grace: 300ms}/' case.yaml >start.yaml
run run start.yaml
late "timeouts.start" 'timeouts.start expired after 0.6 s; not ready: rank 1 \(forming its groups or in'
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{name: w, plugin: ./scripted.so, timeout: 400ms, params: {do: "@1 hang"}}]\ntimeouts: {grace: 300ms}\n' >work.yaml
run run work.yaml
late "a workload's time-out" 'rank 1 \(.*workload "w" exceeded its time-out of 400ms'
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{name: w, plugin: ./scripted.so, timeout: 500ms, params: {do: "@1 hang; allreduce 1 world"}}]\ntimeouts: {grace: 300ms}\n' >work.yaml
run run work.yaml
late "a workload's time-out, with others in a collective" 'workload "w" exceeded its time-out of 500ms; (rank 1 has not called world#1; it|rank 1) is .*asleep in nanosleep\(\)$'
run run --set 'workloads[0].plugin=./exits23.so' --set 'workloads[0].params={}' --set env.set.E2E_RANK=1 work.yaml
like "an error at launch whose cause is a --set value points there" "$(err)" '(rank [0-2]|ranks|all 3 ranks)\b.* exited with code 23'
simple frozen 3 "@1 signal 19; allreduce 3 world" "timeouts: {run: 600ms, grace: 300ms}"
run run frozen.yaml
late "a rank that was stopped" 'not finished: ranks 0-2 \(running\)'
like "the stopped rank is named" "$(err)" 'rank 1: outside any collective, stopped by a signal'

# ---- for lack of memory ----
group=/sys/fs/cgroup/memory/collrun-e2e.$$
if mkdir "$group" 2>/dev/null && echo 40M >"$group/memory.limit_in_bytes" 2>/dev/null; then
    simple oom 3 "@1 eat 200; hang" "timeouts: {grace: 300ms}"
    memory_limited() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$COLLRUN" run "$@") ; }
    memory_limited oom.yaml >out 2>err
    code=$?
    ends "a rank that the kernel kills for lack of memory" 137
    like "differs from any other SIGKILL" "$(err)" 'rank 1 .*killed by the kernel for lack of memory \(the memory limit of its cgroup is 40MiB; it held up to'
    sed -i '$a on_failure: {action: restart, backoff: 10ms, rules: [{when: {cause: oom}, action: stop}]}' oom.yaml
    memory_limited oom.yaml >out 2>err
    is "on_failure knows the cause oom" "$(grep -c 'lack of memory' err)" 1
    simple notoom 3 "@1 signal 9; hang" "timeouts: {grace: 300ms}"
    memory_limited notoom.yaml >out 2>err
    like "and a SIGKILL in that cgroup is still just that" "$(err)" 'SIGKILL\), sender unknown'
    rmdir "$group"
else
    skip "a rank that the kernel kills for lack of memory" "no memory cgroup (version 1) can be made here"
fi

# ---- signals to collrun and its agents ----
simple patient 3 "note up; until-stopped" "timeouts: {grace: 60s}"
simple deaf 3 "ignore 15; ignore 1; ignore 2; note up; hang" "timeouts: {grace: 1m}"
signals_taken() { ! grep -qE '^(Sig|Shd)Pnd:.*[1-9a-f]' "/proc/$1/status"; } # no signal is pending
for s in INT:130 TERM:143 HUP:129; do
    start run patient.yaml
    within 60 noted_all 3 up
    kill -"${s%:*}" "$pid"
    finish 60
    ends "SIG${s%:*} once" "${s#*:}"
    check "SIG${s%:*} once: the workloads have time to end" noted_all 3 stopped
    start run deaf.yaml
    within 60 noted_all 3 up
    kill -"${s%:*}" "$pid"
    within 60 grep -q interrupted err
    kill -"${s%:*}" "$pid"
    finish 60
    ends "SIG${s%:*} twice" "${s#*:}"
    check "SIG${s%:*} twice: at once ($elapsed ms)" [ "$elapsed" -lt $((30000 * slow)) ]
    # Thrice: collrun leaves though its agent cannot answer; when the agent can, it cleans up.
    start run deaf.yaml
    within 60 noted_all 3 up
    agent=$(agent_of "$pid")
    kill -STOP "$agent"
    kill -"${s%:*}" "$pid"
    within 60 grep -q interrupted err
    kill -"${s%:*}" "$pid"
    within 60 signals_taken "$pid"
    kill -"${s%:*}" "$pid"
    finish 60
    ends "SIG${s%:*} thrice, with an agent that does not answer" "${s#*:}"
    check "SIG${s%:*} thrice: at once ($elapsed ms)" [ "$elapsed" -lt $((30000 * slow)) ]
    kill -CONT "$agent"
    check_within "SIG${s%:*} thrice: the agent cleans up" 60 gone "$agent"
done
start run patient.yaml
within 60 noted_all 3 up
agent=$(agent_of "$pid")
kill -KILL "$agent"
finish 60
ends "the agent is killed" 127
like "the error says so" "$(err)" 'host .* lost, with ranks 0-2: its collrun-agent was killed by signal 9 \(SIGKILL\)'
start run patient.yaml
within 60 noted_all 3 up
agent=$(agent_of "$pid")
kill -TERM "$agent"
finish 60
ends "the agent is terminated" 127
like "and named" "$(err)" 'error: host [^ ]+: its collrun-agent was ended by signal 15 \(SIGTERM\)'
check "the workloads have time to end" noted_all 3 stopped
start run patient.yaml
within 60 noted_all 3 up
agent=$(agent_of "$pid")
guard=$(pgrep -P "$pid" -x collrun-guard)
kill -KILL "$guard"
finish 60
ends "the guard, the parent of the agent, is killed" 127
like "and named" "$(err)" "error: host [^ ]+: its collrun-guard \\(pid $guard\\), the parent of its collrun-agent, was killed by signal 9 \\(SIGKILL\\)\$"
check "the workloads have time to end" noted_all 3 stopped
check "nothing is left" gone "$agent"
start run patient.yaml
within 60 noted_all 3 up
agent=$(agent_of "$pid")
kill -KILL "$pid"
finish 60
ends "collrun itself is killed" 137
check_within "its agent ends the ranks and itself" 60 gone "$agent"
check "in order" noted_all 3 stopped

# ---- what cannot be written ----
simple chatty 2 "print hello"
"$COLLRUN" run chatty.yaml >/dev/full 2>err
code=$?
ends "stdout on a full disk: 125" 125
like "with the reason" "$(err)" 'error: cannot write to stdout.*No space left on device'
timeout -k 5 "$limit" "$COLLRUN" run chatty.yaml >&- 2>err
code=$?
ends "stdout is closed: 125" 125
like "with the reason" "$(err)" 'error: cannot write to stdout.*Bad file descriptor'
timeout -k 5 "$limit" "$COLLRUN" run chatty.yaml <&- >&- 2>&-
code=$?
ends "all three are closed: 125" 125
simple silent 2 "note ran"
timeout -k 5 "$limit" "$COLLRUN" run silent.yaml <&- >&- 2>&-
code=$?
ends "and if there is nothing to say, nothing is wrong" 0
simple chattier 2 "@0 print hello; exit 3"
"$COLLRUN" run chattier.yaml >/dev/full 2>err
code=$?
ends "the rank's code comes first" 3
done_testing

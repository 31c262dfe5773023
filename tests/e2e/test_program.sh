#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that are members of the job by collrun_init: good runs on every backend, failures that are explained as those of plugins, and
# the examples in C, C++ and Fortran.
. "$(dirname "$0")/lib.sh"
shows() { like "$1" "$(err)" "$2"; }
under_tsan=$(case $home in *tsan*) echo yes ;; esac)

export PKG_CONFIG_PATH=$home/lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs collrun) -Wl,-rpath,$home/lib ${sanitize[*]}"
if ! cc -std=c11 -D_GNU_SOURCE -g -Wall -Wextra -Werror "$top/tests/e2e/member_programs.c" "${flags[@]}" -o member 2>err; then
    not_ok "the programs compile with pkg-config's flags"
    done_testing
fi

# member WHAT [BACKEND] [KEYS...]: both ranks run it.
member() {
    job job <<END
version: 1
processes: {count: 2}
groups: {world: {ranks: all, backend: ${2:-shm}, timeout: ${TIMEOUT:-40s}}}
workloads:
  - {name: train, command: [./member, $1]}
${3:-}
END
    run job.yaml
}

# ---- good runs ----
for backend in shm tcp gloo; do
    if ! "$COLLRUN" backends | grep -q "^$backend  *.*available"; then
        skip "$backend: a good run" "$("$COLLRUN" backends | grep "^$backend ")"
        continue
    fi
    member good "$backend"
    is "$backend: a good run" "$code $(grep -c good out)" "0 2"
    unlike "$backend: nothing is reported" "$(err)" 'error'
done
member good shm 'logging: {dir: run}'
like "metrics arrive" "$(cat run/events.jsonl)" '"loss"'
member leave
is "a program may leave without collrun_finalize when no rank needs it" "$code" 0
member after
is "the program goes on after its part, and its exit code counts" "$code $(grep -c good out)" "9 2"

member creating
is "collrun_finalize is refused while another thread creates a group" "$code $(grep -c good out)" "0 2"
like "its error names the group" "$(cat out)" 'refused: collrun_finalize: another thread is creating a group "late"'
is "no group is created after it" "$(grep -c 'late: .*collrun_finalize has ended this rank' out)" 2

job serve <<END
version: 1
processes: {count: 3}
groups: {world: {ranks: 0}, servers: {ranks: [1, 2]}}
timeouts: {grace: 60s}
workloads:
  - {name: train, command: [sh, -c, "until [ -e up0 ] && [ -e up1 ]; do sleep 0.05; done; echo good"], ranks: 0}
  - {name: servers, command: [./member, serve], ranks: "1-2", background: true}
END
run serve.yaml
is "members in the background end by collrun_stopping, without a signal" "$code $(grep -c good out)" "0 3"

# Each of them waits in collrun_finalize for all others of the group: ranks of plugins, whose workloads have returned, and ranks that run
# a background workload, which ends when all others are done.
need_scripted
job mixed <<END
version: 1
processes: {count: 4}
groups: {world: {ranks: all}}
timeouts: {run: 30s}
workloads:
  - {plugin: ./scripted.so, ranks: 0-1, params: {dir: "$tmp", do: "barrier world"}}
  - {name: train, command: [./member, meet], ranks: "2-3"}
END
run mixed.yaml
is "a group of plugins and programs ends" "$code $(err)" "0 "
{ cat mixed.yaml && echo '  - {name: beat, plugin: ./scripted.so, ranks: 0, background: true, params: {dir: ., do: until-stopped}}'; } >beat.yaml
run beat.yaml
is "with a plugin in the background, too" "$code $(err)" "0 "
run mixed.yaml --set 'workloads[0]={name: serve, command: [./member, serve], ranks: [0, 1], background: true}' --set 'workloads[1].command[1]=end'
is "and with members in the background" "$code $(err)" "0 "

# ---- the process that is the member ----
for command in '[sh, -c, "exec ./member good"]' '[sh, -c, "./member good; true"]' '[env, A=b, ./member, good]'; do
    job job <<END
version: 1
processes: {count: 2}
workloads:
  - {name: train, command: $command}
END
    run job.yaml
    is "$command: a member" "$code $(grep -c good out)" "0 2"
done
job job <<END
version: 1
processes: {count: 1}
workloads:
  - {name: train, command: [sh, -c, "./member leave; ./member leave"]}
END
run job.yaml
is "a second process of the rank is refused" "$code" 1
shows "and learns which process is the member" 'process [0-9]+ has called it for rank 0'
./member good >out 2>err
is "without collrun: exit code 1" "$?" 1
shows "without collrun: how to start it" 'collrun_init: this process was not started by collrun; start this program with `collrun job.yaml`.*command: \[\./member, good\]'

# ---- failures are explained ----
member kill
is "kill -9: the exit code" "$code" 137
shows "kill -9: the rank" 'rank 1 .*killed by signal 9'
member crash
is "a crash: the exit code" "$code" 139
if [ -n "$sanitized" ]; then
    skip "a crash: headline, function and line" "the sanitizers handle crashes"
else
    shows "a crash: headline" 'rank 1 crashed: SIGSEGV at address 0x10'
    shows "a crash: function and line" 'do_crash.*member_programs\.c:[0-9]+'
fi
member deadlock
shows "a deadlock is proven" 'deadlock'
shows "and both calls are named" 'rank 0.*recv.*rank 1|recv'
member mismatch
shows "a mismatch: the rank and the operator" 'allreduce.*max'
member code
is "an exit code is that of the rank" "$code" 7
shows "and it is named" 'rank 1.*exited with code 7'
member fail
shows "collrun_fail: the text" 'rank 1.*the loss is not a number'
member early
is "an early return: not good" "$((code != 0))" 1
shows "an early return: the rank" 'rank 1.*exited with code 0'
# The program of rank 1 ends with code 1 because collrun_finalize fails; that is no cause.
verdict() { tr -d '\n' <"$1/result.json" | tr -s ' ' | grep -o '"class": "[a-z]*", "culprits": \[[^]]*\]' | head -n 1; }
for backend in shm gloo; do
    if [ -n "$under_tsan" ]; then
        skip "$backend: a wait for a rank in collrun_finalize" "ThreadSanitizer runs a thread in every rank"
        continue
    fi
    if ! "$COLLRUN" backends | grep -q "^$backend  *.*available"; then
        skip "$backend: a wait for a rank in collrun_finalize" "$("$COLLRUN" backends | grep "^$backend ")"
        continue
    fi
    for what in ended extra; do
        [ $what = ended ] && call='recv world#1' || call='allreduce world#2'
        TIMEOUT=10m member $what $backend "logging: {dir: $backend-$what}"
        is "$backend, $what: a wait for a rank in collrun_finalize ends at once" "$code" 1
        shows "$backend, $what: the text" "error: rank 0 waits in $call \(.*\) for rank 1, which has called collrun_finalize"
        is "$backend, $what: the verdict" "$(verdict $backend-$what)" '"class": "exit", "culprits": [ 1 ]'
    done
done
TIMEOUT=2s member ended shm 'logging: {dir: short}'
is "with a short time-out: it fails" "$code" 1
shows "the same rank and reason" 'error: rank 0 .*recv world#1: rank 0 waited [0-9.]+ s for rank 1; rank 0 waits in .* for rank 1, which has called collrun_finalize'
is "the same verdict" "$(verdict short)" '"class": "exit", "culprits": [ 1 ]'
member fork
is "a rank that forks runs well" "$code $(grep -c good out)" "0 2"
like "the child is refused" "$(out)" 'child: -1 barrier world: this process was forked by rank [01]'
member stall shm 'timeouts: {stall: 1s}'
is "a stall: the job goes on" "$code" 0
line=$(grep -n 'STALLS HERE' "$top/tests/e2e/member_programs.c" | cut -d: -f1)
shows "a stall: function and line of the program" "load_batch.*member_programs\.c:$line"

# ---- the examples, built as users build them ----
config=$top/configs/program.yaml
ring() {
    run "$config"
    is "$1: the ring" "$code $(sed -n 's/^\[[0-9]\] //p' out | sort | tr '\n' ';')" \
        "0 rank 0 of 4: got 3, the sum is 6;rank 1 of 4: got 0, the sum is 6;rank 2 of 4: got 1, the sum is 6;rank 3 of 4: got 2, the sum is 6;"
}
examples=$top/examples/programs
export PROGRAM=$tmp/ring_c
cc -std=c11 -Wall -Wextra -Werror "$examples/ring.c" "${flags[@]}" -o ring_c 2>err && ring C || not_ok "C: it compiles"
PROGRAM=$tmp/ring_cxx
if command -v c++ >/dev/null; then
    c++ -std=c++17 -Wall -Wextra -Werror "$examples/ring.cc" "${flags[@]}" -o ring_cxx 2>err && ring C++ || not_ok "C++: it compiles"
else
    skip "C++: the ring" "there is no c++"
fi
PROGRAM=$tmp/ring_f
if command -v gfortran >/dev/null; then
    read -ra links <<<"$(pkg-config --libs collrun) -Wl,-rpath,$home/lib"
    gfortran -Wall "$examples/ring.f90" "${links[@]}" "${sanitize[@]}" -o ring_f 2>err && ring Fortran || not_ok "Fortran: it compiles"
else
    skip "Fortran: the ring" "there is no gfortran"
fi

done_testing

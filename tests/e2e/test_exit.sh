#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exit codes: of a good job, of ranks that return, exit or are killed, of job files, time-outs and what cannot load.
. "$(dirname "$0")/lib.sh"
need_scripted

simple good 3 "print hello"
run run good.yaml
ends "a good job: 0" 0
quiet "a good job prints nothing on stderr"
is "every rank ran once" "$(grep -c hello out)" 3
run good.yaml
ends "the word run may be left out" 0

simple seven 3 "@1 exit 7"
run run seven.yaml
ends "a rank returns 7: 7" 7
like "the report names the rank" "$(err)" 'rank 1([^0-9]|$)'
like "and its exit code" "$(err)" '(^|[^0-9])7([^0-9]|$)'

simple leave 2 "@0 leave 9"
run run leave.yaml
ends "a rank calls _exit(9): 9" 9
simple libc 2 "@0 libc-exit 10"
run run libc.yaml
ends "a rank calls exit(10): 10" 10
simple early 3 "@1 leave 0; hang" "timeouts: {grace: 300ms}"
run run early.yaml
unlike "a rank that calls _exit(0) in the middle is not taken for success" "exit code $code" "code (0|killed)"
like "it is named" "$(err)" 'rank 1([^0-9]|$)'

# The first failure is the cause; the second follows from it.
simple two 4 "@2 exit 5; try world; exit 6"
run run two.yaml
ends "of two failing ranks the first decides" 5
like "the report names rank 2" "$(err)" 'rank 2([^0-9]|$)'

simple segv 3 "@2 signal 11; hang" "timeouts: {grace: 300ms}"
run run segv.yaml
ends "signal 11: 139" 139
like "the report names rank 2 and the signal" "$(err)" 'rank 2.*(SIGSEGV|[Ss]egmentation|signal 11)'
simple crash 2 "@1 crash; hang" "timeouts: {grace: 300ms}"
run run crash.yaml
ends "a write to address 0: 139" 139
simple killed 3 "@0 signal 9; hang" "timeouts: {grace: 300ms}"
run run killed.yaml
ends "SIGKILL: 137" 137
like "the report names rank 0 and the signal" "$(err)" 'rank 0.*(SIGKILL|[Kk]illed|signal 9)'
simple abrt 2 "@1 signal 6; hang" "timeouts: {grace: 300ms}"
run run abrt.yaml
ends "SIGABRT: 134" 134

simple negative 2 "@1 exit -9"
run run negative.yaml
ends "a workload returns a negative status: 1" 1
simple failing 2 "@1 fail the disk is full of cats"
run run failing.yaml
ends "collrun_fail: 1" 1
like "its text is in the error" "$(err)" 'the disk is full of cats'
simple status 2 "allreduce 1 nogroup; @1 exit 0"
sed -i 's/allreduce 1 nogroup/@1 exit -2/' status.yaml
run run status.yaml
ends "a status from a collrun function: 1" 1

job init <<END
version: 1
processes: {count: 3}
workloads: [{plugin: ./scripted.so, params: {init: "@1 exit 4", do: "print ran"}}]
END
run run init.yaml
ends "init returns 4: 4" 4
is "then no rank runs" "$(grep -c ran out)" 0
job fini <<END
version: 1
processes: {count: 2}
workloads: [{plugin: ./scripted.so, params: {fini: "print swept"}}]
END
run run fini.yaml
is "fini is called on every rank" "$(grep -c swept out)" 2

# ---- 2: the job file ----
printf 'version: 1\nprocesses: {count: 2}\nworkload: []\n' >bad.yaml
run run bad.yaml
ends "a misspelt key: 2" 2
like "it is explained at its place" "$(err)" 'bad\.yaml:3:1: error: .*workload'
like "with a hint" "$(err)" '^hint: did you mean "workloads"'
is "nothing on stdout" "$(out)" ""
run check bad.yaml
ends "check says the same: 2" 2
run check good.yaml
ends "check of a good file: 0" 0
quiet "and no word"
run run absent.yaml
ends "no such file: 2" 2
like "it names the file" "$(err)" 'absent\.yaml'
run run .
ends "a folder instead of a file: 2" 2
printf 'version: 1\nprocesses: {count: 2}\ngroups: {a: {ranks: 0-1, backend: shmm}}\nworkloads: [{plugin: ./scripted.so}]\n' >backend.yaml
run run backend.yaml
ends "an unknown backend: 2" 2
like "it is explained at its place" "$(err)" 'backend\.yaml:3:[0-9]+: error: groups\.a\.backend: no backend named "shmm"'
like "with a hint" "$(err)" 'did you mean "shm"'
run run good.yaml --no-such-option
check "an unknown option is refused" [ "$code" -eq 2 ]
like "and named" "$(err)" 'no-such-option'
run run good.yaml --set processes.count=lots
ends "a bad --set: 2" 2
run run good.yaml --set processes.count=5
is "--set changes the job" "$(grep -c hello out)" 5
run
check "no arguments: usage, not success" [ "$code" -eq 2 ]
run --version
ends "--version: 0" 0
like "it prints a version" "$(out)" '[0-9]+\.[0-9]+'
run --help
ends "--help: 0" 0
like "it shows the commands" "$(out)" 'check JOB.yaml'

# ---- 126: what cannot be loaded ----
job noplugin <<END
version: 1
processes: {count: 2}
workloads:
  - plugin: ./absent.so
END
run run noplugin.yaml
ends "a plugin that does not exist: 126" 126
like "it is explained at its line" "$(err)" 'noplugin\.yaml:4:[0-9]+: error: .*absent\.so'
cp "$home/lib/collrun/workloads/hello.so" absence.so
run run noplugin.yaml
like "a wrong path has a hint at the file that may be meant" "$(err)" '^hint: did you mean \./absence\.so\?$'
echo 'import collrun' >train.py
sed 's/absent\.so/train.py/' noplugin.yaml >train.yaml
run run train.yaml
ends "a program in the place of a plugin" 126
like "the hint is the line that runs it" "$(err)" "^hint: a program is run by command: \[python3, $tmp/train\.py\] in place of plugin\$"
printf 'version: 1\nprocesses: {count: 2}\nworkloads:\n  - %s\n' "$(sed -n 's/^hint: a program is run by \(.*\) in place of plugin$/\1/p' err)" >hinted.yaml
run check hinted.yaml
ends "which is right as it is" 0
cat >needs.c <<END
#include <collrun/workload.h>
int provided(void);
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return provided(); }
COLLRUN_WORKLOAD(.name = "needs", .run = run);
END
echo 'int provided(void); int provided(void) { return 0; }' >provides.c
plugin provides.c libprovides.so
plugin needs.c needs.so -L"$tmp" -Wl,--no-as-needed -lprovides
sed 's/absent/needs/' noplugin.yaml >needs.yaml
for command in run plan; do
    run $command needs.yaml
    ends "a library that a plugin needs is missing: $command" 126
    like "it is named" "$(err)" "needs\.yaml:4:13: error: .*needs\.so needs libprovides\.so, which is not on this host\$"
done
run check needs.yaml
ends "a library that a plugin needs is missing: check, which ends with 0 or 2" 2
LD_LIBRARY_PATH=$tmp run check needs.yaml
ends "with it: check" 0
LD_LIBRARY_PATH=$tmp run run needs.yaml
ends "with it: run" 0
echo "not a library" >text.so
sed 's/absent/text/' noplugin.yaml >text.yaml
run run text.yaml
ends "a plugin that is no shared object: 126" 126
like "it is explained at its line" "$(err)" 'text\.yaml:4:[0-9]+: error: .*text\.so'
echo 'int nothing_here;' >empty.c
plugin empty.c empty.so
sed 's/absent/empty/' noplugin.yaml >empty.yaml
run run empty.yaml
ends "a shared object that is no workload: 126" 126
like "it is explained at its line" "$(err)" 'empty\.yaml:4:[0-9]+: error: .*empty\.so'
echo 'int missing(void); int call(void); int call(void) { return missing(); }' >undefined.c
plugin undefined.c undefined.so
sed 's/absent/undefined/' noplugin.yaml >undefined.yaml
run run undefined.yaml
ends "a plugin with an undefined symbol: 126" 126
like "the missing symbol is named" "$(err)" 'missing'
cat >future.c <<END
#include <collrun/workload.h>
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }
__attribute__((visibility("default"))) extern const struct collrun_workload collrun_workload_v1;
const struct collrun_workload collrun_workload_v1 = {.abi = 77, .size = sizeof(struct collrun_workload), .name = "x", .run = run};
END
plugin future.c future.so
sed 's/absent/future/' noplugin.yaml >future.yaml
run run future.yaml
ends "a plugin of another ABI: 126" 126
like "both ABIs are named" "$(err)" '77.*1|1.*77'
sed 's/\.\/absent\.so/helo/' noplugin.yaml >helo.yaml
run run helo.yaml
ends "a bare name that is not installed is an error of the job file: 2" 2
like "with a hint at the installed one" "$(err)" 'did you mean "hello"'

# ---- ranks of two workloads that end alike ----
cat >apart.yaml <<END
version: 1
processes: {count: 2}
workloads:
  - {name: one, plugin: ./scripted.so, ranks: 0, params: {dir: "$tmp", do: "note up;await 2 up;leave 5"}}
  - {name: two, plugin: ./scripted.so, ranks: 1, params: {dir: "$tmp", do: "note up;await 2 up;leave 5"}}
END
run run apart.yaml
ends "two ranks exit with one code: that code" 5
like "the workload of one of them is not that of both" "$(err)" 'error: all 2 ranks exited with code 5( |$)'

# ---- what only a host can know of the job file ----
cat >nowhere.yaml <<'END'
version: 1
hosts: {nodes: [{name: here, transport: local, workdir: /no/such/folder}]}
processes: {count: 3}
workloads: [{plugin: hello}]
END
run run nowhere.yaml
ends "a workdir that is not there: 2" 2
like "host and path are named, at the line" "$(err)" \
    '^nowhere\.yaml:2:57: error: host here: workdir /no/such/folder: No such file or directory$'
is "once" "$(grep -c 'such file' "$tmp/err")" 1

# ---- warnings about the job file ----
cat >warned.yaml <<'END'
version: 1
processes: {count: 1}
workloads: [{command: [sh, -c, "echo {rank}; exit ${env:CODE}"]}]
END
CODE=0 run run warned.yaml
is "a good job without a terminal prints no warning" "$code $(err)" "0 "
CODE=0 run run -v warned.yaml
like "with -v it does" "$(err)" 'warning: .*\{rank\} is not replaced in a command'
CODE=3 run run warned.yaml
like "a job that has failed prints them after its error" "$(err | tr '\n' ' ')" 'error: .*exited with code 3 .*warning: .*\{rank\} is not replaced'
done_testing

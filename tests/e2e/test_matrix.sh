#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A matrix: one run per combination, its files, --resume, --only, the exit code, and signals. tests/golden/matrix has the messages.
. "$(dirname "$0")/lib.sh"

cat >measure.c <<'END_C'
#include <collrun/workload.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    const char *algo = collrun_param_string(ctx, "algo"), *until = collrun_param_string(ctx, "until");
    (void)state;
    collrun_metric(ctx, "speed", (collrun_world_rank(ctx) + 1) * (strcmp(algo, "Tree, the new one") == 0 ? 10.0 : 1.0));
    printf("%s runs\n", algo);
    fflush(stdout);
    for (int i = 0; *until && access(until, F_OK) != 0 && i < 6000; i++)
        usleep(10000);
    return strcmp(algo, collrun_param_string(ctx, "fails")) == 0 ? collrun_fail(ctx, "%s is broken", algo) : 0;
}
static const struct collrun_param params[] = {{.name = "algo", .type = COLLRUN_PARAM_STRING, .def = ""},
    {.name = "until", .type = COLLRUN_PARAM_STRING, .def = ""}, {.name = "fails", .type = COLLRUN_PARAM_STRING, .def = ""}, {0}};
COLLRUN_WORKLOAD(.name = "measure", .run = run, .params = params);
END_C
plugin measure.c measure.so || exit 1
job matrix <<'END'
version: 1
vars: {sizes: [1, 2], fails: ""}
matrix:
  algo: [Ring, "Tree, the new one"]
  n: "${var:sizes}"
  exclude: [{algo: Ring, n: 2}]
processes: {count: "${matrix:n}"}
workloads: [{plugin: ./measure.so, params: {algo: "${matrix:algo}", fails: "${var:fails}"}}]
logging: {dir: runs}
END

run run matrix.yaml
ends "three runs" 0
is "a line for each" "$(sed -E 's/[0-9.]+ s/S s/g; /^$/q' out | head -n 3)" "[1/3] algo=Ring,n=1: ok, S s; about S s left
[2/3] algo=Tree, the new one,n=1: ok, S s; about S s left
[3/3] algo=Tree, the new one,n=2: ok, S s"
is "a table: a metric is the mean of the ranks" "$(tail -n 4 out | head -n 3 | sed -E 's/ +[0-9]+\.[0-9]{3} +/ S /')" "Ring               1  ok S 1
Tree, the new one  1  ok S 10
Tree, the new one  2  ok S 15"
is "matrix.csv" "$(sed -E 's/,0,[0-9.]+,/,0,S,/' runs/matrix.csv)" 'number,algo,n,class,exit_code,seconds,measure.speed
1,Ring,1,ok,0,S,1
2,"Tree, the new one",1,ok,0,S,10
3,"Tree, the new one",2,ok,0,S,15'
is "matrix.json" "$(python3 -c '
import json
m = json.load(open("runs/matrix.json"))
print(m["job"], [a["values"] for a in m["axes"]], m["selected"])
for r in m["combinations"]: print(r["number"], r["values"], r["dir"], r["class"], r["exit_code"], r["verdict"]["class"], r["metrics"])')" \
    "matrix [['Ring', 'Tree, the new one'], ['1', '2']] 3
1 {'algo': 'Ring', 'n': '1'} 001-algo=Ring,n=1 ok 0 ok {'measure.speed': 1.0}
2 {'algo': 'Tree, the new one', 'n': '1'} 002-algo=Tree,_the_new_one,n=1 ok 0 ok {'measure.speed': 10.0}
3 {'algo': 'Tree, the new one', 'n': '2'} 003-algo=Tree,_the_new_one,n=2 ok 0 ok {'measure.speed': 15.0}"
is "each run has a run directory, and what collrun printed" "$(ls runs/003*/result.json) $(sort runs/003*.log)" \
    "runs/003-algo=Tree,_the_new_one,n=2/result.json [0] Tree, the new one runs
[1] Tree, the new one runs"
run report runs
is "a page" "$code $(grep -c 'A matrix: 3 of 3 runs are ok' runs/report.html)" "0 1"
run run matrix.yaml
ends "the same folder again is refused" 2
like "and says what to do" "$(err)" '^hint: --resume continues it'
run run matrix.yaml --resume
is "--resume: nothing is left to run" "$code $(grep -c ', kept$' out)" "0 3"

# ---- failures ----
run run matrix.yaml --run-dir broken --var fails=Ring
ends "one run fails: its exit code" 1
is "the others run" "$(grep -c ': ok, ' out) $(grep -c ',error,1,' broken/matrix.csv) $(grep -c ',ok,0,' broken/matrix.csv)" "2 1 2"
like "its line says why" "$(out)" '^    rank 0 .*: Ring is broken$'
like "and where its output is" "$(out)" "^    output: .*/broken/001-algo=Ring,n=1\.log$"
run run matrix.yaml --run-dir broken --resume
is "--resume: the failed one runs again" "$code $(grep -c ', kept' out) $(ls -d broken/001*)" "0 2 broken/001-algo=Ring,n=1
broken/001-algo=Ring,n=1.log
broken/001-algo=Ring,n=1.old1"
run run matrix.yaml --run-dir first --var fails=Ring --set matrix.keep_going=false
is "keep_going: false ends it" "$code $(grep -c '^\[' out)" "1 1"
run run matrix.yaml --run-dir only --only n=1 --only algo=Ring
is "--only, twice" "$code $(grep '^\[' out | sed 's/: .*//')" "0 [1/1] algo=Ring,n=1"
run check matrix.yaml --set 'matrix.n=[1,2,99999]'
is "check reads every combination" "$code $(grep -c 'error: processes.count: 99999' err) $(tail -n 1 err)" \
    "2 1 collrun: this is the job with algo=Ring,n=99999"
run run matrix.yaml --run-dir none --set 'matrix.n=[1,2,99999]'
is "and run does, before the first one" "$code $(ls -d none 2>&1 | grep -c 'No such')" "2 1"
run check matrix.yaml --set 'workloads[0].plugin=./${matrix:algo}.so'
like "check: a plugin of one combination" "$(err)" 'Ring\.so'
job many <<'END'
version: 1
matrix: {a: &ten [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], b: *ten, c: *ten, d: *ten}
processes: {count: 1}
workloads: [{plugin: hello, params: {greeting: "${matrix:a}${matrix:b}${matrix:c}${matrix:d}"}}]
END
run run many.yaml
is "10,000 combinations need --yes" "$code $(grep -c 'matrix: 10000 combinations' err) $(grep -c '^hint: --yes' err)" "2 1 1"
run run many.yaml --only a=0 --only b=0 --only c=0
is "a folder is needed" "$code $(grep -c '^hint: add .dir. to logging, or use --run-dir DIR' err)" "2 1"
run run matrix.yaml --trace file --run-dir traced
like "--trace FILE is refused" "$(err)" '^hint: logging.trace writes one in each run directory$'
job plain <<'END'
version: 1
processes: {count: 1}
workloads: [{plugin: hello}]
END
run run plain.yaml --resume
like "without a matrix, --resume is refused" "$(err)" 'error: --resume: the job has no matrix$'

# ---- signals ----
"$COLLRUN" matrix.yaml --run-dir stopped --set "workloads[0].params.until=$PWD/go" >stopped.out 2>&1 &
runner=$!
within 60 eval 'grep -q runs stopped/001*.log 2>/dev/null'
kill -INT $runner
wait $runner
is "SIGINT ends the run and the matrix" "$? $(grep -c '^\[' stopped.out)" "130 1"
check "no process is left" eval '! pgrep -f "run-dir stopped" >/dev/null'
"$COLLRUN" matrix.yaml --run-dir killed --set "workloads[0].params.until=$PWD/go" >killed.out 2>&1 &
runner=$!
within 60 eval 'grep -q runs killed/001*.log 2>/dev/null'
kill -KILL $runner
wait $runner 2>/dev/null
check "killed: its run ends as by SIGTERM" within 60 eval '[ -s killed/001*/result.json ]'
check "and no process is left" within 60 eval '! pgrep -f "run-dir killed" >/dev/null'
"$COLLRUN" matrix.yaml --run-dir lost --set matrix.keep_going=false --set "workloads[0].params.until=$PWD/go" >lost.out 2>&1 &
runner=$!
within 60 eval 'grep -q runs lost/001*.log 2>/dev/null'
pkill -KILL -P $runner
wait $runner
is "a run whose collrun is killed: lost" "$? $(grep -c ',lost,137,' lost/matrix.csv) $(grep -c '^\[1/3\] algo=Ring,n=1: lost, ' lost.out)" "137 1 1"
touch go
run run matrix.yaml --run-dir killed --resume
is "killed: --resume runs the rest" "$code $(grep -c ',ok,0,' killed/matrix.csv)" "0 3"
done_testing

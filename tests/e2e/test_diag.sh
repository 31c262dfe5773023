#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The verdict in result.json of jobs that end in different ways, and `collrun diag`, which repeats it from the folder diag/ alone.
. "$(dirname "$0")/lib.sh"
need_scripted
under_tsan=$(case $home in *tsan*) echo yes ;; esac)

# verdict FILE: class, culprits, suspects, operation and field of a verdict.
verdict() {
    python3 -S -c '
import json, sys
v = json.load(open(sys.argv[1]))
v = v.get("verdict", v)
print(v["class"], v["culprits"], v["suspects"], v["kind"], v["group"], v["number"], v["field"])' "$1"
}

# fails NAME VERDICT STEPS [FURTHER LINES]: one job of 4 ranks, its verdict, and the same verdict from a copy of diag/ elsewhere.
fails() {
    local name=$1 expected=$2 steps=$3 more=${4:-"timeouts: {grace: 1s}"}
    simple "$name" 4 "$steps" "$(printf 'logging: {dir: %s}\n%s' "$name" "$more")"
    run run "$name.yaml"
    is "$name: the verdict" "$(verdict "$name/result.json")" "$expected"
    mkdir -p "elsewhere/$name"
    cp -r "$name/diag" "elsewhere/$name/diag"
    run diag "elsewhere/$name" --json
    out >again.json
    is "$name: diag repeats it" "$(python3 -S -c '
import json
print(json.load(open("again.json")) == json.load(open("'"$name"'/result.json"))["verdict"])')" True
}

fails exit "exit [1] [] None None None None" "@1 exit 7; allreduce 9 world"
fails all-exit "exit [0, 1, 2, 3] [] None None None None" "exit 7"
like "one message for all" "$(python3 -S -c 'import json; print(json.load(open("all-exit/result.json"))["verdict"]["text"])')" '^all 4 ranks: workload "scripted" returned 7 from run$'
fails crash "signal [2] [] None None None None" "@2 crash; allreduce 9 world"
is "the error of a rank that a signal killed" "$(python3 -S -c 'import json; print(json.load(open("crash/result.json"))["ranks"][2]["error"].partition("), ")[2])')" \
    'workload "scripted", was killed by signal 11 (SIGSEGV) while it was running'
fails error "error [3] [] None None None None" "@3 fail no more data; allreduce 9 world"
fails kind "mismatch [2] [] allreduce world 6 kind" "allreduce 5 world; @2 barrier world; allreduce 2 world"
fails missing "missing [3] [] allreduce world 6 None" "allreduce 5 world; @3 hang; allreduce 2 world" 'groups: {world: {ranks: all, timeout: 2s}}'
fails run-limit "missing [0] [] allreduce world 1 None" "@0 hang; allreduce 2 world" "timeouts: {grace: 1s, run: 2s}"
if [ -z "$under_tsan" ]; then
    fails early "exit [0] [] allreduce world 6 None" "allreduce 5 world; @0 exit 0; allreduce 2 world"
    fails extra "mismatch [0] [] allreduce world 6 kind" "allreduce 5 world; @0 allreduce 1 world"
    like "what it called, and who did not" "$(python3 -S -c 'import json; v = json.load(open("extra/result.json"))["verdict"]; print(v["calls"], v["text"])')" \
        "'ranks': '0', 'call': 'allreduce\(3 x int64, sum\)'.*allreduce world#6: rank 0 calls allreduce\(.*\), ranks 1-3 have ended without it"
fi

# ---- what diag reads, and what it refuses ----
run diag crash/diag
like "diag/ itself; the message is the run's" "$(out)" 'error: rank 2 .* was killed by signal 11 \(SIGSEGV\)'
like "with the line about the others" "$(out)" '^collrun: ranks 0-1 and 3 failed because of it$'
run diag nowhere
ends "no such folder: 2" 2
mkdir -p empty/diag
run diag empty/diag
like "a folder of no run is called that" "$(err)" 'empty/diag is not a run directory'
head -c 5000 crash/diag/rank-0.record >elsewhere/crash/diag/rank-0.record
run diag elsewhere/crash
ends "a record that is cut: 2" 2
like "with its name" "$(err)" 'rank-0.record is not a record'
echo '{"version": 1, "ranks": [' >elsewhere/crash/diag/evidence.json
run diag elsewhere/crash
ends "evidence.json that is cut: 2" 2

# ---- attempts ----
simple again 2 "@1 exit 7; allreduce 9 world" $'logging: {dir: again}\non_failure: {action: restart, max_restarts: 1, backoff: 10ms}'
run run again.yaml
check "the evidence of the first attempt is kept" test -s again/attempt-0/diag/evidence.json
run diag again/attempt-0
like "and read" "$(out)" 'error: rank 1 .*returned 7 from run'
done_testing

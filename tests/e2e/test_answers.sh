#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# However a program answers a failed call (by its status, collrun_fail, abort, exit, another code, or not at all), the verdict is about that
# call: the minority of a mismatch, the rank that was late. A failure that the program has handled, and after which it went on, does not count.
. "$(dirname "$0")/lib.sh"
plugin "$here/answer_programs.c" "$tmp/answers.so" &&
    cc -std=c11 -D_GNU_SOURCE -O1 -DPROGRAM -I"$include" "$here/answer_programs.c" -o "$tmp/answers" -L"$home/lib" -lcollrun -Wl,-rpath,"$home/lib" || {
    echo "Bail out! the programs do not compile"
    exit 1
}
cat >answers.py <<'CODE'
import array, os, sys, time, collrun
failure, answer = sys.argv[1:3]
g = collrun.group()
x = array.array("f", [1.0]) * 64
g.barrier()
try:
    if failure == "late" and g.rank == 2:
        time.sleep(60)
    if failure == "op" and g.rank == 2:
        time.sleep(0.3) # the others are in the call by then: a verdict needs theirs to know the majority
    g.allreduce(x, op="max" if failure == "op" and g.rank == 2 else "sum")
except collrun.Error as error:
    if answer == "from":
        raise RuntimeError("step 2 failed") from error
    if answer == "context":
        raise ValueError("while it was handled")
    if answer == "leave":
        os._exit(1)
    sys.exit("step 2 failed")
CODE

# One job each, several at a time: FORM BACKEND FAILURE ANSWER
start_job() {
    local name=$1.$2.$3.${4// /-} workload timeout=60s run=${limit}s
    case $1 in
    plugin) workload="{plugin: ./answers.so, params: {failure: $3, answer: $4}}" ;;
    program) workload="{command: [./answers, $3, $4]}" ;;
    python) workload="{command: [python3, answers.py, $3, $4]}" ;;
    esac
    case "$2 $3 $4" in
    "off op "* | *" late "* | *" tag sleep") timeout=$((3 * slow))s ;;
    *" fini sleep") run=$((6 * slow))s ;;
    esac
    job "$name" <<END
version: 1
processes: {count: 4}
groups: {world: {ranks: all, backend: $([ "$2" = off ] && echo "gloo, check: off" || echo "$2"), timeout: $timeout}}
workloads: [$workload]
timeouts: {run: $run, grace: 300ms}
END
    timeout -k 5 "$limit" "$COLLRUN" "$name.yaml" --run-dir "run.$name" >"$name.out" 2>"$name.err" </dev/null
}
# verdict NAME: that of result.json; and of collrun diag, if it is another
verdict() {
    "$COLLRUN" diag "run.$1" --json >"$1.diag" # python reads it once it is whole
    python3 -S -c 'import json, sys
def text(v):
    return " ".join(str(x) for x in (v["class"], v["culprits"] or v["suspects"], v["group"], v["kind"], v["number"], v["field"]))
run, diag = (json.load(open(name)) for name in sys.argv[1:])
run, diag = text(run["verdict"]), text(diag.get("verdict", diag))
print(run if run == diag else f"{run}; diag: {diag}")' "run.$1/result.json" "$1.diag" 2>&1
}
mismatch="mismatch [2] world allreduce 2 op"
missing="missing [2] world allreduce 2 None"
cases="plugin shm op fail|$mismatch
plugin tcp op words|$mismatch
plugin tcp op abort|$mismatch
plugin gloo op exit|$mismatch
plugin shm op leave|$mismatch
plugin tcp op code|$mismatch
plugin shm op ignore|$mismatch
plugin tcp op ignore for long|$mismatch
plugin shm count abort|mismatch [2] world allreduce 2 count
plugin tcp message fail|mismatch [0, 1] world recv 1 count
plugin shm message ignore|mismatch [0, 1] world recv 1 count
plugin shm late fail|$missing
plugin tcp late abort|$missing
plugin gloo late words|$missing
plugin tcp late exit|$missing
plugin shm late leave|$missing
plugin gloo late code|$missing
program shm op abort|$mismatch
program tcp op ignore for long|$mismatch
program shm late exit|$missing
program tcp late leave|$missing
python tcp op from|$mismatch
python shm op leave|$mismatch
python gloo late from|$missing
python tcp late context|$missing
python shm late exit|$missing
plugin shm handled fail|error [2] None None None None
plugin tcp handled code|exit [2] None None None None
program tcp handled abort|signal [2] None None None None
plugin shm user-op return|mismatch [2] world allreduce 2 op
plugin tcp user-op return|mismatch [2] world allreduce 2 op
plugin off op return|mismatch [2] world allreduce 2 op
plugin tcp descriptors return|error [2] None None None None
plugin shm own call-null|signal [2] None None None None
plugin shm own wild|signal [2] None None None None
plugin shm fini sleep|missing [2] None None None None
plugin tcp fini abort|signal [2] None None None None
plugin shm fini exit|exit [2] None None None None
plugin shm tag return|deadlock [0, 1] world barrier 2 None
plugin gloo tag return|deadlock [0, 1] world barrier 2 None
plugin shm tag sleep|missing [0] world recv 1 None
plugin tcp tag sleep|missing [0] world recv 1 None"
running=0
while IFS='|' read -r words _; do
    # shellcheck disable=SC2086
    set -- $words
    start_job "$1" "$2" "$3" "${*:4}" &
    running=$((running + 1))
    [ $((running % 10)) != 0 ] || wait
done <<<"$cases"
wait
while IFS='|' read -r words want; do
    read -r form backend failure answer <<<"$words"
    name=$form.$backend.$failure.${answer// /-}
    cp "$name.err" err
    is "$words" "$(verdict "$name")" "$want"
done <<<"$cases"

unlike "a failure that was handled is not in the report" "$(cat plugin.tcp.handled.code.err)" 'last failed call'
like "the text is that of the failed call" "$(cat plugin.gloo.late.words.err)" 'error: rank [013] .*workload "answers": allreduce world#2: rank [013] waited [0-9.]+ s for rank [0-3]; rank 2 has not called it'
like "how the rank ended is a hint" "$(cat plugin.tcp.late.abort.err)" '^hint: after that, rank [013] was killed by signal 6 \(SIGABRT\)'
for backend in shm tcp; do
    like "$backend: operators of the caller are named" "$(cat plugin.$backend.user-op.return.err)" 'ranks 0-1 and 3 call allreduce\(8 x float32, user op argmax\), rank 2 calls allreduce\(8 x float32, user op argmin\)'
done
like "no descriptors: the cause" "$(cat plugin.tcp.descriptors.return.err)" 'rank 2 .*cannot open backend .*libcollrun_gloo\.so, as this process has 64 open files \(ulimit -n\): Too many open files'
if [ -z "$sanitized" ]; then
    like "a call of NULL is called that" "$(cat plugin.shm.own.call-null.err)" 'SIGSEGV at address 0x0: call of a function pointer that is NULL'
    like "its caller is the first frame" "$(cat plugin.shm.own.call-null.err)" '#0 .*answers\.so'
fi
if [ "$(uname -m)" = x86_64 ] && [ -z "$sanitized" ]; then
    like "a wild pointer is not NULL" "$(cat plugin.shm.own.wild.err)" 'SIGSEGV: general protection fault, for which there is no address'
    unlike "no address is made up" "$(cat plugin.shm.own.wild.err)" 'at address'
fi

like "a fini that hangs is named" "$(cat plugin.shm.fini.sleep.err)" 'not finished: rank 2 .*; rank 2 has been in its fini for '
for answer in abort exit; do
    like "fini, $answer: where the rank ended" "$(cat plugin.*.fini.$answer.err)" 'rank 2 .*workload "answers", .* in its fini'
done
for backend in shm gloo; do
    like "$backend: a message with another tag is named" "$(cat plugin.$backend.tag.return.err)" 'rank 0 has sent 1 message with tag 5 to rank 1, which receives one with tag 6'
    like "$backend: and the hint is about tags" "$(cat plugin.$backend.tag.return.err)" '^hint: the tag of the receive must be the tag of the send'
done
for backend in shm tcp; do
    like "$backend: so is one that has arrived" "$(cat plugin.$backend.tag.sleep.err)" 'waited [0-9.]+ s for rank 0; a message with tag 5 from it has arrived'
done

# Of several workloads, the one that has ended the rank is named.
for answer in call-null exit; do
    job background <<END
version: 1
processes: {count: 4}
workloads:
  - {name: train, plugin: ./answers.so, params: {failure: alone, answer: wait}, ranks: "0-1,3"}
  - {name: other, plugin: ./answers.so, params: {failure: fini, answer: return}}
  - {name: heart, plugin: ./answers.so, params: {failure: alone, answer: $answer}, background: true}
timeouts: {grace: 300ms}
END
    run background.yaml
    [ -n "$sanitized" ] && [ $answer = call-null ] ||
        like "$answer: the workload of the rank is named" "$(err)" 'rank 2 .*, workload "heart", '
done

# An attempt that failed, then one that is good: diag/ is that of the attempt.
job again <<END
version: 1
processes: {count: 4}
workloads: [{plugin: ./answers.so, params: {failure: own, answer: code}}]
on_failure: {action: restart, backoff: 10ms}
timeouts: {grace: 300ms}
END
run again.yaml --run-dir run.again
ends "the second attempt is good" 0
check "its diag/ lies with the first attempt" [ -e run.again/attempt-0/diag/evidence.json ]
check "and not with the run, which is good" [ ! -e run.again/diag ]
done_testing

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --trace and logging.trace: every operation of every rank is in the file exactly once, on a timeline that a strict reader accepts; the
# trace of a run that was killed opens; failures are in it; what the file cannot take is counted.
. "$(dirname "$0")/lib.sh"
need_scripted
plugin "$here/deadlock_programs.c" "$tmp/deadlock_programs.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
# good WHAT FILE EXPECTED...: see trace_check.py
good() {
    is "$1" "$(python3 -S "$here/trace_check.py" "${@:2}" 2>&1)" ""
}

# ---- what is in it ----
job counts <<END
version: 1
processes: {count: 3}
groups: {world: {ranks: all, backend: shm}, net: {ranks: [2, 0], backend: tcp}}
workloads:
  - {plugin: ./scripted.so, ranks: [0, 2], params: {do: "allreduce 3000 world; allreduce 200 net; barrier world"}}
  - {name: other, plugin: ./scripted.so, ranks: 1, params: {do: "allreduce 3000 world; barrier world"}}
END
run counts.yaml --trace "$tmp/trace.json"
ends "a run with --trace" 0
quiet_or_late "it prints nothing"
good "each operation of each rank is there once" trace.json complete=True 0xworldxallreduce=3000 1xworldxallreduce=3000 \
    2xworldxallreduce=3000 '*xworldxbarrier=3' 0xnetxallreduce=200 2xnetxallreduce=200 '*x*x*=9403' failed=0 dropped=0
like "ranks are processes" "$(cat trace.json)" '^\{"ph":"M","name":"process_name","pid":1,"tid":0,"args":\{"name":"rank 1","rank":1,"host":".+"\}\},$'
like "field names of PyTorch and Chakra" "$(grep -m1 '"pid":2,.*"net"}}' trace.json || grep -m1 'Group Name":"net"' trace.json)" \
    '"Collective name":"allreduce","dtype":"[a-z0-9]+","op":"sum","In msg nelems":[0-9]+,"Out msg nelems":[0-9]+,"bytes":[0-9]+,"Group size":2,"Process Group Name":"net"'

run "$top/configs/demo.yaml" --run-dir "$tmp/demo" --set logging.trace=true
ends "a run with logging.trace" 0
good "messages have both ends" demo/trace.json complete=True '*xpp/dp=0xsend=80' '*xpp/dp=0xrecv=80' messages=some
like "result.json names the file" "$(tr -d ' \n' <demo/result.json)" '"trace":\{"file":"[^"]*/demo/trace.json","operations":[0-9]+,"dropped":0,"complete":true\}'

# ---- ends of runs ----
job endless <<END
version: 1
processes: {count: 2}
workloads: [{plugin: ./scripted.so, params: {do: "endless world"}}]
END
start endless.yaml --trace "$tmp/killed.json"
within 60 eval "[ \$(wc -c <killed.json) -gt 300000 ]"
kill -KILL "$pid"
finish 60
good "the trace of a killed run opens" killed.json complete=False '*xworldx*=some'

job deadlock <<END
version: 1
processes: {count: 3}
groups: {world: {ranks: all, backend: shm}, other: {ranks: all, backend: shm}}
workloads: [{plugin: ./deadlock_programs.so, params: {program: cross}}]
END
case $home in
*tsan*) skip "a deadlock" "ThreadSanitizer runs a thread in every rank" ;;
*)
    run deadlock.yaml --trace "$tmp/deadlock.json"
    ends "a deadlock" 124
    good "the trace has the stop and the verdict" deadlock.json complete=True stop=1 verdict=1
    like "with the text" "$(cat deadlock.json)" '"name":"verdict",.*"class":"deadlock","text":"deadlock: rank'
    ;;
esac

simple restart 2 "allreduce 5 world; @1 exit 3" "on_failure: {action: restart, max_restarts: 1, backoff: 10ms}"
run restart.yaml --trace "$tmp/restart.json"
good "a restart: both attempts" restart.json complete=True 0xworldxallreduce=10 1xworldxallreduce=10 restart=1 failed=some verdict=some

# ---- what cannot be traced ----
run counts.yaml --trace "$tmp/none/trace.json"
ends "a folder that is not there" 2
like "it is named" "$(err)" "error: trace: $tmp/none/trace.json: No such file or directory"
simple nowhere 1 "" "logging: {trace: true}"
run check nowhere.yaml
ends "logging.trace without a directory" 2
like "with its place" "$(err)" "nowhere.yaml:[0-9]+:[0-9]+: error: logging.trace: the run has no directory"
simple off 1 "" "record: {entries: 0}"
run off.yaml --trace "$tmp/off.json"
ends "without a flight recorder" 2
like "why" "$(err)" "off.yaml:[0-9]+:[0-9]+: error: record.entries: --trace needs the flight recorder"
if [ -c /dev/full ]; then
    run counts.yaml --trace /dev/full
    ends "a disk that is full from the start" 2
fi
done_testing

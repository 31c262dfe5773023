#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ranks, signals, limits and other users of a host do to a run: reports that JSON or a terminal cannot take, a reason
# behind a full socket, signals at the agent, ulimit -f and -n, links in the run directory, a cache in /tmp that another user exchanges.
. "$(dirname "$0")/lib.sh"
need_scripted
plugin "$here/hostile.c" "$tmp/hostile.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
# hostile NAME DO [PAD]: one rank of that workload; its run directory is NAME.
hostile() {
    printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: ./hostile.so, params: {do: %s, pad: %s}}]\nlogging: {dir: %s}\n' \
        "$2" "${3:-0}" "$1" >"$tmp/$1.yaml"
    run run "$1.yaml"
}
# json FILE EXPRESSION: of the object d
json() { python3 -S -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }

# ---- reports ----
for pad in 0 1 2; do
    hostile cut-$pad fail $pad
    is "an error that is cut within a character: in result.json (pad $pad)" "$(json cut-$pad/result.json 'd["ranks"][0]["error"][-4:], d["verdict"]["text"] is None')" \
        "('漢...', False)"
    like "and in the events" "$(grep '"event":"failed"' cut-$pad/events.jsonl)" '"rank":0,"error":"'
done
hostile latin1 latin1
run diag latin1 --json
is "an error that is not UTF-8: diag repeats the verdict" "$(json out '(d["class"], d["text"])')" "$(json latin1/result.json '(d["verdict"]["class"], d["verdict"]["text"])')"
printf 'version: 1\nhosts: {nodes: [{name: far, transport: {command: [./far]}}]}\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\nlogging: {dir: far_run}\n' >far.yaml
printf '#!/bin/sh\nprintf "h\\303\\264te ferm\\351\\n" >&2\nexit 3\n' >far
chmod +x far
run run far.yaml
run diag far_run --json
is "so with what the command to a host has printed" "$(json out '(d["class"], d["text"])')" "$(json far_run/result.json '(d["verdict"]["class"], d["verdict"]["text"])')"
odd=$(printf 'odd\xff')
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\nlogging: {dir: odd}\n' >"$odd.yaml"
run run "$odd.yaml"
is "a job file whose name is not UTF-8: a good run" "$code $(err)" "0 "
is "with all of its files, and that name as far as JSON has it" "$(json odd/result.json 'd["job"]') $(ls odd | tr '\n' ' ')" \
    "odd? attempt-0 events.jsonl plan.json resolved.yaml result.json "
mkdir "$odd" && printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\nlogging: {dir: run}\n' >"$odd/in.yaml"
run run "$odd/in.yaml"
is "a job file in a folder whose name is not UTF-8: a good run" "$code $(ls "$odd/run" | tr '\n' ' ')" "0 attempt-0 events.jsonl plan.json result.json "
is "but YAML cannot name what is in that folder" "$(err | sed "s|.*$odd/run/|FOLDER/|")" \
    "FOLDER/resolved.yaml: Invalid or incomplete multibyte or wide character; the job continues without it"
run run "$odd.yaml" --run-dir "$odd/other"
is "only the run directory in it: all of its files" "$code $(err) $(ls "$odd/other" | tr '\n' ' ')" "0  attempt-0 events.jsonl plan.json resolved.yaml result.json "
hostile metrics metric
is "metrics that are no numbers, or have no proper name" "$(json metrics/result.json 'sorted(d["ranks"][0]["metrics"].items())')" \
    "[('hostile.bad?', 2.5), ('hostile.loss', 'NaN'), ('hostile.low', '-Infinity')]"
is "each is an event" "$(grep -c '"event":"metric"' metrics/events.jsonl)" 4
hostile forged forge
is "a log message neither controls the terminal nor begins a line of collrun's" "$(err)" "collrun: rank 0: warning: hostile: a?]0;title?b ?31m ?c
  | collrun: error: forged"
hostile late late
if grep -q unprivileged out; then
    skip "a reason behind 16 MB in the socket is read" "needs CAP_NET_ADMIN"
else
    like "a reason behind 16 MB in the socket is read" "$(err)" 'the real reason'
fi

# ---- signals at the agent ----
simple agent 2 "note up; await 1 go"
for sig in USR1 USR2 QUIT; do
    start run agent.yaml
    within 60 noted_all 2 up
    kill -$sig "$(agent_of "$pid")"
    note_test go

    finish 60
    ends "SIG$sig at the agent does not end the job" 0
done
simple own 1 "signal 10"
run run own.yaml
ends "a rank has the default actions: SIGUSR1 ends it" $((128 + 10))

# ---- limits ----
simple plain 2 "allreduce 3 world; print hello"
limited() { ( ulimit "$1" "$2" && exec timeout "$limit" "$COLLRUN" run "$3" ) >out 2>err </dev/null; code=$?; }
limited -Sf 1000 plain.yaml
ends "a soft limit of file sizes" 0
limited -f 1000 plain.yaml
like "a hard limit is named" "$(err)" 'File too large'
like "with a hint" "$(err)" '^hint: .*ulimit -Hf'
simple sizes 1 "exec grep -c '^Max file size *1024000 ' /proc/self/limits"
limited -Sf 1000 sizes.yaml
is "the ranks keep it" "$(unlabelled 0)" 1
job many <<END
version: 1
hosts: {defaults: {transport: {command: [env]}}, nodes: ["h[1-4]"]}
processes: {count: 40}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "print out; err err"}}]
logging: {dir: many}
END
limited -n 70 many.yaml
ends "more files of ranks than descriptors" 0
is "no file is lost" "$(find many -name 'rank-*' -size +0 | wc -l)" 80
unlike "and no warning is printed" "$(err)" "warning"
job far <<END
version: 1
hosts: {defaults: {transport: {command: [env]}}, nodes: ["h[01-12]"]}
processes: {count: 12}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "exec grep -c '^Max open files *32 ' /proc/self/limits"}}]
on_failure: {action: continue}
END
limited -Sn 32 far.yaml
is "more hosts than a soft limit of descriptors, which the ranks keep" "$(grep -c '^\[[0-9]*\] 1$' out)" 12

# ---- logs that a connection does not carry ----
cat >gate <<'END'
#!/usr/bin/env python3
import os, sys, time
while data := os.read(0, 65536):
    while os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    while data:
        data = data[os.write(1, data):]
END
printf '#!/bin/sh\n"$1" | %s/gate %s/hold\n' "$tmp" "$tmp" >held
chmod +x gate held
job logs <<END
version: 1
hosts: {nodes: [{name: far, transport: {command: [$tmp/held, $home/libexec/collrun/collrun-agent]}}]}
processes: {count: 1}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "note up; await 1 go; log 100000; note done"}}]
END
start run logs.yaml
within 60 noted 0 up
: >hold
agent=$(agent_of "$(pgrep -P "$pid" -x held)")
note_test go
maybe_within 2 noted 0 done # it must not be; 50 MB do not fit
check "a rank that logs waits for the connection" test -z "$(notes 0 | grep done)"
check "and its agent stays small" test "$(awk '/VmHWM/ {print $2}' "/proc/$agent/status")" -lt $((32768 * slow))
rm hold
finish 60
ends "then the job ends well" 0

# ---- job files that grow ----
big=$(head -c 100000 /dev/zero | tr '\0' x)
export big
long=$(printf '${env:big}%.0s' {1..50})
printf 'version: 1\nprocesses: {count: 1}\nenv: {set: {A: "%s"}}\nworkloads: [{plugin: hello}]\n' "$long" >grows.yaml
run check grows.yaml
ends "a value that \${env:NAME} makes larger than 4 MiB is refused" 2
like "at its place" "$(err | cut -c1-200)" '^grows.yaml:3:16: error: the value with \$\{env:NAME\} is larger than 4 MiB'
{
    printf 'version: 1\nprocesses: {count: 1}\nenv:\n  set:\n'
    printf '    A%d: "${env:big}"\n' {1..50}
    printf 'workloads: [{plugin: hello}]\n'
} >grows.yaml
run check grows.yaml
ends "so are many such values" 2
like "at the first one that is too many" "$(err | cut -c1-200)" '^grows.yaml:46:10: error: the values with \$\{env:NAME\} are larger than 4 MiB in total'
unset big
# 500,000 times 65,536 ranks: half an hour, if each were looked at.
{
    printf 'version: 1\nprocesses: {count: 65536}\nworkloads: [{plugin: hello, ranks: "0-65535'
    yes ,0-65535 | head -n 500000 | tr -d '\n'
    printf '"}]\n'
} >ranks.yaml
run check ranks.yaml
ends "rank sets that repeat themselves are refused, and soon" 2
# {host} a hundred thousand times: the command cannot be so long, but nothing overflows.
{
    printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\nhosts: {nodes: [{name: far, transport: {command: [echo, "'
    yes '{host}' | head -n 100000 | tr -d '\n'
    printf '"]}}]}\n'
} >filled.yaml
run run filled.yaml
ends "{host} many times in a transport command: the host is not reached" 127

cat >greedy.yaml <<'END'
version: 1
hosts: {nodes: [{name: far, transport: {command: [sh, greedy.sh]}}]}
processes: {count: 1}
workloads: [{plugin: hello}]
END
printf 'while printf "\\ncollrun-stage need 0\\n"; do sleep 0.1; done\n' >greedy.sh # and reads nothing
run run greedy.yaml
like "a host that asks for a file in the middle of another one" "$code $(err | tr '\n' ' ')" '^127 .*asks for a file before the end of another'
simple crowded 2 "allreduce 1 world" 'groups: {world: {backend: ucx, options: {local: tcp}}}'
if "$COLLRUN" check crowded.yaml >/dev/null 2>&1 && unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
    unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" crowded.yaml' "$COLLRUN" 2>err >out
    like "no room in /dev/shm: UCX says nothing about it, the error does" "$(err)" '/dev/shm is full'
else
    skip "no room in /dev/shm for UCX" "no UCX, or no mount namespaces"
fi

# ---- links and leftovers in the run directory ----
mkdir -p linked/attempt-0 elsewhere
for file in .result.json.new .plan.json.new events.jsonl attempt-0/rank-0.stdout; do
    ln -s "$tmp/elsewhere/${file##*/}" "linked/$file"
done
run run --run-dir linked plain.yaml
ends "links in the run directory do not stop the job" 0
is "no file behind a link is made" "$(ls -A elsewhere)" ""
like "a file that is lost is named" "$(err)" 'warning: .*linked/.*: Too many levels of symbolic links'
check "result.json is whole" json linked/result.json 'd["exit_code"]'
mkdir traced && ln -s "$tmp/elsewhere/trace" traced/trace.json
run run --run-dir traced --set logging.trace=true plain.yaml
like "nor is a trace written behind a link" "$code $(ls -A elsewhere) $(err)" "^2  .*traced/trace.json: Too many levels of symbolic links"
# A run directory from elsewhere may lead collrun report and diag to a private file.
printf 'PRIVATE-WORDS' >private
printf '{"PRIVATE-WORDS": 1}' >private.json
simple crash 2 "allreduce 3 world; @1 exit 7; hang"
run run --run-dir sent crash.yaml
for file in attempt-0/rank-0.stdout resolved.yaml bench-world.json diag/rank-1.record trace.json; do
    ln -sf "$tmp/private" "sent/$file"
done
ln -sf "$tmp/private.json" sent/report.html.new
rm sent/events.jsonl && mkfifo sent/events.jsonl
run report sent
ends "links in a foreign run directory do not stop the report" 0
unlike "no file behind a link is on the page" "$(cat sent/report.html)" PRIVATE-WORDS
like "which names what it did not read" "$(cat sent/report.html)" 'Not read.*resolved.yaml.*attempt-0/rank-0.stdout'
is "and does not write behind a link" "$(cat private.json)" '{"PRIVATE-WORDS": 1}'
run diag sent
ends "evidence with a link: diag 2" 2
like "with the reason" "$(err)" 'sent/diag/rank-1.record is a link'
mv sent/diag moved && ln -s ../moved sent/diag
run diag sent
like "so with a link in the place of a folder" "$(err)" 'sent/diag/evidence.json is a link, below a link'
ln -s sent named && run report named -o -
ends "the run directory itself may be named by a link" 0
run report linked --compare sent -o -
unlike "--compare reads no link either" "$(out)" PRIVATE-WORDS
mkdir left && printf '{"half": ' >left/.result.json.new
run run --run-dir left plain.yaml
check "so it is after a run that was killed while it wrote" json left/result.json 'd["exit_code"]'

# ---- the cache in /tmp: before each test of the script, another user exchanges a link to a folder of root's for a separate folder ----
cat >exchange.c <<'CODE'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    return argc != 3 || setgid(65534) || setuid(65534) || renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE);
}
CODE
{
    echo '[() { $exchange; builtin [ "$@"; }; collrun_print() { :; }'
    strings -n 1 "$COLLRUN" | sed -n '/^collrun_home() {$/,/^}$/p'
    echo 'collrun_home && echo taken || echo refused'
} >home.sh
check "the script that stages looks for a cache" grep -q TMPDIR home.sh
home_sh() { exchange=$1 XDG_CACHE_HOME=/dev/null TMPDIR=$tmp/sticky bash home.sh 2>&1; }
mkdir -m 1777 sticky
mkdir roots
chmod 755 "$tmp"
if [ "$(id -u)" != 0 ] || ! cc -o exchange exchange.c 2>/dev/null; then
    skip "a cache in /tmp that is exchanged" "not root, or no C compiler"
else
    mkdir -p sticky/own/objects
    ln -s "$tmp/roots" sticky/collrun-0
    chown -Rh 65534:65534 sticky/*
    if ./exchange sticky/own sticky/collrun-0; then
        exchanged="./exchange sticky/own sticky/collrun-0"
        [ ! -L sticky/collrun-0 ] || $exchanged
        first=$(home_sh "$exchanged")
        [ -L sticky/collrun-0 ] || $exchanged
        is "another user's folder is never taken for the cache in /tmp" "$first $(home_sh "$exchanged")" "refused refused"
    else
        skip "a cache in /tmp that is exchanged" "its name cannot be exchanged here"
    fi
    rm -rf sticky/*
    is "a folder that is not there is made" "$(home_sh :) $(stat -c '%a %u' sticky/collrun-0)" "taken 700 0"
fi
done_testing

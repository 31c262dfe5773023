#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C once and twice, SIGTERM, stdin, with and without a terminal.
. "$(dirname "$0")/lib.sh"
need_scripted

simple patient 3 "until-stopped" "timeouts: {grace: 60s}"
start run patient.yaml
check_within "the job is up" 60 noted_all 3 waiting
kill -INT "$pid"
finish 60
ends "SIGINT to the runner: 130" 130
check "the workloads had time to finish" noted_all 3 stopped
check "and no more than they needed" [ "$elapsed" -lt $((30000 * slow)) ]

start run patient.yaml
within 60 noted_all 3 waiting
kill -INT -- "-$pid"
finish 60
ends "Ctrl-C, as a terminal sends it to the whole process group: 130" 130
check "the workloads had time to finish, too" noted_all 3 stopped

start run patient.yaml
within 60 noted_all 3 waiting
kill -TERM "$pid"
finish 60
ends "SIGTERM: 143" 143
check "in order" noted_all 3 stopped

for signal in USR2 ALRM; do
    start run patient.yaml
    within 60 noted_all 3 waiting
    kill -"$signal" "$pid"
    finish 60
    ends "SIG$signal, which would kill collrun: 128 and its number" $((128 + $(kill -l "$signal")))
    check "in order, too" noted_all 3 stopped
    like "the message names it" "$(err)" "^collrun: interrupted by SIG$signal: stopping"
done

simple deaf 3 "ignore 15; ignore 2; note up; hang" "timeouts: {grace: 600ms}"
start run deaf.yaml
within 60 noted_all 3 up
kill -INT "$pid"
finish 60
ends "ranks that do not listen are killed after the grace time: 130" 130
check "not before" [ "$elapsed" -ge 500 ]
check "and soon after" [ "$elapsed" -lt $((30000 * slow)) ]

simple deafer 3 "ignore 15; ignore 2; note up; hang" "timeouts: {grace: 1m}"
start run deafer.yaml
within 60 noted_all 3 up
kill -INT "$pid"
within 60 grep -q interrupted err
kill -INT "$pid"
finish 60
ends "Ctrl-C twice: 130" 130
check "at once" [ "$elapsed" -lt $((30000 * slow)) ]
like "the message about the first one explains the second one" "$(err)" '(again|second|once more|twice)'

# One request that arrives as two signals does not kill the ranks.
rm -f notes.*
timeout 60 "$COLLRUN" run patient.yaml >out 2>err </dev/null &
pid=$!
children+=("$pid")
within 60 noted_all 3 waiting
kill -TERM "$pid" # as at its time-out: it signals its child, then the whole process group
finish 60
check "timeout(1), which sends two: the workloads had time to finish" noted_all 3 stopped
rm -f notes.*
nohup "$COLLRUN" run patient.yaml >out 2>err </dev/null &
pid=$!
children+=("$pid")
within 60 noted_all 3 waiting
kill -HUP "$pid"
kill -USR1 "$pid"
within 60 grep -q outside err
like "nohup: SIGHUP is ignored" "$(err)" "^collrun: ranks 0-2: outside any collective; [^ ]+: pids [0-9, ]+$"
kill -TERM "$pid"
within 60 grep -q interrupted err
kill -INT "$pid"
finish 60
ends "SIGTERM, then Ctrl-C: the first one's code" 143

simple collective 4 "note up; endless world" "timeouts: {grace: 60s}"
start run collective.yaml
within 60 noted_all 4 up
kill -INT "$pid"
finish 60
ends "Ctrl-C in the middle of operations: 130" 130
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]
sed 's/do: /init: "note up; @1 hang", do: /' collective.yaml >starting.yaml
sed -i 's/grace: 60s/grace: 300ms/' starting.yaml
start run starting.yaml
within 60 noted_all 4 up
check_within "SIGUSR1 while the job starts" 60 status_shows "rank 1: .*in a workload's init"
kill -INT "$pid"
finish 60
ends "Ctrl-C while the job starts: 130" 130

job mute <<'END'
version: 1
processes: {count: 2}
hosts:
  nodes: [{name: here, slots: 1, transport: local}, {name: mute, slots: 1, transport: {command: [sh, -c, "sleep 60"]}}]
workloads: [{plugin: hello}]
END
start run mute.yaml
within 60 pgrep -P "$pid" sh
check_within "before all hosts have answered: it names them" 60 status_shows 'no answer yet from host mute'
kill -INT "$pid"
finish 60
ends "Ctrl-C then: 130" 130

# ---- stdin ----
simple reads 2 "read"
run run reads.yaml <&-
ends "stdin is /dev/null" 0
like "ranks read its end" "$(notes 1)" 'read 0'
rm -f notes.*
timeout "$limit" "$COLLRUN" run reads.yaml >out 2>err <&-
code=$?
ends "stdin is closed" 0
like "ranks still get something to read the end of" "$(notes 0)" 'read 0'
timeout "$limit" "$COLLRUN" run reads.yaml 2>err </dev/null >&-
code=$?
ends "stdout is closed, and ranks write nothing to it: 0" 0
echo "print" | timeout "$limit" "$COLLRUN" run reads.yaml >out 2>err
code=$?
ends "stdin is a pipe" 0

# ---- a terminal ----
# terminal COMMAND: its whole screen in $tmp/screen
terminal() {
    rm -f screen
    # One terminal line at a time; script(1) passes the exit code on.
    TERM=xterm timeout -k 5 "$limit" script -qefc "$1" screen </dev/null >/dev/null 2>&1
    code=$?
}
if command -v script >/dev/null; then
    simple quick 2 "print hello"
    terminal "$COLLRUN run quick.yaml"
    ends "on a terminal: 0" 0
    is "a quick job shows the ranks' lines alone" "$(tr -d '\r' <screen | grep -v '^Script ' | grep -v '^$' | sort)" \
        "$(printf '[%d] hello\n' 0 1)"
    simple lengthy 2 "allreduce 10 world; await 1 seen; print hello"
    terminal "$COLLRUN run lengthy.yaml" &
    within 60 grep -q 'ranks up' screen
    note_test seen
    wait $!
    like "a longer one shows a status line" "$(tr '\r' '\n' <screen)" '2(/2)? .*(up|rank)|rank.*2'
    like "and wipes it" "$(tr '\r' '\n' <screen | cat -v)" '\^\[\[[0-9]*[KJ]'
    NO_COLOR=1 terminal "$COLLRUN run bad.yaml"
    printf 'version: 2\n' >bad.yaml
    terminal "$COLLRUN run bad.yaml"
    like "errors have colour on a terminal" "$(cat -v screen)" '\^\[\[[0-9;]*m'
    terminal "env NO_COLOR=1 $COLLRUN run bad.yaml"
    unlike "NO_COLOR takes it away" "$(cat -v screen)" '\^\[\[[0-9;]*m'
    terminal "$COLLRUN run bad.yaml --no-color"
    unlike "so does --no-color" "$(cat -v screen)" '\^\[\[[0-9;]*m'
else
    skip "on a terminal" "script(1) is not installed"
fi
run run bad.yaml
unlike "no colour without a terminal" "$(cat -v err)" '\^\['
done_testing

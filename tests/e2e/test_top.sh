#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun top: what it prints without a terminal; in a terminal (tmux) what is on the screen, keys, other sizes, and how it leaves the
# terminal when it is quit, killed and suspended, and when the job ends.
. "$(dirname "$0")/lib.sh"
need_scripted

# ---- without a terminal ----
simple busy 3 'note up; @1 advance 1 10 \e[31mepoch\a; until-stopped' "name: study
timeouts: {stall: 1s, grace: 300ms}"
"$COLLRUN" busy.yaml --run-dir "$tmp/busy" >busy.out 2>busy.err </dev/null &
job_pid=$!
children+=("$job_pid")
within 60 noted_all 3 up
is "only the user may connect" "$(stat -c '%a %F' busy/top.sock)" "600 socket"
run top busy
ends "it prints one state" 0
like "the job" "$(out)" '^study  [0-9a-f-]+  [0-9]+s  3/3 ranks up$'
like "progress; escape sequences of a rank are harmless" "$(out)" '^scripted 100% \?\[31mepoch\?$'
like "groups" "$(out)" '^world +3  shm '
like "ranks" "$(out)" '^ +2  [^ ]+ +[0-9]+  running '
unlike "no escape sequence at all" "$(cat -v out)" '\^\['
measured() { "$COLLRUN" top busy --json >state.json && python3 -S -c 'import json, sys
d = json.load(open("state.json"))
sys.exit(not all(r["cpu"] is not None and r["memory"] > 100000 for r in d["ranks"]) or d["groups"][0]["name"] != "world")'; }
# The rate needs two measurements, a second apart, while there is a client.
python3 -S -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect("busy/top.sock")
time.sleep(60)' &
idle=$!
children+=("$idle")
check_within "CPU and memory of each rank are measured, as JSON" 60 measured
kill "$idle"

# A client stays connected, and sees who waits for whom, whatever `stall` is.
simple late 2 "@1 until-stopped; barrier world" "timeouts: {stall: off, grace: 300ms}"
"$COLLRUN" late.yaml --run-dir "$tmp/late" >/dev/null 2>&1 </dev/null &
late_pid=$!
children+=("$late_pid")
check_within "its socket" 60 test -S late/top.sock
python3 -S -c 'import json, socket
s = socket.socket(socket.AF_UNIX)
s.connect("late/top.sock")
s.settimeout(30)
for line in s.makefile():
    if json.loads(line)["waits"]:
        print(json.loads(line)["waits"])
        break' >waits
is "who waits for whom" "$(cat waits)" "1/2 wait in world#1 for rank 1"
# A killed runner leaves the socket; the next `collrun top` removes it.
kill -KILL "$late_pid"
wait "$late_pid" 2>/dev/null
run top late
like "the runner was killed: no run is in progress" "$code $(err)" '^2 .*no run is in progress in late'
check "its socket is removed" test ! -e late/top.sock

# Ranks that cannot be started, for want of descriptors, are not up; the others are for a while after the job has failed.
job few <<'END'
version: 1
processes: {count: 20}
timeouts: {grace: 100s}
workloads: [{plugin: hello}]
END
(ulimit -n 60 && exec "$COLLRUN" few.yaml --run-dir "$tmp/few" --wrap all sh -c 'exec sleep 100') >few.out 2>few.err </dev/null &
few_pid=$!
children+=("$few_pid")
few_counts() { "$COLLRUN" top few --json 2>/dev/null >few.json && python3 -S -c 'import json, sys
d = json.load(open("few.json"))
states = [r["state"] in ("exited", "killed") for r in d["ranks"] if r["pid"] or r["state"] == "exited"]
print(d["up"], states.count(False))
sys.exit(len(states) < 20 or True not in states)' >counts; }
check_within "some ranks run, and the others cannot be started" 60 few_counts
check "the former are up ($(cat counts))" [ "$(cut -d' ' -f1 counts)" = "$(cut -d' ' -f2 counts)" ]
kill -INT "$few_pid" && kill -INT "$few_pid"

# ---- in a terminal ----
if ! command -v tmux >/dev/null; then
    skip "the screen" "tmux is missing (make deps)"
    done_testing
fi
export TMUX_TMPDIR=$tmp LC_ALL=C.UTF-8
unset TMUX
terminal() { tmux -L top -f /dev/null "$@"; }
trap 'terminal kill-server 2>/dev/null; cleanup' EXIT
PS1='ready> ' terminal new-session -d -x 100 -y 20 "env PS1='ready> ' NO_COLOR=1 bash --norc --noprofile -i"
typed() { terminal send-keys "$@"; }
seen() { terminal capture-pane -p >screen && grep -qE -- "$1" screen; }
unseen() { ! seen "$1"; }
# top_pid: the command on the terminal
top_pid() { pgrep -f "^$COLLRUN top busy\$" | head -n 1; }
check_within "the shell is ready" 60 seen '^ready>'
typed 'echo before; stty -g >tty.before' Enter
check_within "a line of the shell" 60 seen '^before$'
typed "$COLLRUN top busy" Enter
check_within "the screen is drawn" 60 seen '^study .* 3/3 ranks up$'
check "and nothing else is on it" unseen 'before|ready'
seconds() { seen '^study ' && sed -n 's/^study .*  \([0-9]*\)s  .*/\1/p' screen; }
first=$(seconds)
later() { [ "$(seconds)" -gt "$first" ]; }
check_within "it is drawn again" 60 later
terminal resize-window -t 0 -x 30 -y 9
check_within "a smaller terminal: the rest is cut, and ranks are counted" 60 seen '^ranks 0-0 of 3: up and down sc$'
typed Down
check_within "down: the next ranks" 60 seen '^ranks 1-1 of 3'
typed Up
check_within "up: the first ones" 60 seen '^ranks 0-0 of 3'
terminal resize-window -t 0 -x 100 -y 20
check_within "a larger one" 60 seen '^ +2  [^ ]+ +[0-9]+  running '
typed C-z
check_within "Ctrl-Z: the shell is back, with its screen" 60 seen 'Stopped'
check "as it was" seen '^before$'
typed 'fg' Enter
check_within "fg: the screen is back" 60 seen '^study .* 3/3 ranks up$'
check "all of it" unseen 'before|Stopped'
typed q
check_within "q: the shell is back" 60 seen '^before$'
# left HOW: the terminal's settings are those of before
left() {
    rm -f tty.after
    typed 'stty -g >tty.after' Enter
    within 60 test -s tty.after
    check "$1: the terminal is as it was" cmp -s tty.before tty.after
}
left "q"
for how in TERM HUP INT; do
    typed "clear; $COLLRUN top busy" Enter
    check_within "SIG$how: it runs" 60 seen '^study .* 3/3 ranks up$'
    kill -$how "$(top_pid)"
    check_within "SIG$how: the shell is back" 60 seen '^ready>'
    typed 'echo code $?' Enter
    check_within "SIG$how: its exit code" 60 seen "^code $((128 + $(kill -l $how)))\$"
    left "SIG$how"
done
typed "clear; $COLLRUN top busy" Enter
check_within "it runs once more" 60 seen '^study .* 3/3 ranks up$'
typed C-c
check_within "Ctrl-C: the shell is back" 60 seen '^ready>'
left "Ctrl-C"

# ---- a client that does not read, and the end of the job ----
python3 -S -c 'import socket, time
s = socket.socket(socket.AF_UNIX)
s.connect("busy/top.sock")
time.sleep(60)' &
children+=("$!")
typed "clear; $COLLRUN top busy" Enter
check_within "it runs beside a client that does not read" 60 seen '^study .* 3/3 ranks up$'
kill -INT "$job_pid"
pid=$job_pid
finish 60
ends "the job ends" 130
check_within "top ends with it" 60 seen '^ready>'
left "the end of the job"
check "the socket is removed" test ! -e busy/top.sock
done_testing

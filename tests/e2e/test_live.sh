#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The live line on a real (pseudo) terminal: when it comes, what it says, that it fits, that it goes; where it never is; and keys: Ctrl-C,
# Ctrl-S, Ctrl-Z and fg.
. "$(dirname "$0")/lib.sh"
need_actor
cc -std=c11 -O1 "$here/pty.c" -o pty -lutil || {
    echo "Bail out! the terminal does not compile"
    exit 1
}
export TERM=xterm
mkfifo keys
# terminal COLUMNS COMMAND...: on a terminal in the background, where `typed TEXT` types; leaves screen.raw and screen.log
terminal() {
    local columns=$1
    shift
    rm -f notes.* screen.*
    timeout -k 5 70 ./pty "$columns" screen keys "$@" </dev/null &
    pid=$!
    children+=("$pid")
}
typed() { printf '%b' "$1" >keys; }
ended() {
    finish 60
    tr '\r' '\n' <screen.raw >err # what not_ok shows
}
# tty COLUMNS ARGUMENTS...: collrun on a terminal, until it ends; sets $code
tty() {
    terminal "$1" "$COLLRUN" run "${@:2}"
    ended
}
shown() { grep -q -- "$1" screen.raw; }
# drawn: each live line as it was drawn, without its escape codes
drawn() { tr '\r' '\n' <screen.raw | sed -n 's/\x1b\[K$//p' | grep 'ranks up'; }
drawn_at() { grep -m "$1" 'ranks up' screen.log | tail -n 1 | cut -d' ' -f1; }
# rest: what a person sees in the end: every \r...\x1b[K takes a line away
rest() { sed 's/\r[^\r]*\x1b\[K//g; s/\r$//' screen.raw; }

job busy <<END
version: 1
processes: {count: 4}
groups: {half: {ranks: 0-1, backend: gloo}}
workloads:
  - {name: train, plugin: ./actor.so, ranks: 0-1, groups: [world, half], params: {dir: "$tmp", do: "advance 35 100 epoch 1; print trained"}}
  - {name: eval, plugin: ./actor.so, ranks: 2-3, params: {dir: "$tmp", do: "advance 10 100 tests; sleep 1500; print evaluated"}}
  - {name: beat, plugin: ./actor.so, background: true, groups: [half], ranks: 0-1, params: {do: "endless half"}}
END
tty 120 busy.yaml
ends "on a terminal" 0
check "it comes after a second, not before ($(drawn_at 1) ms)" test "$(drawn_at 1)" -ge 1000
check "and not much later" test "$(drawn_at 1)" -lt $((2000 * slow))
like "all ranks are up" "$(drawn)" '^1s \| 4/4 ranks up \| '
like "progress and what is left of the first workload" "$(drawn)" '\| train [0-9]+% epoch 1, [12]s left'
like "the second one is on the line, too" "$(drawn)" '\| eval [0-9]+% tests'
like "the rates of a group" "$(drawn)" '\| half [0-9.]+( k)? op/s [0-9.]+( [kMG])?B/s'
check "it is redrawn several times a second" test "$(drawn | wc -l)" -ge 6
is "in the end only the ranks' lines are left" "$(rest | sort)" "$(printf '[%d] %s\n' 0 trained 1 trained 2 evaluated 3 evaluated)"
like "what the ranks print stands on lines of its own" "$(tr '\r' '\n' <screen.raw | cat -v)" '^(\^\[\[K)?\[2\] evaluated$'
check "and is not written over a line that is not wiped" test "$(grep -c 'ranks up[^\]*\[[0-9]\] ' screen.log)" = 0

# ---- narrow ----
tty 40 busy.yaml
check "40 columns: no line is wider than 39" test "$(drawn | awk 'length > 39' | wc -l)" = 0
like "it is cut, and says so" "$(drawn)" '^.{38}>$'
tty 10 busy.yaml
check "10 columns: it still fits" test "$(drawn | awk 'length > 9' | wc -l)" = 0

# ---- where it is not ----
simple quick 2 "print hello"
tty 80 quick.yaml
unlike "a quick job shows none" "$(cat -v screen.raw)" 'ranks up|\^\['
simple slower 2 "sleep 1600; print hello"
tty 80 -q slower.yaml
unlike "--quiet shows none" "$(cat -v screen.raw)" 'ranks up|\^\['
TERM=dumb tty 80 slower.yaml
unlike "nor does TERM=dumb" "$(cat -v screen.raw)" 'ranks up|\^\['
run run slower.yaml
quiet "nor what is no terminal"

# ---- a failure, and keys ----
simple late 3 "sleep 1500; @1 err woe; @1 exit 3; hang" "timeouts: {grace: 300ms}"
tty 80 late.yaml
ends "a job that fails under the line" 3
unlike "nothing of the line is left" "$(rest)" 'ranks up'
like "the verdict stands alone" "$(rest | sed 's/\x1b\[[0-9;]*m//g')" '^late.yaml:4:14: error: rank 1 .*returned 3'
simple patient 2 "until-stopped" "timeouts: {grace: 5s}"
terminal 80 "$COLLRUN" run patient.yaml
check "Ctrl-C: the line is there" within 10 shown 'ranks up'
typed '\x03'
ended
ends "Ctrl-C typed on the terminal: 130" 130
check "the workloads had their time" noted_all 2 stopped
unlike "and nothing of the line is left" "$(rest)" 'ranks up'
# Ctrl-S holds the screen. The job does not wait for it; only what has to be shown does, until Ctrl-Q.
simple held 2 "sleep 2500; note done; print hello"
terminal 80 "$COLLRUN" run held.yaml
within 10 shown 'ranks up'
typed '\x13'
check "Ctrl-S does not hold the job" within 10 noted_all 2 done
count=$(drawn | wc -l)
check "and nothing is drawn meanwhile ($count lines)" test "$count" -le 4
typed '\x11'
ended
ends "Ctrl-Q: it ends" 0
like "and what was held is shown" "$(rest)" '^\[1\] hello'

# ---- job control, in a shell on the terminal ----
simple lasting 3 "pid; note up; until-stopped" "timeouts: {grace: 5s}"
PS1='ready> ' terminal 200 bash --norc --noprofile -i
within 10 shown 'ready>'
typed "$COLLRUN run lasting.yaml\\n"
check "a job from a shell" within 20 noted_all 3 up
state_of() { sed 's/.*) //; s/ .*//' "/proc/$(sed -n 's/^pid //p' "notes.$1")/stat"; }
all_in() { # STATES
    local r
    for r in 0 1 2; do [[ $(state_of $r) == [$1] ]] || return 1; done
}
typed '\x1a'
check "Ctrl-Z: the shell is back" within 10 shown 'Stopped'
check "Ctrl-Z: every rank is stopped" within 10 all_in T
typed 'fg; echo code $?\n'
check "fg: every rank goes on" within 10 all_in RSD
typed '\x03'
check "then Ctrl-C ends it" within 10 shown 'code 130'
check "in order" noted_all 3 stopped
typed 'exit\n'
ended
done_testing

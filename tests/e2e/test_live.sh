#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The live line on a real (pseudo) terminal: when it comes, what it says, that it fits, that it goes; where it never is; and keys: Ctrl-C,
# Ctrl-S, Ctrl-Z and fg.
. "$(dirname "$0")/lib.sh"
need_scripted
cc -std=c11 -O1 "$here/pty.c" -o pty -lutil || {
    echo "Bail out! the terminal does not compile"
    exit 1
}
export TERM=xterm
# terminal SCREEN COLUMNS COMMAND...: on a terminal in the background, where `typed TEXT` types; leaves SCREEN.raw and SCREEN.log, which
# is what the functions below look at
terminal() {
    screen=$1
    rm -f notes.*
    mkfifo "$screen.keys"
    timeout -k 5 70 ./pty "$2" "$screen" "$screen.keys" "${@:3}" </dev/null &
    pid=$!
    children+=("$pid")
    of[$screen]=$pid
}
declare -A of
typed() {
    local before
    within 60 test -e "$screen.log" # made when the keys are read
    before=$(keystrokes)
    printf '%b' "$1" 1<>"$screen.keys"
    within 60 more_keystrokes "$before"
}
keystrokes() { grep -c ' typed$' "$screen.log"; }
more_keystrokes() { [ "$(keystrokes)" -gt "$1" ]; }
# ended [SCREEN]: waits for the command there; sets $code
ended() {
    screen=${1:-$screen} pid=${of[${1:-$screen}]}
    finish 60
    tr '\r' '\n' <"$screen.raw" >err # what not_ok shows
}
# tty SCREEN COLUMNS ARGUMENTS...: collrun on a terminal
tty() { terminal "$1" "$2" "$COLLRUN" run "${@:3}"; }
shown() { grep -q -- "$1" "$screen.raw"; }
# drawn: each live line as it was drawn, without its escape codes
drawn() { tr '\r' '\n' <"$screen.raw" | sed -n 's/\x1b\[K$//p' | grep 'ranks up'; }
drawn_at() { grep -m "$1" 'ranks up' "$screen.log" | tail -n 1 | cut -d' ' -f1; }
# rest: what a person sees in the end: every \r...\x1b[K takes a line away
rest() { sed 's/\r[^\r]*\x1b\[K//g; s/\r$//' "$screen.raw"; }
# runner: the collrun on the terminal
runner() { pgrep -P "$(pgrep -P "$pid")"; }

job busy <<END
version: 1
processes: {count: 4}
groups: {half: {ranks: 0-1, backend: gloo}, train: {ranks: 0-1}, eval: {ranks: 2-3}}
workloads:
  - {name: train, plugin: ./scripted.so, ranks: 0-1, groups: [train], params: {dir: "$tmp", do: "advance 35 100 epoch 1; print trained"}}
  - {name: eval, plugin: ./scripted.so, ranks: 2-3, groups: [eval], params: {dir: "$tmp", do: "advance 25 100 tests; print evaluated"}}
  - {name: beat, plugin: ./scripted.so, background: true, groups: [half], ranks: 0-1, params: {do: "endless half"}}
END
simple quick 2 "print hello"
simple slower 2 "sleep 1600; print hello"
simple late 3 "await 1 drawn; @1 err woe; @1 exit 3; hang" "timeouts: {grace: 300ms}"
# The jobs without keys run at the same time.
tty busy 120 busy.yaml
tty narrow 40 busy.yaml
tty tiny 10 busy.yaml
tty quick 80 quick.yaml
tty quiet 80 -q slower.yaml
TERM=dumb tty dumb 80 slower.yaml
tty late 80 late.yaml
within 60 shown 'ranks up'
note_test drawn

ended busy
ends "on a terminal" 0
check "it comes after a second, not before ($(drawn_at 1) ms)" test "$(drawn_at 1)" -ge 1000
check "and not much later" test "$(drawn_at 1)" -lt $((10000 * slow))
like "all ranks are up" "$(drawn)" '^1s \| 4/4 ranks up \| '
like "progress and what is left of the first workload" "$(drawn)" '\| train [0-9]+% epoch 1, [12]s left'
like "the second one is on the line, too" "$(drawn)" '\| eval [0-9]+% tests'
like "the rates of a group" "$(drawn)" '\| half [0-9.]+( k)? op/s [0-9.]+( [kMG])?B/s'
check "it is redrawn several times a second" test "$(drawn | wc -l)" -ge 6
# On a busy machine, one of the two ranks with many operations is late.
is "in the end only the ranks' lines are left" "$(rest | grep -vE '^collrun: rank [01] was last in ' | sort)" "$(printf '[%d] %s\n' 0 trained 1 trained 2 evaluated 3 evaluated)"
like "output of ranks begins on a new line" "$(tr '\r' '\n' <busy.raw | cat -v)" '^(\^\[\[K)?\[2\] evaluated$'
check "and is not written over a line that is not wiped" test "$(grep -c 'ranks up[^\]*\[[0-9]\] ' busy.log)" = 0

# ---- narrow ----
ended narrow
check "40 columns: no line is wider than 39" test "$(drawn | awk 'length > 39' | wc -l)" = 0
like "it is cut, and says so" "$(drawn)" '^.{38}>$'
ended tiny
check "10 columns: it still fits" test "$(drawn | awk 'length > 9' | wc -l)" = 0

# ---- where it is not ----
ended quick
unlike "a quick job shows none" "$(cat -v "$screen.raw")" 'ranks up|\^\['
ended quiet
unlike "--quiet shows none" "$(cat -v "$screen.raw")" 'ranks up|\^\['
ended dumb
unlike "nor does TERM=dumb" "$(cat -v "$screen.raw")" 'ranks up|\^\['
run run slower.yaml
quiet "nor what is no terminal"

# ---- a failure, and keys ----
ended late
ends "a job that fails under the line" 3
unlike "nothing of the line is left" "$(rest)" 'ranks up'
like "the verdict stands alone" "$(rest | sed 's/\x1b\[[0-9;]*m//g')" '^late.yaml:4:14: error: rank 1 .*returned 3'
simple patient 2 "until-stopped" "timeouts: {grace: 5s}"
tty keys 80 patient.yaml
check_within "Ctrl-C: the line is there" 60 shown 'ranks up'
typed '\x03'
ended
ends "Ctrl-C typed on the terminal: 130" 130
check "the workloads had their time" noted_all 2 stopped
unlike "and nothing of the line is left" "$(rest)" 'ranks up'
# Ctrl-S holds the screen. The job does not wait for it; only what has to be shown does, until Ctrl-Q.
simple held 2 "await 1 held; advance 40 100 steps; note done; print hello"
tty held 80 held.yaml
within 60 shown 'ranks up'
typed '\x13'
before=$(drawn | wc -l)
note_test held
check_within "Ctrl-S does not hold the job" 60 noted_all 2 done
count=$(($(drawn | wc -l) - before))
check "and nothing is drawn meanwhile ($count lines)" test "$count" -le 5 # of 20: some may have been on their way
typed '\x11'
ended
ends "Ctrl-Q: it ends" 0
like "and what was held is shown" "$(rest)" '^\[1\] hello'

# A terminal that accepts nothing, from the start: the job fails as on any other; its output waits.
simple blocked 3 "note up; @1 await 1 asked; @1 err woe; @1 exit 3; spew 20000 80" "timeouts: {grace: 500ms}
logging: {dir: \"blocked\"}"
tty blocked 80 blocked.yaml
typed '\x13'
within 60 noted_all 3 up
kill -USR1 "$(runner)"
note_test asked
check_within "a held terminal: a failed job ends" $((4 * slow)) test -s blocked/result.json
like "with a verdict" "$(cat blocked/result.json)" '^  "exit_code": 3,'
typed '\x11'
ended
ends "Ctrl-Q: its exit code" 3
like "nothing is lost: the verdict" "$(rest)" 'rank 1 .*returned 3'
is "comes after all that the ranks printed" "$(rest | tail -n +"$(rest | grep -n -m1 error: | cut -d: -f1)" | grep -c xxx)" 0

# One whose other end takes nothing: a stopped terminal emulator, a slow connection.
simple talking 3 "note up; spew 1000000 80" "timeouts: {grace: 500ms}"
tty frozen 80 talking.yaml
within 60 noted_all 3 up
emulator=$(pgrep -P "$pid") collrun=$(runner)
kill -STOP "$emulator"
within 60 stopped "$emulator"
kill -TERM "$collrun"
check_within "a frozen terminal does not keep it from ending" 60 gone_or_zombie "$collrun"
kill -CONT "$emulator"
ended
ends "SIGTERM there: 143" 143

# One that goes away, with its shell: both send SIGHUP.
PS1='ready> ' terminal gone 80 bash --norc --noprofile -i
within 60 shown 'ready>'
typed "$COLLRUN run patient.yaml\\n"
within 60 noted_all 2 waiting
emulator=$(pgrep -P "$pid")
collrun=$(pgrep -P "$(pgrep -P "$emulator")")
kill -KILL "$emulator"
check_within "a terminal that is closed ends the job" 60 gone_or_zombie "$collrun"
check "in order" noted_all 2 stopped
wait "$pid" 2>/dev/null

# ---- job control, in a shell on the terminal ----
simple lasting 3 "pid; note up; until-stopped" "timeouts: {grace: 5s}"
PS1='ready> ' terminal shell 200 bash --norc --noprofile -i
within 60 shown 'ready>'
typed "$COLLRUN run lasting.yaml\\n"
check_within "a job from a shell" 60 noted_all 3 up
state_of() { state "$(sed -n 's/^pid //p' "notes.$1")"; }
all_in() { # STATES
    local r
    for r in 0 1 2; do [[ $(state_of $r) == [$1] ]] || return 1; done
}
typed '\x1a'
check_within "Ctrl-Z: the shell is back" 60 shown 'Stopped'
check_within "Ctrl-Z: every rank is stopped" 60 all_in T
typed 'fg; echo code $?\n'
check_within "fg: every rank goes on" 60 all_in RSD
typed '\x03'
check_within "then Ctrl-C ends it" 60 shown 'code 130'
check "in order" noted_all 3 stopped
typed 'exit\n'
ended
# Lines that were held back to be folded are written by a timer: the live line goes before them, and comes again.
simple folded 2 "sleep 1600; print same; sleep 600; @1 print alone; sleep 600" "logging: {console: {fold: true}}"
tty folded 100 folded.yaml
ended
ends "folded lines beside the live line" 0
like "the live line was there" "$(drawn)" '2/2 ranks up'
is "the lines are whole" "$(rest | sed 's/^\[0-1\]/[0] same\n[1]/' | sort)" "$(printf '[%s\n' '0] same' '1] alone' '1] same')"

done_testing

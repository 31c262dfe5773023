#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ranks print: whole lines with labels, every byte, in order, nothing lost; the two streams apart.
# shellcheck disable=SC2016
. "$(dirname "$0")/lib.sh"
need_scripted

simple hello 4 "print hello from here"
run run hello.yaml
is "one labelled line per rank" "$(sort out)" "$(printf '[%d] hello from here\n' 0 1 2 3)"

simple streams 2 "print to stdout; err to stderr"
run run streams.yaml
is "stdout has what went to stdout" "$(sort out)" "$(printf '[%d] to stdout\n' 0 1)"
is "stderr has what went to stderr" "$(sort err)" "$(printf '[%d] to stderr\n' 0 1)"

simple empty 1 "print ; print a; print "
run run empty.yaml
is "empty lines stay" "$(sed 's/ *$//' out)" "$(printf '[0]\n[0] a\n[0]')"

simple bare 2 "bare no newline at the end"
run run bare.yaml
is "a last line without newline is ended" "$(sort out)" "$(printf '[%d] no newline at the end\n' 0 1)"

simple pieces 2 "bare one ; bare two ; sleep 50; bare three; print"
run run pieces.yaml
is "a line written in pieces stays one line" "$(sort out | sed 's/ *$//')" "$(printf '[%d] one two three\n' 0 1)"

simple bytes 1 "hex 41 00 42 ff fe 1b 5b 33 31 6d 0d 07 c3 a4 80 43 0a"
run run bytes.yaml
is "bytes pass through unchanged" "$(od -An -tx1 out | tr -d ' \n')" "5b305d20410042fffe1b5b33316d0d07c3a480430a"

simple long 3 "long 65000"
run run long.yaml
is "lines of 65,000 bytes stay whole" "$(awk '{print length($0)}' out | sort -n | tr '\n' ' ')" "65004 65004 65004 "
simple longer 2 "long 3000000"
run run longer.yaml
is "of lines of 3 MB nothing is lost (rank 0)" "$(tr -cd a <out | wc -c)" 3000000
is "of lines of 3 MB nothing is lost (rank 1)" "$(tr -cd b <out | wc -c)" 3000000

# 4 ranks x 25,000 lines of 100 bytes.
simple flood 4 "spew 25000 100"
run run flood.yaml
ends "10 MB of output" 0
is "all of it arrives" "$(wc -l <out)" 100000
is "every line is whole, labelled and in its rank's order" "$(awk '
    { label = "[" $2 "]" }
    $1 != label || $3 != next_line[$2]++ || length($0) != 103 { bad++ }
    END { print bad + 0 }' out)" 0
# held DIR: without a reader, collrun has buffered what it can, about 1.2 MB, and the ranks of that run block
held() { [ "$(cat "$1"/attempt-0/*.stdout | wc -c)" -gt 1000000 ]; }
simple slow 2 "spew 20000 100" "logging: {dir: \"slow\"}"
timeout "$limit" "$COLLRUN" run slow.yaml 2>err </dev/null | { maybe_within 10 held slow && : >was_held; cat; } >out
check "collrun holds what a late reader has not read yet" test -e was_held
is "the late reader gets everything" "$(wc -l <out)" 40000
simple closed 2 "spew 20000 100"
timeout "$limit" "$COLLRUN" run closed.yaml 2>err </dev/null | head -n 1 >out
is "a reader that leaves early: 128 + SIGPIPE" "${PIPESTATUS[0]}" 141

# Lines of one byte and of none, in large writes and each in a write: all arrive, with time and label, and a reader that begins late bounds
# what collrun keeps.
cat >tiny.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **words) /* TEXT COUNT: so many lines, each in a write */
{
    char line[8];
    int len = snprintf(line, sizeof line, "%s\n", words[1]);
    for (long i = atol(words[2]); n == 3 && i > 0; i--)
        if (write(1, line, (size_t)len) != len)
            return 1;
    return 0;
}
END
cc -O1 tiny.c -o tiny
# stands DIR: the ranks of that run have stopped printing
stands() { local a; a=$(cat "$1"/attempt-0/*.stdout | wc -c) && sleep 0.3 && [ "$a" -gt 100000 ] && [ "$(cat "$1"/attempt-0/*.stdout | wc -c)" = "$a" ]; }
lines=${LINES_OF_ONE:-300000}
job tiny <<END
version: 1
processes: {count: 2}
workloads:
  - {name: many, ranks: 0, command: [sh, -c, "yes a | head -n $lines; yes '' | head -n $lines; touch sent"]}
  - {name: each, ranks: 1, command: [sh, -c, "./tiny a $lines; ./tiny '' $lines"]}
logging: {console: {timestamps: true}, dir: tiny.d}
END
timeout -k 5 "$limit" sh -c 'echo $$ >runner && exec "$0" run tiny.yaml' "$COLLRUN" 2>err </dev/null | {
    maybe_within 20 stands tiny.d && [ ! -e sent ] && awk '/VmHWM/ {print $2}' "/proc/$(cat runner)/status" >peak
    cat
} >out
is "lines of one byte and of none: all arrive" "$(grep -oE '^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} \[[01]\] a?$' out | cut -d' ' -f2- | sort | uniq -c | tr -s ' ' | tr '\n' ';')" \
    " $lines [0] ; $lines [0] a; $lines [1] ; $lines [1] a;"
is "none differs" "$(wc -l <out)" $((4 * lines))
for r in 0 1; do
    check "nor is one lost in the file of rank $r" cmp -s tiny.d/attempt-0/rank-$r.stdout <(yes a | head -n "$lines"; yes '' | head -n "$lines")
done
case $home in
*asan* | *tsan*) ;;
*) check "the ranks wait for the reader, and collrun keeps little ($(cat peak) KiB)" test "$(cat peak)" -lt 60000 ;;
esac

# 200,000 log messages of 500 bytes, 100 MB, which are not printed: collrun keeps none of them.
simple logs 1 "log 200000; note logged; sleep 60000"
start run logs.yaml
check_within "log messages arrive" 60 grep -qs logged "$tmp/notes.0"
peak=$(awk '/VmHWM/ {print $2}' "/proc/$pid/status")
kill -INT "$pid"
finish 60
case $home in
*asan* | *tsan*) echo "# memory is not measured in a sanitized build" ;;
*) check "collrun does not keep them ($peak KiB at most)" test "$peak" -lt 60000 ;;
esac

# ---- logging.console ----
simple two 4 "print line" "logging: {console: {ranks: [1, 3]}}"
run run two.yaml
is "console.ranks chooses who is shown" "$(sort out)" "$(printf '[1] line\n[3] line')"
simple label 2 "print line" "logging: {console: {label: \"<{rank}/{local_rank}> \"}}"
run run label.yaml
is "console.label is a template" "$(sort out | tr -s ' ')" "$(printf '<0/0> line\n<1/1> line')"
simple nolabel 2 "hex 41 42 0a 43" "logging: {console: {label: \"\"}}"
run run nolabel.yaml
is "an empty label leaves the lines as they are" "$(sort out)" "$(printf 'AB\nAB\nC\nC')"
simple stamp 1 "print line" "logging: {console: {timestamps: true}}"
run run stamp.yaml
like "console.timestamps adds the time" "$(out)" '[0-9]{2}:[0-9]{2}:[0-9]{2}.*line$'
# ---- logging.console.fold ----
fold() { simple "$1" "$2" "$3" "logging: {dir: \"$1.d\", console: {fold: true$4}}"; }
# folds NAME LINES: runs it until its ranks have written within the window, which a busy machine may prevent, a few times at most
folds() {
    local i
    for i in 1 2 3 4 5; do
        run run "$1.yaml"
        [ "$(wc -l <out)" != "$2" ] || break
    done
}
fold fold 8 "barrier world; print same; print same; err err; @0 print zero; bare rest" ""
folds fold 4
ends "console.fold: a job" 0
is "equal lines of all ranks are shown once, also an unfinished one, and those of one rank as ever" "$(out)" \
    "$(printf '[%s\n' '0-7] same' '0-7] same' '0] zero' '0-7] rest')"
is "so are those of stderr" "$(err)" "[0-7] err"
is "the files have what each rank wrote" "$(cat fold.d/attempt-0/rank-6.stdout)" "$(printf 'same\nsame\nrest')"
fold foldsome 8 "barrier world; @1 print some; @2 print some; @3 print some; @6 print some" ""
folds foldsome 1
is "and a line of some with their set" "$(out)" "[1-3,6] some"
like "resolved.yaml has the key" "$(cat fold.d/resolved.yaml)" 'fold"?: true'
fold foldlabel 4 "barrier world; print line" ", timestamps: true, ranks: 1-3, label: \"<{rank}/{local_rank}@{host}>\""
folds foldlabel 1
like "a label of several ranks has their sets; the ranks that are not shown are not waited for" "$(out)" \
    "^[0-9:.]{12} <1-3/1-3@$(hostname)> line$"
is "it is the only line" "$(wc -l <out)" 1
fold foldnolabel 4 "barrier world; print line" ", label: \"\""
folds foldnolabel 1
is "without a label a line of all ranks is shown once" "$(out)" "line"
# Rank 1 alone writes a line, and then waits: the line is shown after the window, not when others write.
fold foldwait 3 "@1 print alone; note wrote; sleep 60000" ""
start run foldwait.yaml
within 60 noted 1 wrote
check_within "a line waits for the window, not for the other ranks" 60 grep -q '^\[1\] alone$' out
kill -INT "$pid"
finish 60
fold folddie 4 "err last words; @2 signal 9; hang" ""
run run folddie.yaml
is "what ranks wrote before a crash stands before the verdict" "$(grep -E 'last words|error: rank 2' err | tail -n 1 | cut -c1-22)" "collrun: error: rank 2"
is "nothing of it is lost, nor repeated" "$(sed -n 's/^\[\(.*\)\] last words/\1/p' err | tr ',' '\n' | awk -F- '{ n += NF == 2 ? $2 - $1 + 1 : 1 } END { print n }') $(grep -c '^  |' err)" "4 0"
fold foldflood 4 "spew 25000 100" ""
run run foldflood.yaml
is "of 10 MB of lines that differ nothing is lost" "$(wc -l <out)" 100000
is "and each rank's lines keep their order" "$(awk '{ if ($3 != next_line[$2]++) bad++ } END { print bad + 0 }' out)" 0

# ---- what collrun itself says ----
simple chatter 2 "progress halfway; print done"
run run chatter.yaml
quiet "progress, metrics and debug messages do not reach a plain stderr"
is "nor stdout" "$(sort out)" "$(printf '[%d] done\n' 0 1)"
simple warn 1 "warn the room is warm"
run run warn.yaml
like "a warning of collrun_log is shown on stderr" "$(err)" 'the room is warm'
is "and not on stdout" "$(out)" ""
simple failing 2 "print last words; @1 fail badly"
run run failing.yaml
is "output before a failure is shown" "$(grep -c 'last words' out)" 2
simple dying 2 "bare last words; @1 signal 9; hang" "timeouts: {grace: 300ms}"
run run dying.yaml
like "unfinished lines of a killed rank are shown" "$(out)" '^\[1\] last words$'
simple moves 2 "@1 err loading 1%\\r loading 2%\\r; @1 err \\e[31mred\\e[0m; @1 exit 3"
run run moves.yaml
is "lines of stderr just before the verdict are not repeated" "$(grep -c 'red' err)" 1
for lines in 50:1 300:2; do
    simple above 2 "@1 err the reason; barrier world; @0 spew ${lines%:*} 20; barrier world; @1 exit 3; hang" "timeouts: {grace: 300ms}"
    timeout -k 5 "$limit" "$COLLRUN" run above.yaml >out 2>&1 </dev/null
    is "${lines%:*} lines of another rank below them: the lines of the culprit are shown ${lines#*:} times" "$(grep -c 'the reason$' out)" "${lines#*:}"
done
run run moves.yaml --set logging.console.ranks=0
is "the verdict repeats them as they look in the end, without what moves the cursor" "$(grep '^  |' err)" "$(printf '  |  loading 2%%\n  | ?[31mred?[0m')"
simple child 1 "print parent"
run run child.yaml -q
is "-q leaves the ranks' output" "$(out)" "[0] parent"
run run child.yaml -v
like "-v says more on stderr" "$(err)" .
is "and not on stdout" "$(out)" "[0] parent"
# ---- a reader that takes its time ----
simple paged 2 "spew 2000 100" "logging: {dir: \"paged\"}"
(timeout "$limit" "$COLLRUN" run paged.yaml; echo "code $?" >code) 2>err | { maybe_within 60 test -s paged/result.json && : >was_over; cat; } >out
check "a job ends although its reader has not begun to read" test -e was_over
is "nothing is lost for a reader that begins after the end of the job" "$(wc -l <out)" 4000
is "and it is no failure" "$(cat code)" "code 0"
mkfifo never
sleep 300 <never & # holds it open, and reads nothing
sleeper=$!
children+=("$sleeper")
simple unread 2 "spew 20000 100" "timeouts: {grace: 300ms}
logging: {dir: \"unread\"}"
"$COLLRUN" run unread.yaml >never 2>err &
pid=$!
children+=("$pid")
within 60 held unread
kill -INT "$pid"
finish 60
ends "Ctrl-C ends the wait for one that never comes" 130
check "with the grace time, not long after it" test "$elapsed" -lt $((30000 * slow))
# A failure under such a reader: judged and written down at once; the ranks are gone, and what they printed is kept for the reader.
simple halted 3 "@1 await 1 full; @1 exit 3; spew 1000000 80" "timeouts: {grace: 500ms}
logging: {dir: \"halted\"}"
"$COLLRUN" run halted.yaml >never 2>&1 &
pid=$!
children+=("$pid")
within 60 held halted
note_test full
check_within "a job that fails under it ends with a verdict" 60 grep -qs '^  "exit_code": 3,' halted/result.json
check_within "and without ranks" 60 sh -c "! pgrep -P $pid"
check "for which collrun waits" sh -c "kill -0 $pid"
kill -TERM "$pid"
finish 60
ends "SIGTERM ends the wait: the exit code of the failure" 3
# A good job whose reader leaves, or whose collrun gets SIGTERM, before all is read.
short() { simple short 2 "spew 2000 100" "logging: {dir: \"short-$1\"}"; }
short left
{ timeout "$limit" "$COLLRUN" run short.yaml; echo "code $?" >code; } 2>err | { maybe_within 60 test -s short-left/result.json && : >was_complete; }
check "result.json is complete before the reader leaves" test -e was_complete
within 60 grep -q code code
is "a reader that leaves: 128 + SIGPIPE" "$(cat code)" "code 141"
like "which result.json says, too" "$(cat short-left/result.json)" '^  "exit_code": 141,'
short ended
"$COLLRUN" run short.yaml >never 2>err &
pid=$!
children+=("$pid")
within 60 test -s short-ended/result.json
kill -TERM "$pid"
finish 60
ends "SIGTERM before all was read: 143" 143
like "which result.json says, too" "$(cat short-ended/result.json)" '^  "exit_code": 143,'
kill "$sleeper" 2>/dev/null
done_testing

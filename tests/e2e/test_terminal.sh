#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --wrap RANK COMMAND on a terminal: the rank has the terminal, and a person works in a shell or a debugger there.
. "$(dirname "$0")/lib.sh"
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{plugin: hello}]\n' | job hello
printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{command: [echo, "a b", c]}]\n' | job echo
# session [EXPECT TYPE]... -- ARGUMENTS OF collrun...
session() {
    local words=()
    while [ "$1" != -- ]; do words+=("$1") && shift; done
    shift
    SLOW=$slow timeout -k 5 $((60 * slow)) python3 "$here/terminal_session.py" "${words[@]}" -- "$COLLRUN" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$(sed -n 's/^exit code //p' "$tmp/out")
}

# A shell without start files shows this prompt.
shell=(env ENV= sh)
prompt='prompt> '
session "$prompt" 'tty; stty size; echo $TERM=${COLLRUN_PROGRAM##*/}\r' '=collrun-engine' '$COLLRUN_PROGRAM\r' 'from rank 1' '' "$prompt" 'exit\r' \
    -- hello.yaml --wrap 1 sh
ends "a shell, in which the rank's program is run" 0
like "it has a terminal" "$(out)" '^/dev/pts/[0-9]+$'
like "of the size of collrun's" "$(out)" '^30 100$'
like "and of its type" "$(out)" '^xterm=collrun-engine$'
like "the rank's output is shown as it is" "$(out)" '^hello from rank 1 of 3'
like "all lines end at the left edge" "$(out)" '^lines without a return: 0$'
is "the other ranks have labels" "$(grep -o '\[[02]\] hello from rank' out | wc -l)" 2
like "the terminal of collrun" "$(out)" '^terminal restored$'

session "$prompt" 'echo $((40 + 2))\r' 42 "@size 41 101" "$prompt" 'until stty size | grep "^41 "; do :; done\r' '41 101' '' \
    "$prompt" "sh -c 'echo \$((60 + 6)); exec sleep 1000'\\r" 66 '\x03' "$prompt" 'echo after $?\r' 'after 1' 'exit 7\r' -- echo.yaml --wrap 1 -- sh
like "the terminal is made larger" "$(out)" '^41 101$'
like "Ctrl-C is the rank's" "$(out)" '^after 130$'
ends "the exit code is the rank's" 7
like "which is the root cause" "$(out)" 'error:.* rank 1 .*exited with code 7'
like "the terminal of collrun after an error" "$(out)" '^terminal restored$'

session "$prompt" '$COLLRUN_PROGRAM; exit\r' -- echo.yaml --wrap 0 sh
like "a program" "$(out)" '^a b c$'
ends "ends well" 0

session "$prompt" "sleep 4$$1 & sh -c 'echo \$((60 + 6)); sleep 4$$2'\\r" 66 '@signal 15' -- hello.yaml --wrap 0 sh
ends "collrun gets SIGTERM" 143
like "the terminal of collrun after a signal" "$(out)" '^terminal restored$'
nothing_sleeps() { ! pgrep -f "^sleep 4$$[12]\$" >/dev/null; }
check_within "nothing is left" 60 nothing_sleeps

session "$prompt" 'printf unfinished; kill -9 $$\r' -- hello.yaml --wrap 0 sh
like "a message of collrun begins a line" "$(out)" 'unfinished$'
like "and says what has died" "$(out)" 'rank 0 .*was killed by signal 9'
run hello.yaml --wrap 0 bash --norc
ends "a shell without a terminal" 2
like "is refused" "$(err)" '^collrun: error: --wrap: bash needs a terminal'
like "with a hint" "$(err)" '^hint: one rank has it'
session -- hello.yaml --wrap 0,2 sh -c 'tty; exec "$@"' sh
is "two ranks have no terminal" "$(grep -c '^\[[02]\] not a tty$' out)" 2
ends "and run" 0
printf 'processes: {count: 3, stdin: 1}\nversion: 1\nworkloads: [{plugin: hello}]\n' | job stdin
session -- stdin.yaml --wrap 0 sh -c 'tty; exec "$@"' sh
like "nor has one where another rank reads the input" "$(out)" '^\[0\] not a tty$'
printf '%s\n' 'version: 1' 'hosts: {nodes: [{name: here, transport: local}, {name: far, transport: {command: [env, -u, TERM]}}]}' 'processes: {count: 2, map: cyclic}' \
    'workloads: [{plugin: hello}]' | job far
session "$prompt" 'tty; stty size; echo $TERM=$COLLRUN_HOST\r' 'xterm=' '$COLLRUN_PROGRAM; exit\r' -- far.yaml --wrap 1 sh
like "a rank on another host" "$(out)" '^(prompt> )?hello from rank 1 of 2 on far'
like "its terminal" "$(out)" '^/dev/pts/[0-9]+$'
like "has the size" "$(out)" '^30 100$'
like "and the type" "$(out)" '^xterm=far$'
ends "it ends well" 0
# A line without an end: a prompt, also where another rank shows a line meanwhile.
job ask <<'END'
version: 1
processes: {count: 2, stdin: 0}
workloads:
  - {command: [sh, -c, 'printf "How many? "; read n; touch answered; until [ -e shown ]; do sleep 0.02; done; echo "thanks for $n"'], ranks: 0}
  - {command: [sh, -c, 'until [ -e answered ]; do sleep 0.02; done; printf "a bar\ranother bar"; printf " and its end\n"; touch shown'], ranks: 1}
END
session 'How many? ' '7\r' 'its end' '' 'thanks' '' -- ask.yaml
ends "a prompt is shown before the answer" 0
like "what is typed" "$(out)" '^\[0\] How many\? 7$'
like "the answer has arrived" "$(out)" '^\[0\] thanks for 7$'
like "lines of another rank are not mixed in" "$(out)" 'another bar and its end$'
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: [sh, -c, "head -c 200000 /dev/zero | tr \\\\0 x; echo"]}]\n' | job long
run long.yaml
is "a long line remains one line" "$code $(wc -l <out) $(wc -c <out)" "0 1 200005"
# The terminal goes away, and nohup or setsid has SIGHUP ignored: the rank reads the end of its input.
cat >hangup.py <<'END'
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b""
while b"begins" not in seen:
    seen += os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: [sh, -c, "echo begins; cat; touch read_to_the_end"]}]\n' | job reads
TERM=xterm timeout -k 5 $((60 * slow)) python3 hangup.py "$COLLRUN" reads.yaml --run-dir reads --wrap 0 env >out 2>err
check "the end of the terminal is the end of the input" test -e read_to_the_end
unlike "and no error of collrun" "$(cat reads/result.json)" malformed
if [ -n "$sanitized" ]; then
    skip "a debugger that is typed to" "LeakSanitizer does not work under a debugger"
elif command -v gdb >/dev/null; then
    session '(gdb) ' 'run\r' 'exited normally' 'quit\r' -- hello.yaml --wrap 2 gdb -q --args
    ends "a debugger that is typed to" 0
    like "runs the rank" "$(out)" '^hello from rank 2 of 3'
else
    skip "a debugger that is typed to" "gdb is missing"
fi
done_testing

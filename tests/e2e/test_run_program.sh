#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program in place of a job file: what stands after "--" arrives as it was written, every option works with it, and
# the file that --print-job prints does the same.
. "$(dirname "$0")/lib.sh"

run run -n 3 -- sh -c 'echo "rank $PMI_RANK of $PMI_SIZE"'
is "three ranks" "$code $(unlabelled | sort | tr '\n' ' ')" "0 rank 0 of 3 rank 1 of 3 rank 2 of 3 "
run -n 2 -- sh -c 'exit 7'
is "its exit code; run may be left out" "$code" 7

# Each argument arrives as it is: the program writes them with a NUL after each.
args=(-n 5 --set x=1 -- '' ' ' 'a "b"' "it's" '\' '$HOME' '${HOME}' '$$' '${env:HOME}' '{rank}' '{' 'null' '~' '012' '1e3' 'yes'
    '#x' 'a: b' '- a' '&a' '*a' '!t' '%' '@' '`' $'two\nlines' $'\t\x01\x7f' $'\u0085\u2028\ufeff' 'é€😀' '[a, b]' '<<' '---')
own=$tmp/own
printf '%s\0' "${args[@]}" >"$own"
run -n 1 -- sh -c 'printf "%s\\0" "$@" >got' sh "${args[@]}"
is "the program runs" "$code $(err)" "0 "
check "every argument arrives as it was written" cmp got "$own"

run -n 1 --print-job -- sh -c 'printf "%s\\0" "$@" >again' sh "${args[@]}"
cp "$tmp/out" printed.yaml
run printed.yaml
is "the printed file runs" "$code $(err)" "0 "
check "... with the same arguments" cmp again "$own"

run -n 2 --set timeouts.run=1m --print-job -- sh -c true
cp "$tmp/out" set.yaml
check "what --set changes is printed" grep -qx 'timeouts: {run: 1m}' set.yaml
run plan set.yaml --json --set name=sh
sed '/"file"/d' "$tmp/out" >from_file
run plan -n 2 --set timeouts.run=1m --json -- sh -c true
sed '/"file"/d' "$tmp/out" >from_line
check "the plan of the file is the plan of the command line" diff from_file from_line

run -n 2 --wrap 1 env WRAPPED=yes -- sh -c 'echo "wrapped: ${WRAPPED:-no}"'
is "--wrap ends at --" "$code $(unlabelled | sort | tr '\n' ' ')" "0 wrapped: no wrapped: yes "
run -n 2 --run-dir kept -q -- true
check "--run-dir" test -s kept/result.json
check "... has the job" grep -q 'command.*true' kept/resolved.yaml
run kept/resolved.yaml --run-dir once-more
is "... which runs again" "$code" 0
echo "from a file" >input
"$COLLRUN" -n 1 --set processes.stdin=0 -- cat <input >"$tmp/out" 2>"$tmp/err"
is "standard input, if a --set says so" "$? $(unlabelled)" "0 from a file"
run check -n 2 -- true
is "check" "$code $(cat "$tmp/out")" "0 command line: no errors"
run plan -n 2 --hosts localhost -- true
like "plan --hosts LIST places ranks on the list" "$(cat "$tmp/out")" '0 +localhost'
run plan -n 2 --hosts -- true
like "plan --hosts without a list asks the hosts" "$(cat "$tmp/out")" 'MEMORY'

printf '#!/bin/sh\necho "hello from a script"\n' >script
chmod +x script
run -n 1 -- ./script
is "a program in the working directory" "$code $(unlabelled)" "0 hello from a script"
run -n 1 ./script
is "... without --: 2" "$code" 2
like "... with the right line" "$(err)" 'collrun -n 4 -- ./script'
mkfifo pipe
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: ["true"]}]\n' >pipe &
run pipe
is "a job file that is a pipe is not read before its time" "$code" 0
done_testing

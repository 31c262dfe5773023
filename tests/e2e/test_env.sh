#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The environment of ranks: pass, set, unset, secrets, templates; what the context says about the job.
# shellcheck disable=SC2016
. "$(dirname "$0")/lib.sh"
need_scripted
shows() { like "$1" "$(out)" "$2"; }
export E2E_PASSED=through E2E_GLOB_A=left E2E_GLOB_B=right E2E_UNSET=visible E2E_EMPTY='' E2E_SECRET='hunter2 of 7'

simple pass 2 "env E2E_PASSED; env E2E_GLOB_A; env E2E_GLOB_B; env E2E_EMPTY; env E2E_ABSENT" \
    'env: {pass: [E2E_PASSED, "E2E_GLOB_*", E2E_EMPTY, E2E_ABSENT]}'
run run pass.yaml
ends "env.pass" 0
shows "a named variable is passed" '^\[0\] E2E_PASSED=through$'
shows "on every rank" '^\[1\] E2E_PASSED=through$'
shows "a pattern passes all that match (a)" '^\[0\] E2E_GLOB_A=left$'
shows "a pattern passes all that match (b)" '^\[0\] E2E_GLOB_B=right$'
shows "an empty variable stays empty" '^\[0\] E2E_EMPTY=$'
shows "what is not there is not made up" '^\[0\] E2E_ABSENT is unset$'

simple set 3 "env TAG; env PLAIN; env E2E_PASSED" \
    'env: {set: {TAG: "{rank}-{local_rank}-{host}-{run_id}-{attempt}", PLAIN: value, E2E_PASSED: replaced}}'
run run set.yaml
shows "env.set" '^\[0\] PLAIN=value$'
shows "env.set goes before what was there" '^\[0\] E2E_PASSED=replaced$'
shows "templates: rank, local_rank, host, run_id, attempt" '^\[2\] TAG=2-2-[^-{}][^{}]*-[^{}-][^{}]*-0$'
unlike "no template is left" "$(out)" '[{}]'

simple unset 1 "env E2E_UNSET; env E2E_PASSED" 'env: {pass: ["E2E_*"], unset: [E2E_UNSET]}'
run run unset.yaml
shows "env.unset goes before pass" '^\[0\] E2E_UNSET is unset$'
shows "and leaves the rest" '^\[0\] E2E_PASSED=through$'

simple secret 2 "env E2E_SECRET" 'env: {secrets: [E2E_SECRET]}'
run run secret.yaml
shows "a secret reaches the ranks" '^\[1\] E2E_SECRET=hunter2 of 7$'
run plan secret.yaml --json
unlike "plan --json does not show a secret" "$(cat out err)" 'hunter2'
multi=$(printf 'two "lines" of $it\\\nand more')
cat >copy.yaml <<'END'
version: 1
processes: {count: 1}
env: {secrets: [E2E_SECRET, E2E_LINES], set: {COPY: "is ${env:E2E_SECRET}, ${env:E2E_SECRET}", LINES: "${env:E2E_LINES}", SHORT: "$$7"}}
logging: {dir: copies}
workloads: [{command: [sh, -c, 'echo "$COPY; $LINES"', "${env:E2E_SECRET}"]}]
END
E2E_LINES=$multi run run copy.yaml
is "a copy of a secret reaches the ranks" "$(unlabelled)" "is hunter2 of 7, hunter2 of 7; $multi"
unlike "resolved.yaml and plan.json have no value" "$(cat copies/resolved.yaml copies/plan.json)" 'hunter2|and more'
check "resolved.yaml names the variable" grep -qF 'COPY: "is ${env:E2E_SECRET}, ${env:E2E_SECRET}"' copies/resolved.yaml
check "so does plan.json" grep -qF '"${env:E2E_SECRET}"' copies/plan.json
E2E_LINES=$multi run run copies/resolved.yaml --run-dir again
is "resolved.yaml runs again, with the same values" "$(unlabelled)" "is hunter2 of 7, hunter2 of 7; $multi"
cat >overlap.yaml <<'END'
version: 1
processes: {count: 1}
env: {secrets: [E2E_PART, E2E_WHOLE]}
logging: {dir: overlap}
workloads: [{command: [sh, -c, 'echo "$1"', sh, "${env:E2E_WHOLE} ${env:E2E_PART}"]}]
END
E2E_PART=user E2E_WHOLE=user:hunter2 run run overlap.yaml
is "a secret that contains another one reaches the ranks" "$(unlabelled)" "user:hunter2 user"
unlike "no file of the run has a part of it" "$(cat overlap/*.yaml overlap/*.json*)" 'hunter2'
cat >fails.yaml <<'END'
version: 1
processes: {count: 1}
env: {secrets: [E2E_SECRET]}
logging: {dir: fails}
workloads: [{command: ["./${env:E2E_SECRET}"]}]
END
run run fails.yaml
like "an error of a rank names the variable" "$(err)" '\$\{env:E2E_SECRET\}'
unlike "and has no value, nor has any file of the run" "$(cat err fails/*.yaml fails/*.json* fails/diag/*.json)" 'hunter2'
cat >watch.sh <<'END'
# Looks at the command lines of all processes while the job runs.
for file in /proc/[0-9]*/cmdline; do
    { tr "\0" " " <"$file" && echo; } 2>/dev/null
done | grep -v grep | grep hunter2
END
simple waiting 2 "note up; until-stopped" 'env: {secrets: [E2E_SECRET]}'
start run waiting.yaml
within 60 noted_all 2 up
is "nor do command lines" "$(bash watch.sh)" ""
kill -INT "$pid"
finish 60
simple missing 1 "env E2E_NOT_SET" 'env: {secrets: [E2E_NOT_SET]}'
run run missing.yaml
check "a secret that is not set is an error with its name" grep -q E2E_NOT_SET err

# ---- ${env:...}: filled in when the file is read ----
simple read 1 "env A; env B; env C" 'env: {set: {A: "${env:E2E_PASSED}", B: "${env:E2E_NONE:-fallback}", C: "x${env:E2E_GLOB_A}y"}}'
run run read.yaml
shows '${env:NAME}' '^\[0\] A=through$'
shows '${env:NAME:-default}' '^\[0\] B=fallback$'
shows '${env:NAME} inside a string' '^\[0\] C=xlefty$'
simple unread 1 "print x" 'env: {set: {A: "${env:E2E_NONE}"}}'
run run unread.yaml
ends '${env:NAME} of an unset variable: 2' 2
like "at its place" "$(err)" 'unread\.yaml:5:[0-9]+: error: .*E2E_NONE'
simple params 2 "print I am {rank} of {local_rank} in {attempt}"
run run params.yaml
shows "templates in string params (0)" '^\[0\] I am 0 of 0 in 0$'
shows "templates in string params (1)" '^\[1\] I am 1 of 1 in 0$'

# ---- what the context says ----
simple context 3 "job"
run run context.yaml
shows "rank, size, local rank, local size, attempt" '^\[2\] rank 2 of 3, local 2 of 3, attempt 0, host [^ ,]+, run [^ ,]+, dir $'
is "one run id for all ranks" "$(sed 's/.*, run \([^,]*\),.*/\1/' out | sort -u | wc -l)" 1
sed 's/.*, run \([^,]*\),.*/\1/' out | sort -u >first
run run context.yaml
check "another one for the next run" [ "$(sed 's/.*, run \([^,]*\),.*/\1/' out | sort -u)" != "$(cat first)" ]

# ---- files, and commands that each host runs once ----
export HOME=$tmp # the shell is a login shell, which reads a profile
printf '%s\n' '# a comment' '' 'export E2E_FILE=first' 'E2E_QUOTED="a {rank} $HOME"' "  E2E_ALSO='b'  " 'E2E_EMPTY=' 'E2E_SET=file' >one.env
printf 'E2E_FILE=second\r\n' >two.env
printf '%s\n' 'echo ran >>ran; export E2E_ACTIVE="$E2E_PASSED and $PWD" E2E_SET=active; unset E2E_GLOB_A; local_only=1' >active.sh
simple files 2 "env E2E_FILE; env E2E_QUOTED; env E2E_ALSO; env E2E_EMPTY; env E2E_SET; env E2E_ACTIVE; env E2E_GLOB_A; env local_only" \
    'env: {files: [one.env, two.env], activate: [source ./active.sh, "export E2E_SECOND=$E2E_ACTIVE"], set: {E2E_SET: "{rank}"}}'
run run files.yaml
ends "env.files and env.activate" 0
is "both ranks have them" "$(sed -n 's/^\[1\] //p' out)" "E2E_FILE=second
E2E_QUOTED=a {rank} \$HOME
E2E_ALSO=b
E2E_EMPTY=
E2E_SET=1
E2E_ACTIVE=through and $PWD
E2E_GLOB_A is unset
local_only is unset"
is "the commands ran once" "$(cat ran)" ran
run plan --hosts files.yaml
is "plan --hosts shows what they change" "$code $(sed -n 's/^collrun: host [^ ]*: env.activate //p' err | sort | sed 's/=.*//' | tr '\n' ';')" \
    "0 removes E2E_GLOB_A;sets E2E_ACTIVE;sets E2E_SECOND;sets E2E_SET;"
activate() { # COMMAND: the second one of the job
    simple active 2 "print x" "env: {activate: [\"true\", \"$1\"]}"
    run run active.yaml "${@:2}"
}
activate "echo no such module >&2; false"
ends "a command that fails ends the job" 2
like "at its place, with what it says" "$(err)" 'active\.yaml:5:26: error: host [^ ]+: env\.activate\[1\]: exit code 1: no such module$'
activate "exit 0"
like "one that ends the shell, too" "$(err)" 'env\.activate: the shell ended early$'
activate "sleep 1234" --set timeouts.start=6s
like "one that does not end, too" "$(err)" 'env\.activate: the shell has not ended in time \(half of timeouts\.start\)$'
check "and nothing of it is left" eval '! pgrep -f "^sleep 1234" >/dev/null'
done_testing

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The helpers of lib.sh: each fails its case when it must, so that no other test passes vacuously.
. "$(dirname "$0")/lib.sh"
export COLLRUN # of the cases, too

# outcome SCRIPT: what a test of these lines prints, without the comments; its exit code is $code.
outcome() {
    { echo ". '$here/lib.sh'"; cat; echo done_testing; } >"$tmp/case.sh"
    outcome=$(SLOW=1 bash "$tmp/case.sh" 2>&1)
    code=$?
    grep -v '^#' <<<"$outcome" | paste -sd'|'
}
# fails WHAT LINE: a test of this line fails, with one case.
fails() {
    local got
    got=$(outcome <<<"$2"; exit $code)
    code=$?
    is "$1: the test fails" "$code ${got%% - *}" "1 not ok 1"
}
# passes WHAT LINE
passes() {
    local got
    got=$(outcome <<<"$2"; exit $code)
    code=$?
    is "$1: the test passes" "$code ${got%% - *}" "0 ok 1"
}

passes "is, equal" 'is x 1 1'
fails "is, different" 'is x 1 2'
passes "like, a line matches" 'like x "one
two" "^two$"'
fails "like, no line matches" 'like x one two'
passes "unlike, no line matches" 'unlike x one two'
fails "unlike, a line matches" 'unlike x one one'
passes "check, success" 'check x true'
fails "check, failure" 'check x false'
passes "ends, the same code" 'code=3; ends x 3'
fails "ends, another code" 'code=3; ends x 4'
passes "quiet, nothing on stderr" ': >err; quiet x'
fails "quiet, something on stderr" 'echo word >err; quiet x'
late='collrun: rank 2 was last in 61 % of the operations of group world, 0.4 ms late on average; that cost 12 % of the time'
passes "quiet_or_late, nothing on stderr" ': >err; quiet_or_late x'
passes "quiet_or_late, a late rank" "echo '$late' >err; quiet_or_late x"
fails "quiet_or_late, a late rank and more" "printf '%s\n' '$late' 'collrun: warning: x' >err; quiet_or_late x"
passes "check_within, success" 'check_within x 1 true'
fails "check_within, the deadline" 'check_within x 0 false'
fails "within, the deadline" 'within 0 test -e never'
like "within names the place and the condition" "$(outcome <<<'within 0 test -e never')" '^not ok 1 - case.sh:2: the test waited 0 s for: test -e never'
is "within adds no case when the condition comes" "$(outcome <<<'within 5 true; ok x')" "ok 1 - x|1..1"
like "within in a subshell ends the test" "$(outcome <<<'echo | { within 0 false; }; ok late')" '^Bail out! within, called in a subshell'
is "maybe_within only returns its result" "$(outcome <<<'maybe_within 0 false; is x $? 1')" "ok 1 - x|1..1"
if unshare -m -n true 2>/dev/null && command -v ip >/dev/null; then
    inside='own_namespaces -m -n
        is files "$(ls /dev/shm)" ""; is sockets "$(grep -c @ /proc/net/unix)" 0; check lo eval "(: <>/dev/tcp/127.0.0.1/1) 2>&1 | grep refused"'
    passes=$(outcome <<<"$inside")
    like "own_namespaces: no file in /dev/shm, no other sockets, and lo" "$passes" '^ok 1 - files.ok 2 - sockets.*ok 3 - lo.1..3$'
    mkdir folders
    is "the folder of before is removed" "$(TMPDIR=$tmp/folders outcome <<<'own_namespaces -n; is one "$(ls "$TMPDIR" | wc -l)" 1')" "ok 1 - one|1..1"
else
    skip "own_namespaces" "namespaces are not allowed"
fi
# ---- tests/run: those before "++" beside the others ----
printf '%s\n' '#!/bin/sh' 'echo "begin $1" >>order' 'sleep "$2"' 'echo "end $1" >>order' 'echo "ok 1 - $1"' 'exit "${3:-0}"' >program
chmod +x program
runs() { "$top/tests/run" "$@" 2>&1 | tail -n 1; }
is "all of them count" "$(runs './program a 0.2' './program b 0' ++ './program c 0')" "3 passed, 0 failed, 0 skipped"
is "one by one before ++" "$(grep '[ab]$' order | paste -sd' ')" "begin a end a begin b end b"
is "a failure counts before ++" "$(runs './program a 0 1' ++ './program b 0')" "2 passed, 1 failed, 0 skipped"
is "and behind it" "$(runs './program a 0' ++ './program b 0' './program c 0 1')" "3 passed, 1 failed, 0 skipped"
is "a program that prints no case fails, too" "$(runs ++ true './program b 0')" "1 passed, 1 failed, 0 skipped"
printf '%s\n' '#!/bin/sh' 'kill -USR1 $$; echo "ok 1 - ignored"' >signals
chmod +x signals
is "no signal is ignored, though it is here" "$(trap '' USR1; runs ./signals)" "0 passed, 1 failed, 0 skipped"
done_testing

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Mutation test of the proof of deadlocks. The record, its reader and the proof are compiled so that each of their conditions
# (RECORD_RULE in engine/base/record.h) can be false; with any of them false, the traces of tests/unit/test_proof_traces.c must fail, and
# without, pass.
# usage: tests/mutation/record.sh             output: TAP, one case per condition
#   RULES    names of those to break (default: all)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top" || exit 2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mutation.XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
${CC:-cc} -std=c11 -O2 -DNDEBUG -D_GNU_SOURCE -include tests/mutation/record_rule.h -Iengine/include -Iengine -Irunner -Itests \
    -ffunction-sections -Wl,--gc-sections -o "$tmp/traces" tests/unit/test_proof_traces.c runner/diagnose/proof.c \
    engine/base/{record,record_queue,record_view,record_writer,record_cut,arena,buf,diag,names,quote}.c -lcmocka || exit 1

rules=$(grep -oh 'RECORD_RULE([A-Z_]*)' engine/base/*.[ch] runner/diagnose/*.c tests/unit/test_proof_traces.c | sed 's/.*(\(.*\))/\1/' | sort -u)
number=0 failed=0
for rule in none ${RULES:-$rules}; do
    number=$((number + 1))
    RULE=$rule "$tmp/traces" >"$tmp/out" 2>&1
    code=$?
    verdict=$(sed -n 's/.*\(line [0-9]*: thread .*\)/\1/p' "$tmp/out" | head -n 1)
    if [ "$rule" = none ] && [ $code -eq 0 ]; then
        echo "ok $number - none: all traces pass"
    elif [ "$rule" != none ] && [ -n "$verdict" ]; then
        echo "ok $number - $rule: $verdict"
    else
        failed=$((failed + 1))
        echo "not ok $number - $rule"
        sed 's/^/#   /' "$tmp/out" | head -n 20
    fi
done
echo "1..$number"
[ "$failed" -eq 0 ]

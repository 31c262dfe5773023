#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Mutation test of the conformance suite. mutant_backend.c wraps shm (or the backend at $INNER) and applies one mutation
# per run. The suite must pass without a mutation, and with each it must fail and name a wrong result.
# usage: tests/mutation/conform.sh             output: TAP, one case per mutation
#   MUTATIONS  names of those to run (default: all; the head of mutant_backend.c lists them)
#   COLLRUN    the command under test (build/release/bin/collrun)
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
suite=$top/tests/conform
COLLRUN=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}") || exit 2
export COLLRUN
prefix=$(cd "$(dirname "$COLLRUN")/.." && pwd)
inner=${INNER:-$prefix/lib/collrun/backends/libcollrun_shm.so}
include=$prefix/include
[ -d "$include/collrun" ] || include=$top/engine/include
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mutation.XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -I"$include" "$here/mutant_backend.c" -ldl \
    -o "$tmp/libcollrun_mutant.so" || exit 1

cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread -I"$include" "$suite"/*.c \
    -L"$prefix/lib" -lcollrun -lm -o "$tmp/conform.so" || exit 1
export CONFORM_SO=$tmp/conform.so

# Which jobs detect a mutation: a regular expression for their titles.
jobs_for() {
    case $1 in
    none) echo 'world of 4|permuted|^messages' ;;
    floor_avg | lost_nan | dropped_sync | lazy_barrier) echo 'world of 4' ;;
    message_order) echo '^messages' ;;
    *) echo 'permuted$' ;;
    esac
}

number=0 failed=0
for mutation in ${MUTATIONS:-none wrong_root world_root off_by_one_block swapped_ranks wrong_block stale_tail truncated_count \
    missing_avg_division floor_avg forgotten_rank wrong_width lost_nan scribbled_input nonroot_write stray_write \
    message_order dropped_sync lazy_barrier}; do
    number=$((number + 1))
    OPTIONS="{inner: $inner, mutation: $mutation}" FIRST=1 GROUP_TIMEOUT=5s JOBS=$(jobs_for "$mutation") SEED=1 TEAMS="w-4-0-2 w-3-1-0-2" \
        "$suite/run.sh" "$tmp/libcollrun_mutant.so" >"$tmp/$mutation.out" 2>&1
    code=$?
    failure=$(sed -n 's/^# *.*FAIL //p' "$tmp/$mutation.out" | head -n 1)
    if [ "$mutation" = none ] && [ $code -eq 0 ]; then
        echo "ok $number - none: the wrapper alone passes"
    elif [ "$mutation" != none ] && [ $code -ne 0 ] && [ -n "$failure" ]; then
        echo "ok $number - $mutation: $failure"
    else
        failed=$((failed + 1))
        echo "not ok $number - $mutation"
        sed 's/^/#   /' "$tmp/$mutation.out" | head -n 20
    fi
done
echo "1..$number"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the suite can fail: saboteur.c wraps shm (or the backend at $INNER) and plants one bug at a time; the
# jobs must pass with none and fail with each, by a wrong result that they name. TAP. BUGS chooses some of them.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
COLLRUN=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}") || exit 2
export COLLRUN
prefix=$(cd "$(dirname "$COLLRUN")/.." && pwd)
inner=${INNER:-$prefix/lib/collrun/backends/libcollrun_shm.so}
include=$prefix/include
[ -d "$include/collrun" ] || include=$top/engine/include
tmp=$(mktemp -d "${TMPDIR:-/tmp}/saboteur.XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -I"$include" "$here/saboteur.c" -ldl \
    -o "$tmp/libcollrun_saboteur.so" || exit 1

sources=()
for source in "$here"/*.c; do
    [ "$(basename "$source")" = saboteur.c ] || sources+=("$source")
done
cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread -I"$include" "${sources[@]}" \
    -L"$prefix/lib" -lcollrun -lm -o "$tmp/conform.so" || exit 1
export CONFORM_SO=$tmp/conform.so

# Where a bug shows: a part of the jobs' titles.
jobs_for() {
    case $1 in
    none) echo 'world of 4|permuted|messages' ;;
    floor_avg | lost_nan | dropped_sync | lazy_barrier) echo 'world of 4' ;;
    message_order) echo '^messages' ;;
    *) echo 'permuted$' ;;
    esac
}

number=0 failed=0
for bug in ${BUGS:-none wrong_root world_root off_by_one_block swapped_ranks wrong_block stale_tail truncated_count \
    missing_avg_division floor_avg forgotten_rank wrong_width lost_nan scribbled_input nonroot_write stray_write \
    message_order dropped_sync lazy_barrier}; do
    number=$((number + 1))
    OPTIONS="{inner: $inner, bug: $bug}" GROUP_TIMEOUT=5s JOBS=$(jobs_for "$bug") SEED=1 TEAMS="w-4-0-2 w-3-1-0-2" \
        "$here/run.sh" "$tmp/libcollrun_saboteur.so" >"$tmp/$bug.out" 2>&1
    code=$?
    seen=$(sed -n 's/^# *.*FAIL //p' "$tmp/$bug.out" | head -n 1)
    if [ "$bug" = none ] && [ $code -eq 0 ]; then
        echo "ok $number - none: the wrapper alone passes"
    elif [ "$bug" != none ] && [ $code -ne 0 ] && [ -n "$seen" ]; then
        echo "ok $number - $bug: $seen"
    else
        failed=$((failed + 1))
        echo "not ok $number - $bug"
        sed 's/^/#   /' "$tmp/$bug.out" | head -n 20
    fi
done
echo "1..$number"
[ "$failed" -eq 0 ]

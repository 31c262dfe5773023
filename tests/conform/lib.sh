# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# What run.sh and devices.sh share: where things are, a folder of their own, and the workload.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
collrun=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}") || exit 2
prefix=$(cd "$(dirname "$collrun")/.." && pwd)
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
started=$(date +%s)
child=

# own_folder NAME: $tmp, gone at the end, as is the $child that runs then
own_folder() {
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX") || exit 2
    trap '[ -z "$child" ] || kill "$child" 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$tmp"' EXIT
    trap 'exit 143' TERM INT
}

# build_workload: $tmp/conform.so, built like a user's
build_workload() {
    local include=${PREFIX:-$prefix}/include source sources=()
    [ -n "${PREFIX:-}" ] || [ -d "$include/collrun" ] || include=$top/engine/include
    for source in "$here"/*.c; do
        [ "$(basename "$source")" = saboteur.c ] || sources+=("$source")
    done
    if [ -n "${CONFORM_SO:-}" ]; then
        cp "$CONFORM_SO" "$tmp/conform.so"
    elif ! cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread ${SANITIZE:-} -I"$include" "${sources[@]}" \
        -L"${PREFIX:-$prefix}/lib" -lcollrun -lm -o "$tmp/conform.so"; then
        echo "1..0 # SKIP the workload does not compile"
        exit 1
    fi
}

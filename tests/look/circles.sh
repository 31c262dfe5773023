#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: circles.sh NAME OBJECT...
# Reads the object files of one program or library with nm and fails if some of them need each other in a loop: A uses a symbol that
# B defines, and B, perhaps by way of others, uses one of A. Inline and template functions of C++, which any object may hold, do not count.
set -u
name=$1
shift
edges=$(nm -A "$@" 2>/dev/null | awk '
    { file = $0; sub(/:[ 0-9a-f]*[A-Za-z] .*/, "", file); type = $(NF - 1); symbol = $NF }
    type ~ /^[TDBRC]$/ { home[symbol] = file }
    type == "U" { n++; user[n] = file; used[n] = symbol }
    END {
        for (i = 1; i <= n; i++) {
            to = home[used[i]]
            if (to != "" && to != user[i] && !(seen[user[i], to]++))
                print user[i], to, used[i]
        }
    }')
loop=$(cut -d' ' -f1,2 <<<"$edges" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \(.*\.o\)$/\1/p' | sort -u)
[ -n "$loop" ] || exit 0
echo "$name: these files need each other in a loop:" >&2
while read -r from to symbol; do
    grep -qxF "$from" <<<"$loop" && grep -qxF "$to" <<<"$loop" && echo "  $from uses $symbol of $to" >&2
done <<<"$edges"
exit 1

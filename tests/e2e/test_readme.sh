#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README says what is true: its smallest job is configs/hello.yaml and prints what it shows, its table of operations is what
# `collrun backends` says, the files and make targets that it names exist, its job with groups and its workload run as they
# stand.
set -u
cd "$(dirname "$0")/../.."
collrun=${COLLRUN:-build/release/bin/collrun}
prefix=$(cd "$(dirname "$collrun")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    n=$((n + 1))
    if "$@" >"$tmp/log" 2>&1; then echo "ok $n - $what"; else
        echo "not ok $n - $what"
        sed 's/^/#   /' "$tmp/log"
    fi
}
plain() { grep -vE '^ *(#|$)' "$1"; }

awk '/^```yaml$/ {on = 1; next} /^```$/ {if (on) exit} on' README.md >"$tmp/job.yaml"
plain configs/hello.yaml >"$tmp/hello.yaml"
check "the smallest job is configs/hello.yaml" diff "$tmp/job.yaml" "$tmp/hello.yaml"
check "it has at most 6 lines" test "$(wc -l <"$tmp/job.yaml")" -le 6
"$collrun" "$tmp/job.yaml" 2>&1 | sort | sed 's/ on [^;]*;/ on HOST;/' >"$tmp/real"
grep -E '^\[[0-9]\] hello from rank' README.md | sort | sed 's/ on [^;]*;/ on HOST;/' >"$tmp/shown"
check "it prints what the README shows" diff "$tmp/shown" "$tmp/real"

awk '/^```yaml$/ {if (++block == 2) on = 1; next} /^```$/ {on = 0} on' README.md >"$tmp/groups.yaml"
check "the job with groups runs as it stands, but for a number" \
    timeout 60 "$collrun" "$tmp/groups.yaml" --set workloads[0].params.iters=2

COLLRUN=$collrun tests/e2e/backend_table.sh >"$tmp/table"
awk '/^\| operation \|/ {on = 1} on && !/^\|/ {exit} on' README.md >"$tmp/readme_table"
check "the table of operations is what collrun backends says" diff "$tmp/readme_table" "$tmp/table"

awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' README.md >"$tmp/w.c"
check "its workload compiles" cc -shared -fPIC -Wall -Werror -Iengine/include "$tmp/w.c" -o "$tmp/w.so" -L"$prefix/lib" -lcollrun
printf 'version: 1\nprocesses: {count: 2}\ngroups: {train: {ranks: all}}\nworkloads: [{plugin: ./w.so}]\n' >"$tmp/w.yaml"
check "and runs" timeout 60 "$collrun" "$tmp/w.yaml"

for target in $(grep -oE '`make [a-z][a-z0-9-]*|^make [a-z][a-z0-9-]*' README.md | awk '{print $2}' | sort -u); do
    check "make $target exists" make -n "$target" BACKEND=shm
done
missing=$(grep -oE '\]\([a-zA-Z/._-]+\)' README.md | tr -d ']()' | while read -r path; do [ -e "$path" ] || echo "$path"; done)
check "every link leads somewhere" test -z "$missing"
echo "1..$n"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documents of the repository are true:
#   README.md         its jobs and its workload run as they are printed, its screens are those of collrun-failures(7), which
#                     test_screens.sh compares with real runs, and every backend has every operation
#   ARCHITECTURE.md   its tree lists every folder of runner, engine and backends; all paths exist; the glossary is short
#   all pages         links lead somewhere, and make targets exist
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
none() { # FILE: it is empty, or it is shown
    cat "$1"
    [ ! -s "$1" ]
}
plain() { grep -vE '^ *(#|$)' "$1"; }

# ---- README.md ----
awk '/^```yaml$/ {on = 1; next} /^```$/ {if (on) exit} on' README.md >"$tmp/job.yaml"
plain configs/hello.yaml >"$tmp/hello.yaml"
check "the smallest job is configs/hello.yaml" diff "$tmp/job.yaml" "$tmp/hello.yaml"
check "it has at most 6 lines" test "$(wc -l <"$tmp/job.yaml")" -le 6
"$collrun" "$tmp/job.yaml" 2>&1 | sort | sed 's/ on [^;]*;/ on HOST;/' >"$tmp/real"
grep -E '^\[[0-9]\] hello from rank' README.md | sort | sed 's/ on [^;]*;/ on HOST;/' >"$tmp/shown"
check "it prints what the README shows" diff "$tmp/shown" "$tmp/real"

awk '/^```yaml$/ {if (++block == 2) on = 1; next} /^```$/ {on = 0} on' README.md >"$tmp/groups.yaml"
check "the job with groups runs as it is printed, with fewer iterations" \
    timeout 60 "$collrun" "$tmp/groups.yaml" --set workloads[0].params.iters=2

awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' README.md >"$tmp/w.c"
check "its workload compiles" cc -shared -fPIC -Wall -Werror -Iengine/include "$tmp/w.c" -o "$tmp/w.so" -L"$prefix/lib" -lcollrun
printf 'version: 1\nprocesses: {count: 2}\ngroups: {train: {ranks: all}}\nworkloads: [{plugin: ./w.so}]\n' >"$tmp/w.yaml"
check "its workload runs" timeout 60 "$collrun" "$tmp/w.yaml"

# The command that builds it, as it is printed, before an installation: below a folder whose build/release is that of this build.
sed -n 's/^`\(cc -shared .*\)` builds it,$/\1/p' README.md >"$tmp/command"
path=$(sed -n 's/.*`PKG_CONFIG_PATH=\(build[^`]*\)`.*/\1/p' README.md)
mkdir -p "$tmp/clone/build" && ln -s "$prefix" "$tmp/clone/build/release" && cp "$tmp/w.c" "$tmp/clone/allreduce.c"
uninstalled() (
    [ -s "$tmp/command" ] && [ -n "$path" ] && cd "$tmp/clone" || return 1
    rm -f liballreduce.so
    PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=$path sh -e "$tmp/command" || return 1
    sed 's/w\.so/clone\/liballreduce.so/' ../w.yaml >../clone.yaml
    timeout 60 "$collrun" ../clone.yaml
)
check "its command builds the workload before an installation, and it runs" uninstalled

sed -e 's/\\(ha/^/g; s/\\(ti/~/g; s/\\-/-/g; s/\\e/\\/g' runner/man/collrun-failures.7 >"$tmp/page"
awk '/^## When something fails/ {part = 1} /^## Backends/ {exit} part && /^```/ {on = !on; next} part && on' README.md >"$tmp/screens"
check "it shows three screens" test "$(wc -l <"$tmp/screens")" -ge 10
grep -vxFf "$tmp/page" "$tmp/screens" >"$tmp/unknown"
check "every line of them is in collrun-failures(7)" none "$tmp/unknown"

"$collrun" backends >"$tmp/backends"
awk '/^[a-z]/ {if (name && count != 19) print name, count; name = $1; count = 0} $1 ~ /^(native|emulated)$/ {count += NF - 1}
    END {if (count != 19) print name, count}' "$tmp/backends" >"$tmp/lacking"
check "every backend has all 19 operations" none "$tmp/lacking"

awk 'length > 100 && !/^(collrun: |\|)/ {print FNR ": " $0}' README.md >"$tmp/wide"
check "its lines have at most 100 columns, but for tables and screens" none "$tmp/wide"
check "it has at most 137 lines" test "$(wc -l <README.md)" -le 137

# ---- ARCHITECTURE.md ----
sed -n '/^## The tree/,/^## Layers/p' ARCHITECTURE.md | grep -oE '^\| `[^`]*`' | tr -d '|` ' >"$tmp/tree"
{ git ls-files runner engine 2>/dev/null || find runner engine -type f; } | grep -oE '^(runner|engine)/[a-z]+/' | sort -u |
    grep -vxFf "$tmp/tree" >"$tmp/unlisted"
check "the tree lists every folder of runner and engine" none "$tmp/unlisted"
grep -oE '`(runner|engine|backends|tests|examples|configs)/[a-zA-Z0-9_./-]*`' ARCHITECTURE.md | tr -d '`' | sort -u |
    while read -r path; do [ -e "$path" ] || echo "$path"; done >"$tmp/gone"
check "every path that it names exists" none "$tmp/gone"
check "the glossary has at most 40 lines" test "$(sed -n '/^## Glossary/,$p' ARCHITECTURE.md | wc -l)" -le 40

# A folder of the runner includes headers of those to the right of it in the first line of arrows.
grep -m 1 '^run -> ' ARCHITECTURE.md | sed 's/ -> engine.*//; s/,//g; s/ -> /\n/g' | awk '{for (i = 1; i <= NF; i++) print $i, NR}' >"$tmp/order"
while read -r folder level; do
    while read -r other at; do
        [ "$folder" != "$other" ] && [ "$at" -le "$level" ] && grep -n "#include \"$other/" runner/"$folder"/*.[ch]
    done <"$tmp/order"
done <"$tmp/order" >"$tmp/upwards"
check "it orders the folders of the runner" test "$(wc -l <"$tmp/order")" -ge 7
check "includes follow that order" none "$tmp/upwards"

# ---- all pages ----
pages=$({ git ls-files '*.md' 2>/dev/null || find . -name '*.md'; } | grep -v '^build/')
for page in $pages; do
    grep -oE '\]\([a-zA-Z0-9/._-]+\)' "$page" | tr -d ']()' | while read -r path; do
        [ -e "$(dirname "$page")/$path" ] || echo "$page: $path"
    done
done >"$tmp/missing"
check "every link leads somewhere" none "$tmp/missing"
{
    grep -ohE '`make [a-z][a-z0-9-]*' $pages | tr -d '`'
    awk '/^```/ {code = !code} (code || /^    /) && / *make [a-z][a-z0-9-]*( |$)/ {print $1, $2}' $pages | grep '^make [a-z]'
} | awk '{print $2}' | sort -u | while read -r target; do
    make -n "$target" BACKEND=shm >/dev/null 2>&1 || echo "make $target"
done >"$tmp/targets"
check "every make target exists" none "$tmp/targets"
echo "1..$n"

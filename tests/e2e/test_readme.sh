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

# blocks LANGUAGE: all code blocks of that language
blocks() { awk -v mark="\`\`\`$1" '$0 == mark {on = 1; next} /^```/ {on = 0} on' README.md; }
awk '/^```yaml$/ {if (++block == 2) on = 1; next} /^```$/ {on = 0} on' README.md >"$tmp/groups.yaml"
check "the job with groups runs as it is printed" timeout 60 "$collrun" "$tmp/groups.yaml"

# The commands that build its workload, as they are printed, before an installation: below a folder whose build/release is that of this build.
mkdir -p "$tmp/clone/build" && ln -s "$prefix" "$tmp/clone/build/release"
blocks c >"$tmp/clone/ranksum.c"
awk '/^export PKG_CONFIG_PATH/ {on = 1} /^```$/ {on = 0} on' README.md >"$tmp/commands"
uninstalled() (
    [ -s "$tmp/commands" ] && cd "$tmp/clone" || return 1
    export PKG_CONFIG_LIBDIR=/nonexistent
    cc() { command cc -Wall -Wextra -Werror "$@"; }
    . "$tmp/commands" || return 1
    printf 'version: 1\nprocesses: {count: 3}\ngroups: {train: {ranks: all}}\nworkloads: [{plugin: ./ranksum.so}]\n' >job.yaml
    timeout 60 "$collrun" job.yaml | sort | diff - <(printf '[%s] the sum of the ranks is 3\n' 0 1 2)
)
check "its commands build its workload without a warning before an installation, and it runs" uninstalled

blocks python >"$tmp/block.py"
python_block() {
    { cat "$tmp/block.py" && echo 'print(x[999])'; } >"$tmp/shown.py"
    printf 'version: 1\nprocesses: {count: 3}\ngroups: {train: {ranks: all}}\nworkloads: [{command: [python3, shown.py]}]\n' >"$tmp/python.yaml"
    timeout 60 "$collrun" "$tmp/python.yaml" | sort | diff - <(printf '[%s] 3.0\n' 0 1 2)
}
if [ -n "${PYTHON_MISSING:=$(ls "$prefix"/lib/collrun/python/collrun/_collrun*.so >/dev/null 2>&1 || echo "the Python package is not built")}" ]; then
    n=$((n + 1))
    echo "ok $n - its program in Python runs # SKIP $PYTHON_MISSING"
else
    check "its program in Python runs" python_block
fi

sed -e 's/\\(ha/^/g; s/\\(ti/~/g; s/\\-/-/g; s/\\e/\\/g' runner/man/collrun-failures.7 >"$tmp/page"
awk '/^```$/ && ++mark <= 2 {on = !on; next} on && mark == 1' README.md >"$tmp/first"
check "its first screen is a deadlock of collrun-failures(7)" grep -qxFf "$tmp/first" "$tmp/page"
awk '/^## When something fails/ {part = 1} /^## Backends/ {exit} part && /^```/ {on = !on; next} part && on' README.md >"$tmp/screens"
check "it shows two screens" test "$(wc -l <"$tmp/screens")" -ge 9
cat "$tmp/first" "$tmp/screens" | grep -vxFf "$tmp/page" >"$tmp/unknown"
check "every line of them is in collrun-failures(7)" none "$tmp/unknown"

"$collrun" backends >"$tmp/backends"
awk '/^[a-z]/ {if (name && count != 19) print name, count; name = $1; count = 0} $1 ~ /^(native|emulated)$/ {count += NF - 1}
    END {if (count != 19) print name, count}' "$tmp/backends" >"$tmp/lacking"
check "every backend has all 19 operations" none "$tmp/lacking"

awk 'length > 100 && !/^(collrun: |\|)/ {print FNR ": " $0}' README.md >"$tmp/wide"
check "its lines have at most 100 columns, but for tables and screens" none "$tmp/wide"
check "it has at most 150 lines" test "$(wc -l <README.md)" -le 150

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

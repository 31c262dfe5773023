#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Golden cases: what collrun says of a job file, to the letter.
#
#   NAME.yaml      the job. bad-*: `collrun check` finds fault with it; good-*: `collrun plan` shows it
#   NAME.args      optional: words for the command line; the first is the command, if it is one
#   NAME.env       optional: variables, one VAR=value per line
#   NAME.expected  stdout and stderr, then the exit code; DIR stands for this folder, PREFIX for the
#                  installation
#
# Cases that cannot be files of a repository (a folder, an unreadable or a huge one) are made below.
# The plugins are pretended: engine.sh answers for them. So are the GPUs, by tests/fake (NAME.env says how many).
#
# usage: [COLLRUN=path] run.sh [--update] [NAME...]      prints TAP; --update writes the expected files
collrun=${COLLRUN:-$(dirname "$0")/../../build/release/bin/collrun}
update=
if [ "$1" = --update ]; then
    update=1
    shift
fi
[ -x "$collrun" ] || { echo "$0: no $collrun" >&2; exit 2; }
collrun=$(realpath "$collrun")
only=$*
cd "$(dirname "$0")" || exit 2
dir=$PWD
work=$(mktemp -d) || exit 2
trap 'chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM

# An installation of this collrun with pretended plugins.
prefix=$work/prefix
mkdir -p "$prefix/bin" "$prefix/libexec/collrun" "$prefix/lib/collrun/backends" \
    "$prefix/lib/collrun/workloads" || exit 2
cp "$collrun" "$prefix/bin/collrun" || exit 2
cp engine.sh "$prefix/libexec/collrun/collrun-engine" || exit 2
for name in gloo nccl shm; do : >"$prefix/lib/collrun/backends/libcollrun_$name.so"; done
cp "$(dirname "$collrun")/../tests/fake/libnvidia-ml.so.1" "$prefix/" || exit 2 # eight GPUs, all pretended
for name in hello allreduce ring; do : >"$prefix/lib/collrun/workloads/$name.so"; done

chmod 755 "$work"

number=0
failed=0
as= # what runs it as another user

say() # RESULT NAME
{
    number=$((number + 1))
    echo "$1 $number - $2"
    [ "$1" = ok ] || failed=$((failed + 1))
}

# Runs one case and compares. Arguments after the name are the command line.
try() # NAME ARGS...
{
    name=$1
    shift
    if [ -n "$only" ]; then
        case " $only " in *" $name "*) ;; *) return ;; esac
    fi
    set -- "$prefix/bin/collrun" "$@"
    if [ -f "$name.env" ]; then
        while read -r line; do set -- "$line" "$@"; done <"$name.env"
    fi
    # shellcheck disable=SC2086
    $as timeout 60 env -i PATH="$PATH" COLLRUN_LIBNVML="$prefix/libnvidia-ml.so.1" "$@" >"$work/out" 2>&1 </dev/null
    echo "exit $?" >>"$work/out"
    sed -e "s|$prefix|PREFIX|g" -e "s|$work|WORK|g" -e "s|$dir|DIR|g" "$work/out" >"$work/got"
    if [ -n "$update" ]; then
        cp "$work/got" "$name.expected"
    elif cmp -s "$name.expected" "$work/got"; then
        say ok "$name"
    else
        say 'not ok' "$name"
        diff -u "$name.expected" "$work/got" | sed 's/^/# /'
    fi
}

for file in bad-*.yaml good-*.yaml; do
    case=${file%.yaml}
    command=check
    case $case in good-*) command=plan ;; esac
    args=
    [ -f "$case.args" ] && args=$(cat "$case.args")
    # shellcheck disable=SC2086
    case $args in
    check* | plan* | backends*) try "$case" ${args%% *} "$file" ${args#* } ;;
    *) try "$case" $command "$file" $args ;;
    esac
done

# ---- files that a repository cannot hold ----
try bad-file-missing check no-such-file.yaml
mkdir "$work/folder.yaml"
try bad-file-folder check "$work/folder.yaml"
head -c 4194305 /dev/zero | tr '\0' '#' >"$work/huge.yaml"
try bad-file-huge check "$work/huge.yaml"
: >"$work/secret.yaml"
chmod 000 "$work/secret.yaml"
if [ "$(id -u)" != 0 ]; then
    try bad-file-unreadable check "$work/secret.yaml"
elif setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$prefix/bin/collrun"; then
    as='setpriv --reuid=65534 --regid=65534 --clear-groups'
    try bad-file-unreadable check "$work/secret.yaml"
    as=
else
    number=$((number + 1))
    echo "ok $number - bad-file-unreadable # SKIP root may read everything, and cannot be somebody else here"
fi

# ---- the command line ----
try cli-none
try cli-command chek good-smallest.yaml
try cli-option check --jsno good-smallest.yaml
try cli-option-elsewhere check --json good-smallest.yaml
try cli-value-missing check good-smallest.yaml --set
try cli-two-jobs check good-smallest.yaml good-hosts.yaml
try cli-later run --trace out good-smallest.yaml
try cli-doctor doctor missing.yaml
try cli-diag diag some-run
try cli-help --help
try cli-help-plan plan --help
try cli-plugin-unloadable run bad-plugin-no-symbol.yaml
try cli-check-ok check good-smallest.yaml
try cli-backends backends
try cli-backends-json backends --json good-backend-declared.yaml
try cli-plan-json plan --json good-hosts.yaml

# ---- backends that are installed under a name that is not theirs, or not theirs alone ----
: >"$prefix/lib/collrun/backends/libcollrun_fast.so"
: >"$prefix/lib/collrun/backends/libcollrun_SHM.so"
: >"$prefix/lib/collrun/backends/libcollrun_broken.so"
try names-backends backends
try names-backends-json backends --json
try names-auto plan good-smallest.yaml
try names-taken check good-smallest.yaml --set groups.world.backend=shm
try names-other check good-smallest.yaml --set groups.world.backend=fast

# ---- the schema that editors are given ----
if "$prefix/bin/collrun" schema | cmp -s - ../../configs/collrun.schema.json; then
    say ok schema-is-current
else
    say 'not ok' schema-is-current
    echo "# collrun schema >configs/collrun.schema.json brings it up to date"
fi

echo "1..$number"
[ "$failed" = 0 ]

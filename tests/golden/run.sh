#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Golden cases: the exact output of collrun for a job file. A folder holds the cases of one topic.
#
#   TOPIC/NAME.yaml      the job. bad-*: `collrun check` reports errors; good-*: `collrun plan` prints the plan
#   TOPIC/NAME.args      optional: command-line arguments; the first is the command, if it is one
#   TOPIC/NAME.env       optional: environment variables, one VAR=value per line
#   TOPIC/NAME.expected  stdout and stderr, then the exit code; DIR stands for this folder, PREFIX for the
#                        installation
#
# Cases without a job file of their own (the command line, a folder, an unreadable or huge file) are listed below.
# engine.sh stands in for collrun-engine and answers for the plugins and the devices.
#
# usage: [COLLRUN=path] run.sh [--update] [TOPIC[/NAME]...]      prints TAP; --update writes the expected files
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

# An installation of this collrun with stand-ins for its plugins.
prefix=$work/prefix
mkdir -p "$prefix/bin" "$prefix/libexec/collrun" "$prefix/lib/collrun/backends" \
    "$prefix/lib/collrun/workloads" || exit 2
cp "$collrun" "$prefix/bin/collrun" || exit 2
cp engine.sh "$prefix/libexec/collrun/collrun-engine" || exit 2
for name in gloo nccl shm; do : >"$prefix/lib/collrun/backends/libcollrun_$name.so"; done
echo 'install libucx-dev and build again' >"$prefix/lib/collrun/backends/libcollrun_ucx.missing" # as the build notes it
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

selected() # TOPIC/NAME
{
    [ -n "$only" ] || return 0
    case " $only " in *" $1 "* | *" ${1%%/*} "*) return 0 ;; esac
    return 1
}

# Runs one case in the folder of its job files and compares. Arguments after the name are the command line.
try() # TOPIC/NAME ARGS...
{
    name=$1
    shift
    selected "$name" || return 0
    set -- "$prefix/bin/collrun" "$@"
    if [ -f "$name.env" ]; then
        while read -r line; do set -- "$line" "$@"; done <"$name.env"
    fi
    # shellcheck disable=SC2086
    (cd "${folder:-${name%/*}}" && $as timeout 60 env -i PATH="$PATH" "$@") \
        >"$work/out" 2>&1 </dev/null
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

folder=
for path in */bad-*.yaml */good-*.yaml; do
    case=${path%.yaml}
    file=${path##*/}
    command=check
    case $file in good-*) command=plan ;; esac
    args=
    [ -f "$case.args" ] && args=$(cat "$case.args")
    # shellcheck disable=SC2086
    case $args in
    check* | plan* | backends*) try "$case" ${args%% *} "$file" ${args#* } ;;
    *) try "$case" $command "$file" $args ;;
    esac
done

# ---- files that a repository cannot hold ----
try file/bad-missing check no-such-file.yaml
mkdir "$work/folder.yaml"
try file/bad-folder check "$work/folder.yaml"
head -c 4194305 /dev/zero | tr '\0' '#' >"$work/huge.yaml"
try file/bad-huge check "$work/huge.yaml"
: >"$work/secret.yaml"
chmod 000 "$work/secret.yaml"
if [ "$(id -u)" != 0 ]; then
    try file/bad-unreadable check "$work/secret.yaml"
elif setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$prefix/bin/collrun"; then
    as='setpriv --reuid=65534 --regid=65534 --clear-groups'
    try file/bad-unreadable check "$work/secret.yaml"
    as=
else
    number=$((number + 1))
    echo "ok $number - file/bad-unreadable # SKIP root may read every file, and no other user can be taken here"
fi

# ---- the command line ----
folder=plan
try cli/none
try cli/command chek good-smallest.yaml
try cli/option check --jsno good-smallest.yaml
try cli/option-elsewhere check --json good-smallest.yaml
try cli/value-missing check good-smallest.yaml --set
try cli/count plan good-smallest.yaml -n 2
try cli/count-value check good-smallest.yaml -n two
try cli/count-elsewhere schema -n 2
try cli/other-launcher check good-smallest.yaml -np 2
try cli/dry-run run good-smallest.yaml --dry-run
try cli/help-word help
try cli/version-word version
try cli/init-word init x
try cli/workload-word hello
try cli/program-word sh train.sh
try cli/backend-option good-smallest.yaml --backend=gloo
try cli/torchrun-option good-smallest.yaml --nproc-per-node=2
try cli/srun-option good-smallest.yaml --time 10m
try cli/home-option good-smallest.yaml --run-dir=~me/runs
try cli/np-option good-smallest.yaml -ppn 2
try cli/nnodes-option -n 2 --nnodes=2 -- true
try cli/variable-option -n 2 -x NAME -- true
try cli/hostfile-option -n 2 --hostfile hosts.txt -- true
try cli/oversubscribe-option -n 2 --oversubscribe -- true
try cli/two-jobs check good-smallest.yaml ../hosts/good-hosts.yaml

# A program in place of a job file.
try program/print --print-job -n 8 -- python3 train.py --lr 0.1
try program/print-all -n 8 --hosts 'node1,node2:4,gpu[01-03,7]:2,fe80::1' --gpus 1 --set timeouts.run=1h --print-job -- \
    ./train.sh '' 12 null '$HOME' '{rank}' 'a "b" \c' "$(printf 'line\n\001\302\205')" --gpus -- -n
try program/print-file -n 2 --hosts ../program/hosts.txt --print-job -- true
try program/plan plan -n 4 --hosts node1:2,node2:2 -- sh train.sh
try program/plan-slots plan -n 4 --hosts node1:2,node2 -- sh train.sh
try program/check check -n 4 -- sh train.sh
try program/check-errors check -n two --gpus -1 --hosts a,,b, -- sh
try program/set -n 2 --set processes.count=3 --print-job -- sh
try program/set-count --set 'processes={count: 3}' --print-job -- sh
try program/slurm -n 2 --hosts slurm -- sh
try program/no-file check -n 2 -- ./no-such-program
try program/no-host-file check -n 2 --hosts ./no-such-file -- sh
try program/no-count -- python3 train.py
try program/no-program -n 2 --
try program/no-wrap -n 2 --wrap 0 -- -- true
try program/not-utf8 -n 2 -- echo "$(printf '\377')"
try program/without-dashes -n 2 "$prefix/bin/collrun"
try program/after-job good-smallest.yaml -- sh
try program/hosts-of-job good-smallest.yaml --hosts node1
try program/gpus-of-job check good-smallest.yaml --gpus 1
try program/print-of-job good-smallest.yaml --print-job
folder=program
try program/print-file-here -n 2 --hosts hosts.txt --print-job -- true
folder=plan
try cli/doctor doctor missing.yaml
try cli/diag diag some-run
mkdir -p "$work/empty" "$work/good" && echo '{}' >"$work/good/result.json"
try cli/diag-empty diag "$work/empty"
try cli/diag-file diag good-smallest.yaml
try cli/diag-good diag "$work/good"
try cli/top top some-run
try cli/top-over top "$work/good"
try cli/help --help
try cli/help-plan plan --help
try cli/help-report report --help
try cli/describe-left-out describe UCX
try cli/completion-plugins completion plugins
try cli/plugin-unloadable run ../workloads/bad-plugin-no-symbol.yaml
try cli/check-ok check good-smallest.yaml
try cli/backends backends
try cli/describe-workload describe allreduce
try cli/describe-workload-json describe --json allreduce
try cli/describe-backend describe NCCL
try cli/describe-broken describe ../plugins/missing_symbol.so
try cli/describe-unknown describe alreduce
try cli/describe-no-file describe ../plugins/none.so
try cli/describe-nothing describe
try cli/describe-two describe hello ring
try cli/backends-json backends --json ../backends/good-declared.yaml
try cli/plan-json plan --json ../hosts/good-hosts.yaml

# ---- installed backends whose file name is not their name, or is taken twice ----
: >"$prefix/lib/collrun/backends/libcollrun_fast.so"
: >"$prefix/lib/collrun/backends/libcollrun_SHM.so"
: >"$prefix/lib/collrun/backends/libcollrun_broken.so"
try backends/names-backends backends
try backends/names-backends-json backends --json
try backends/names-broken backends ../backends/bad-crash.yaml
try backends/names-auto plan good-smallest.yaml
try backends/names-taken check good-smallest.yaml --set groups.world.backend=shm
try backends/names-other check good-smallest.yaml --set groups.world.backend=fast

# ---- the JSON Schema for editors: it is current, and allows every good job ----
cat >"$work/allows.py" <<'END'
import json, sys, jsonschema, yaml
schema = jsonschema.Draft7Validator(json.load(open("../../configs/collrun.schema.json")))
bad = [(f, e.message[:200]) for f in sys.argv[1:] for e in schema.iter_errors(yaml.safe_load(open(f)))]
sys.exit("\n".join(map(str, bad)) or 0)
END
if ! python3 -c 'import jsonschema, yaml' 2>/dev/null; then
    number=$((number + 1))
    echo "ok $number - schema-allows-good-jobs # SKIP no jsonschema and yaml for python3"
elif python3 "$work/allows.py" layers/good-*.yaml ../../configs/*.yaml 2>"$work/got"; then
    say ok schema-allows-good-jobs
else
    say 'not ok' schema-allows-good-jobs
    sed 's/^/# /' "$work/got"
fi
if "$prefix/bin/collrun" schema | cmp -s - ../../configs/collrun.schema.json; then
    say ok schema-is-current
else
    say 'not ok' schema-is-current
    echo "# collrun schema >configs/collrun.schema.json brings it up to date"
fi

echo "1..$number"
[ "$failed" = 0 ]

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gallery: the pages that `collrun report` writes about four runs, and a picture of the top of each.
#
#   demo      the job of `make demo`
#   deadlock  3 ranks, each of which receives before it sends
#   replay    a recorded program: the DLRM training of 8 ranks in the folder $TRACES (dlrm_pytorch_et), else examples/traces/ring
#   bench     allreduce on 64 ranks
#
# usage: examples/gallery/run.sh      COLLRUN=path; the run directories are written to $OUT (default: build/gallery), with report.html
# and trace.json in each; the pictures, to $PICTURES (default: $OUT), need chromium.
set -eu
cd "$(dirname "$0")/../.."
collrun=${COLLRUN:-$PWD/build/release/bin/collrun}
out=${OUT:-$PWD/build/gallery}
pictures=${PICTURES:-$out}
browser=$(command -v chromium || true)
mkdir -p "$out" "$pictures"

# picture NAME: 1200 x 900 pixels of its page, in colours of a light screen.
picture() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$out/browser" \
        --window-size=1200,900 --virtual-time-budget=3000 --screenshot="$pictures/$1.png" "file://$out/$1/report.html" 2>/dev/null
}

# show NAME JOB [OPTIONS]: runs the job, which may fail.
show() {
    local name=$1
    shift
    rm -rf "${out:?}/$name"
    "$collrun" "$@" --set logging.trace=true -q --run-dir "$out/$name" >"$out/$name.out" 2>&1 || true
    "$collrun" report "$out/$name"
    [ -z "$browser" ] || picture "$name"
}

show demo configs/demo.yaml

${CC:-cc} -shared -fPIC -Iengine/include -o "$out/deadlock.so" tests/e2e/deadlock_programs.c
cat >"$out/deadlock.yaml" <<END
version: 1
name: deadlock
processes: {count: 3}
groups: {world: {ranks: all}, other: {ranks: all}}
workloads:
  - {plugin: $out/deadlock.so, params: {program: ring}}
END
show deadlock "$out/deadlock.yaml"

if [ -n "${TRACES:-}" ]; then
    mkdir -p "$out/dlrm"
    tar -xzf "$TRACES/dlrm_pytorch_et.tar.gz" -C "$out/dlrm"
    TRACE=$(dirname "$(find "$out/dlrm" -name '*.json' | sort | head -n 1)")
    export TRACE
    show replay configs/replay.yaml -n 8 --set name=DLRM
else
    show replay configs/replay.yaml
fi

show bench configs/bench.yaml -n 64 --set 'workloads[0].groups=[world]' --set 'workloads[0].params.ops=[allreduce]'
[ -n "$browser" ] || echo "no pictures: chromium is not installed" >&2

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What it adds to a call of torch.distributed that it is recorded (observe), in us: torch_tap_cost.py under collrun.
# usage: tests/bench/torch_tap_cost.sh           PYTHON: an interpreter with torch (that of peers.sh, or python3); ROUNDS (100) of 200 calls
set -u
. "$(dirname "$0")/lib.sh"
python=${PYTHON:-$root/build/peers/python/bin/python}
[ -x "$python" ] || python=python3
echo "# $(machine)"
cat >"$work/job.yaml" <<END
version: 1
processes: {count: 1}
env: {set: {OMP_NUM_THREADS: "1"}}
workloads: [{command: ['$python', '$root/tests/bench/torch_tap_cost.py', '${ROUNDS:-100}']}]
END
"$collrun" "$work/job.yaml" | sed 's/^\[0\] //'

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the audit (check: async) costs at 100,000 operations a second, beside check: off in the same job: CPU time of agent and runner, and the
# time of a rank's calls, in per cent of the time (audit_cost.c).
# RANKS (2), RATE (100000): operations/s, PAIRS (25): of windows, WINDOW_MS (500)
set -u
. "$(dirname "$0")/lib.sh"
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/audit_cost.c" -o "$work/audit_cost.so" -L"$home/lib" -lcollrun \
    -lm || exit 1
cat >"$work/job.yaml" <<END
version: 1
processes: {count: ${RANKS:-2}}
groups: {off: {ranks: all, backend: shm, check: off}, async: {ranks: all, backend: shm, check: async}}
logging: {console: {label: ""}}
workloads: [{plugin: ./audit_cost.so, params: {rate: ${RATE:-100000}, pairs: ${PAIRS:-25}, window_ms: ${WINDOW_MS:-500}}}]
END
echo "# $(machine)"
echo "# ${RANKS:-2} ranks on shm, ${RATE:-100000} operations/s, ${PAIRS:-25} pairs of windows of ${WINDOW_MS:-500} ms"
"$collrun" run "$work/job.yaml"

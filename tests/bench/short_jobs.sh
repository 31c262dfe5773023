#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Short jobs in a row: the time of one, the time from the end of its last rank to the end of collrun, and a check that nothing
# accumulates: processes, shared memory, sockets, files. JOBS (200) of each ROW "ranks:backend ..."; 10,000 in all with
# JOBS=5000 ROWS="2:shm 2:gloo".
set -u
. "$(dirname "$0")/lib.sh"
workload_and_driver short_jobs

echo "# $(machine)"
failed=0
for row in ${ROWS:-1:shm 2:shm 8:shm 2:gloo}; do
    IFS=: read -r ranks backend <<<"$row"
    cat >"$work/job.yaml" <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./short_jobs.so, params: {file: "$work/board"}}]
END
    echo "$ranks ranks, $backend"
    "$work/driver" "$collrun" "$work/job.yaml" "$work/board" "$ranks" "${JOBS:-200}" || failed=1
    remains=$(left)
    [ -z "$remains" ] || { echo "  LEFT BEHIND: $remains"; failed=1; }
done
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Short jobs in a row: how long one takes, how long collrun is there after its last rank has ended, and that nothing adds up:
# processes, shared memory, sockets, files. JOBS (200) of each ROW "ranks:backend ..."; 10,000 in all with
# JOBS=5000 ROWS="2:shm 2:gloo".
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
collrun=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}")
home=$(cd "$(dirname "$collrun")/.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$top/engine/include" "$here/short_jobs.c" -o "$tmp/short_jobs.so" -L"$home/lib" -lcollrun || exit 1
cc -std=c11 -O2 -DDRIVER "$here/short_jobs.c" -o "$tmp/driver" || exit 1
mkdir "$tmp/tmpdir" "$tmp/runtime"
export TMPDIR=$tmp/tmpdir XDG_RUNTIME_DIR=$tmp/runtime

# What there is of this build's now: each line is something that should not be.
left() {
    find "$tmp/tmpdir" "$tmp/runtime" -mindepth 1
    find /dev/shm -mindepth 1 -newer "$tmp/driver"
    grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix
    find /proc -maxdepth 2 -name exe -lname "$home/*" 2>/dev/null
}
echo "# $(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg)"
failed=0
for row in ${ROWS:-1:shm 2:shm 8:shm 2:gloo}; do
    IFS=: read -r ranks backend <<<"$row"
    cat >"$tmp/job.yaml" <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./short_jobs.so, params: {file: "$tmp/board"}}]
END
    echo "$ranks ranks, $backend"
    "$tmp/driver" "$collrun" "$tmp/job.yaml" "$tmp/board" "$ranks" "${JOBS:-200}" || failed=1
    remains=$(left)
    [ -z "$remains" ] || { echo "  LEFT BEHIND: $remains"; failed=1; }
done
exit $failed
